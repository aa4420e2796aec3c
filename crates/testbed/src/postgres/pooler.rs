//! PgBouncer in front of a server.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::Server;
use crate::process::{self, Process};
use crate::{Failure, PATIENCE, Result, folder, ports, tools, unprivileged, until};

/// A pooler that hands a session of the server to somebody else after each transaction.
#[derive(Debug)]
pub struct Pooler {
    _process: Process, // dropped before the folder that it writes to
    port: u16,
    folder: TempDir,
}

impl Pooler {
    /// Starts one in front of that server.
    pub fn start(server: &Server) -> Result<Self> {
        let (port, folder) = (ports::free()?, folder::make()?);
        unprivileged::give_folder(&folder)?;
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 20\nmax_client_conn = 2000\nlogfile =\npidfile =\n",
            server.port()
        );
        let failed = || Failure::during("cannot set a pooler up");
        fs::write(&settings, text).map_err(failed())?;
        unprivileged::give(&settings)?;
        let log = File::create(folder.path().join("log")).map_err(failed())?;
        let mut command = unprivileged::tied(tools::program("pgbouncer")?);
        command.arg(settings).stdin(Stdio::null()).stdout(log.try_clone().map_err(failed())?).stderr(log);
        let process = Process::start(command)?;
        let pooler = Self { _process: process, port, folder };
        until("the pooler answers", || pooler.answers()).map_err(|_| {
            Failure::new(format!("pgbouncer does not answer; its log ends:\n  {}", process::tail(&pooler.log())))
        })?;
        Ok(pooler)
    }

    /// The one that all tests of this process share, in front of a server of its own. Both end with the process.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<(Pooler, Server)> = OnceLock::new();
        let start = || Server::start().and_then(|server| Ok((Self::start(&server)?, server)));
        &SHARED.get_or_init(|| start().unwrap_or_else(|failure| panic!("{failure}"))).0
    }

    /// How a client reaches the server through it.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn answers(&self) -> bool {
        let mut command = process::tied("psql");
        command.args([&self.url(), "-X", "-q", "-At", "-c", "SELECT 1"]);
        process::output(command, PATIENCE).is_ok()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}
