//! The scripts, each a verb on the lines of this server. Names and values reach them as keys and arguments only.

use std::sync::LazyLock;

use redis::{RedisResult, ServerErrorKind, Value};

use crate::backend::redis::command::Command;
use crate::backend::redis::pipe::Pipe;

/// How a holder is written at the lock's own key, for other programs to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// A plain string, as `SET key value NX PX ttl` writes it: redis-py, node-redlock, redsync, rslock and many others
    /// exclude us and are excluded by us.
    #[default]
    Canonical,
    /// The hash of a Redisson `RLock`, and its channel. Exclusive locks only.
    Redisson,
}

/// A script, and the digest by which a server knows it that has seen it before.
pub(in crate::backend) struct Script {
    code: String,
    pub(in crate::backend) digest: String,
}

impl Script {
    /// What is quick comes first: a script's functions are made anew with each call, which takes longer than what is quick.
    pub(in crate::backend) fn of(parts: &[&str]) -> Self {
        let code = parts.concat();
        Self { digest: redis::Script::new(&code).get_hash().into(), code }
    }

    /// Calls it by its digest. A server that has forgotten it did nothing; it is told, and asked again.
    pub(in crate::backend) async fn call(&self, pipe: &Pipe, call: &Command) -> RedisResult<Value> {
        match pipe.ask(call).await {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
            answer => return answer,
        }
        self.load(pipe).await?;
        pipe.ask(call).await
    }

    /// Tells a server of it.
    pub(super) async fn load(&self, pipe: &Pipe) -> RedisResult<()> {
        pipe.ask(&Command::of(3).part(b"SCRIPT").part(b"LOAD").part(self.code.as_bytes())).await.map(drop)
    }
}

/// The scripts of one layout.
pub(super) struct Scripts {
    pub(super) enter: Script,
    pub(super) leave: Script,
    /// The same, for many locks at once that nobody else wants.
    pub(super) leave_many: Script,
    pub(super) renew: Script,
    pub(super) annotate: Script,
    pub(super) wish: Script,
    pub(super) inspect: Script,
}

impl Scripts {
    pub(super) fn of(layout: Layout) -> &'static Self {
        static CANONICAL: LazyLock<Scripts> = LazyLock::new(|| {
            let quick = [include_str!("scripts/quick_enter.lua"), include_str!("scripts/quick_leave.lua")];
            Scripts::on(include_str!("scripts/canonical.lua"), quick)
        });
        static REDISSON: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::on(include_str!("scripts/redisson.lua"), [""; 2]));
        match layout {
            Layout::Canonical => &CANONICAL,
            Layout::Redisson => &REDISSON,
        }
    }

    fn on(layout: &str, [quick_enter, quick_leave]: [&str; 2]) -> Self {
        let line = include_str!("scripts/line.lua");
        let made = |quick: &str, verb: &str| Script::of(&[quick, layout, "\n", line, "\n", verb]);
        let script = |verb: &str| made("", verb);
        Self {
            enter: made(quick_enter, include_str!("scripts/enter.lua")),
            leave: made(quick_leave, include_str!("scripts/leave.lua")),
            leave_many: Script::of(&[include_str!("scripts/leave_many.lua")]),
            renew: script(include_str!("scripts/renew.lua")),
            annotate: script(include_str!("scripts/annotate.lua")),
            wish: script(include_str!("scripts/wish.lua")),
            inspect: script(include_str!("scripts/inspect.lua")),
        }
    }
}
