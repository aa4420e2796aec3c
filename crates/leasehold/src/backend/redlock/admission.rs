//! Letting servers take part that remember nothing: new ones, and those that were restarted without what they knew.
//!
//! A server that forgot may have granted a lock that somebody still takes, and committed a token that somebody still
//! counts. So it grants nothing until both are over: whoever admits it waits for one longest lease *first*, on its own
//! clock, and only *then* collects how far the fences of a majority of the others have come. To collect first would miss
//! what the others commit during the wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use futures_util::future::join_all;

use crate::backend::redlock::core::Core;
use crate::backend::redlock::node::{Ask, Epoch, Memory, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::lease::deadline;

/// How long to pause when something stands in the way.
const PAUSE: Duration = Duration::from_secs(1);

impl Core {
    /// A server may have forgotten what it knew. If so, it is admitted in the background, unless somebody else does so first.
    pub(super) fn look_after(self: &Arc<Self>, server: usize) {
        if !self.admitting[server].swap(true, AcqRel) {
            let core = self.clone();
            self.spawn(async move {
                while !core.admit(server).await {
                    core.timer.sleep(core.chance.about(PAUSE)).await;
                }
                core.admitting[server].store(false, std::sync::atomic::Ordering::Release);
            });
        }
    }

    /// Looks what all servers remember, in their order.
    pub(super) async fn survey(&self) -> Vec<Result<Memory>> {
        join_all((0..self.members.len()).map(|server| self.survey_one(server))).await
    }

    async fn survey_one(&self, server: usize) -> Result<Memory> {
        let mark = self.chance.number();
        match self.members[server].ask(Ask::Survey { mark }).await? {
            Reply::Memory(memory) => Ok(memory),
            _ => {
                Err(Error::new(ErrorKind::Protocol, "a server was asked what it remembers and answered something else"))
            }
        }
    }

    /// One round: wait, collect, admit. True if the server takes part afterwards.
    async fn admit(self: &Arc<Self>, server: usize) -> bool {
        let memories = self.survey().await;
        let mark = match &memories[server] {
            Ok(Memory::Ready { .. }) => return true,
            Ok(Memory::Blank { mark, .. }) => *mark,
            Err(_) => return false,
        };
        let (node, longest) = (&self.members[server].node, self.longest_of(&memories));
        tracing::warn!(target: "leasehold::redlock", server = %node, ?longest, "it remembers nothing, and stays out for so long");
        // From here on it is known to remember nothing, and to have granted nothing since it forgot. What it granted before
        // is over when the longest lease is that anybody grants.
        let over_at = deadline::dead_after(self.timer.now(), longest);
        self.timer.sleep_until(over_at).await;
        let memories = self.survey().await;
        match &memories[server] {
            Ok(Memory::Ready { .. }) => return true,
            Ok(Memory::Blank { mark: now, .. }) if *now == mark => {}
            // It forgot once more: what it granted in between may be still under way.
            Ok(Memory::Blank { .. }) | Err(_) => return false,
        }
        let Some(floor) = self.floor(&memories) else { return false };
        self.admit_now(server, mark, floor, self.longest_of(&memories)).await.is_ok_and(|admitted| admitted)
    }

    /// The longest lease that we or any server would grant.
    fn longest_of(&self, memories: &[Result<Memory>]) -> Duration {
        let granted = memories.iter().filter_map(|memory| match memory {
            Ok(Memory::Ready { longest, .. }) => Some(*longest),
            Ok(Memory::Blank { .. }) | Err(_) => None,
        });
        granted.fold(self.longest, Duration::max)
    }

    /// Below which no fence of a server may be that is admitted now; `None` if nobody can say.
    ///
    /// A majority that remembers knows all tokens there are. If fewer do, the memory of the store is lost. It begins anew
    /// with the time, which all tokens have grown with so far; but only if every server answers, or one that remembers more
    /// might come back.
    fn floor(&self, memories: &[Result<Memory>]) -> Option<u64> {
        let fences = memories.iter().filter_map(|memory| match memory {
            Ok(Memory::Ready { highest, .. }) => Some(*highest),
            Ok(Memory::Blank { .. }) | Err(_) => None,
        });
        let highest = fences.clone().max().unwrap_or_default();
        if fences.count() >= self.majority() {
            return Some(highest);
        }
        let all_answer = memories.iter().all(Result::is_ok);
        if all_answer {
            tracing::warn!(target: "leasehold::redlock", "most servers remember nothing: tokens go on from the time");
        }
        all_answer.then(|| highest.max(self.guess.next()))
    }

    async fn admit_now(&self, server: usize, mark: u64, floor: u64, longest: Duration) -> Result<bool> {
        let epoch = Epoch(self.chance.number() >> 12);
        let reply = self.members[server].ask(Ask::Admit { mark, floor, longest, epoch }).await?;
        Ok(matches!(reply, Reply::Done))
    }

    /// Looks at the servers for the first time. With `accept_blank` a store of which no server remembers anything is begun at
    /// once.
    pub(super) async fn meet(self: &Arc<Self>, accept_blank: bool) -> Result<()> {
        let memories = self.survey().await;
        let answered = memories.iter().filter(|memory| memory.is_ok()).count();
        if answered < self.majority() {
            let why = format!("{answered} of {} servers answer, and {} are needed", memories.len(), self.majority());
            let error = Error::new(ErrorKind::Unreachable, why);
            return Err(memories.into_iter().filter_map(Result::err).take(1).fold(error, Error::caused_by));
        }
        refuse_same(&memories)?;
        for memory in memories.iter().flatten() {
            if let Memory::Ready { highest, .. } = memory {
                self.guess.learn(*highest);
            }
        }
        let all_blank = memories.iter().all(|memory| matches!(memory, Ok(Memory::Blank { .. })));
        for (server, memory) in memories.iter().enumerate() {
            match memory {
                Ok(Memory::Blank { mark, .. }) if all_blank && accept_blank => {
                    self.admit_now(server, *mark, self.guess.next(), self.longest).await?;
                }
                Ok(Memory::Blank { .. }) => self.look_after(server),
                Ok(Memory::Ready { .. }) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// One server under two names would vote twice.
fn refuse_same(memories: &[Result<Memory>]) -> Result<()> {
    let servers: Vec<&String> = memories
        .iter()
        .flatten()
        .map(|memory| match memory {
            Memory::Ready { server, .. } | Memory::Blank { server, .. } => server,
        })
        .collect();
    let twice = servers.iter().enumerate().any(|(nth, server)| servers[..nth].contains(server));
    match twice {
        false => Ok(()),
        true => Err(Error::option("url", "names one server twice: a quorum needs servers that fail one by one")),
    }
}
