//! What all requests of one store share: its servers, its time, and what is known of the locks of this client.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::backend::notices::NoticeBoard;
use crate::backend::redlock::member::{Departure, Member};
use crate::backend::redlock::node::{Ask, Release, Reply, Spelled};
use crate::backend::redlock::quiet::Quiet;
use crate::backend::redlock::quorum;
use crate::backend::redlock::token::Guess;
use crate::backend::redlock::waiting::Waiting;
use crate::backend::redlock::ways::WayId;
use crate::backend::{EntryId, Place};
use crate::chance::Chance;
use crate::clock::Timer;
use crate::error::Result;
use crate::lease::deadline;
use crate::sync::locked;

/// The first pause before a departure is told again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How many departures may be told again and again in case that the lock is taken late. Beyond that leases end it.
const LATE_MAX: usize = 1000;

pub(super) struct Core {
    pub(super) members: Vec<Member>,
    pub(super) timer: Timer,
    pub(super) chance: Chance,
    pub(super) guess: Guess,
    pub(super) notices: NoticeBoard,
    /// What this client's channel on every server is called.
    pub(super) channel: Arc<str>,
    /// The longest lease that this store grants.
    pub(super) longest: Duration,
    /// Whether what is asked by one way is carried out in that order.
    pub(super) in_order: bool,
    /// Where everything runs that nobody waits for.
    pub(super) home: Handle,
    /// Where nobody was met of late.
    pub(super) quiet: Quiet,
    pub(super) waiting: Waiting,
    /// Which servers are being admitted.
    pub(super) admitting: Vec<AtomicBool>,
    ours: Mutex<BTreeMap<EntryId, Ours>>,
    /// How many departures are being told again in case that the lock is taken late.
    late: Semaphore,
}

/// A lock of this client, from when it is first asked for until it is given up.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    pub(super) shared: bool,
    pub(super) ttl: Duration,
    pub(super) note: crate::backend::Note,
    pub(super) token: u64,
    /// Which servers were ever asked for it.
    pub(super) asked: Vec<bool>,
    /// For each server, how many requests to grant the lock are under way or have an unknown outcome.
    pub(super) open: Vec<u32>,
    /// For each server, whether it is unknown of one of them for good.
    pub(super) unknown: Vec<bool>,
    /// Whether it is asked for in few words, which no bar refuses.
    pub(super) briefly: bool,
    /// Whether anything was changed of it since it was set: its lease was extended, or its token committed.
    pub(super) touched: bool,
    /// By which way it was asked for, if it was one; and whether it is given up by another.
    pub(super) way: Option<WayId>,
    pub(super) elsewhere: Arc<AtomicBool>,
}

impl Core {
    pub(super) fn new(
        members: Vec<Member>,
        timer: Timer,
        chance: Chance,
        channel: &str,
        longest: Duration,
        home: Handle,
    ) -> Self {
        let guess = Guess::new(timer.clock().clone());
        let (notices, waiting, ours) = (NoticeBoard::new(), Waiting::default(), Mutex::default());
        let admitting = members.iter().map(|_| AtomicBool::new(false)).collect();
        let channel = channel.into();
        let (quiet, late, in_order) = (Quiet::default(), Semaphore::new(LATE_MAX), true);
        Self {
            members,
            timer,
            chance,
            guess,
            notices,
            channel,
            longest,
            in_order,
            home,
            quiet,
            waiting,
            admitting,
            ours,
            late,
        }
    }

    /// How many servers are a majority.
    pub(super) fn majority(&self) -> usize {
        quorum::majority(self.members.len())
    }

    /// Which servers to ask: all but those that failed a moment ago, unless nothing can be had without these.
    pub(super) fn worth_asking(&self) -> Vec<bool> {
        let mut worth_asking: Vec<bool> = self.members.iter().map(Member::is_worth_asking).collect();
        if worth_asking.iter().filter(|asked| **asked).count() < self.majority() {
            worth_asking.fill(true);
        }
        worth_asking
    }

    /// Does that in the background.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.home.spawn(work));
    }

    /// From now on that lock is asked for.
    pub(super) fn remember(&self, entry: EntryId, ours: Ours) {
        locked(&self.ours).insert(entry, ours);
    }

    pub(super) fn recall(&self, entry: EntryId) -> Option<Ours> {
        locked(&self.ours).get(&entry).cloned()
    }

    /// Changes what is known of a lock, unless it has been given up.
    pub(super) fn update(&self, entry: EntryId, change: impl FnOnce(&mut Ours)) -> bool {
        locked(&self.ours).get_mut(&entry).map(change).is_some()
    }

    /// The lock is given up: nothing more is asked for it.
    pub(super) fn forget(&self, entry: EntryId) -> Option<Ours> {
        locked(&self.ours).remove(&entry)
    }

    /// Gives a lock up on one server. What that does not confirm, it is told again when it answers.
    pub(super) async fn give_back(
        self: Arc<Self>,
        server: usize,
        place: Place,
        bar: Option<Duration>,
        may_come: bool,
        ttl: Duration,
    ) {
        let member = &self.members[server];
        let dead_after = deadline::dead_after(self.timer.now(), ttl);
        let departure = Departure { place, bar, held: false, alone: None, may_come, dead_after };
        if !member.is_worth_asking() {
            return self.owe(server, departure);
        }
        let reply = member.ask(self.release(&departure)).await;
        self.settle(server, departure, &reply);
    }

    /// A server was told of a departure, and said that.
    pub(super) fn settle(self: &Arc<Self>, server: usize, departure: Departure, reply: &Result<Reply>) {
        match reply {
            Err(_) => self.owe(server, departure),
            Ok(Reply::NotDone) if departure.may_come => self.spawn(self.clone().take_out_late(server, departure)),
            Ok(_) => {}
        }
    }

    /// The lock was not there when it was given up, and may get there yet: a request in few words is not refused. A connection
    /// that broke may have left one with a server that was slow to read it.
    async fn take_out_late(self: Arc<Self>, server: usize, departure: Departure) {
        let Ok(_one_of_a_few) = self.late.try_acquire() else { return };
        let (release, mut pause) = (self.release(&departure), PAUSE);
        loop {
            self.timer.sleep(self.chance.about(pause)).await;
            if self.timer.now() >= departure.dead_after {
                return;
            }
            let member = &self.members[server];
            if member.is_worth_asking() && matches!(member.ask(release.clone()).await, Ok(Reply::Done)) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub(super) fn release(&self, departure: &Departure) -> Ask {
        let Departure { place, bar, held, alone, .. } = departure.clone();
        let (by, spelled, untouched) = (self.channel.clone(), Spelled::default(), alone.unwrap_or_default());
        let alone = alone.is_some() && bar.is_none();
        Ask::Release(Arc::new(Release { place, bar, held, by, alone, untouched, spelled }))
    }

    /// Sees to it that a server learns of a departure as soon as it can be told.
    pub(super) fn owe(self: &Arc<Self>, server: usize, departure: Departure) {
        if self.members[server].owe(departure) {
            self.spawn(self.clone().pay(server));
        }
    }

    async fn pay(self: Arc<Self>, server: usize) {
        let member = &self.members[server];
        let mut pause = PAUSE;
        self.timer.sleep(self.chance.about(pause)).await;
        while let Some(departure) = member.next_owed() {
            match member.ask(self.release(&departure)).await {
                Err(_) => member.still_owe(departure),
                reply => {
                    self.settle(server, departure, &reply);
                    pause = PAUSE;
                    continue;
                }
            }
            self.timer.sleep(self.chance.about(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
