//! PgBouncer in front of a server.

use std::fs;
use std::sync::OnceLock;

use super::Server;
use crate::daemon::{Daemon, Launched, on_a_free_port};
use crate::{Failure, PATIENCE, Result, folder, ports, process, tools, unprivileged};

/// A pooler that hands a session of the server to somebody else after each transaction.
#[derive(Debug)]
pub struct Pooler {
    daemon: Daemon,
}

impl Pooler {
    /// Starts one in front of that server.
    pub fn start(server: &Server) -> Result<Self> {
        on_a_free_port(|| Self::launch(server))
    }

    fn launch(server: &Server) -> Result<(Self, Launched)> {
        let (port, folder) = (ports::free()?, folder::make()?);
        unprivileged::give_folder(&folder)?;
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 20\nmax_client_conn = 2000\nlogfile =\npidfile =\n",
            server.port()
        );
        fs::write(&settings, text).map_err(Failure::during("cannot set a pooler up"))?;
        unprivileged::give(&settings)?;
        let mut command = unprivileged::tied(tools::program("pgbouncer")?);
        command.arg(settings);
        let pooler = Self { daemon: Daemon::new("pgbouncer", port, folder) };
        let launched = pooler.daemon.launch(command, || pooler.answers())?;
        Ok((pooler, launched))
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
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.daemon.port())
    }

    fn answers(&self) -> bool {
        let mut command = process::tied("psql");
        command.args([&self.url(), "-X", "-q", "-At", "-c", "SELECT 1"]);
        process::output(command, PATIENCE).is_ok()
    }
}
