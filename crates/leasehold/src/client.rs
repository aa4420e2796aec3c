//! What the guards and primitives of one [`Locks`](crate::Locks) share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Backend, Capabilities, KeyView, Lease, Note, Notice, Place, Query, Terms};
use crate::chance::Chance;
use crate::claim::Claim;
use crate::clock::{Moment, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Key, Namespace};
use crate::lease::deadline;
use crate::lease::driver::Driver;
use crate::lease::hold::Hold;
use crate::lease::keeper::Keeper;
use crate::lease::parting::{Departing, Entering, Parting};
use crate::lease::relay::Relay;

pub(crate) struct Client {
    /// Tells it apart from every other client of this process.
    pub(crate) number: u64,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Arc<str>,
    pub(crate) capabilities: Capabilities,
    pub(crate) namespace: Namespace,
    pub(crate) note: Note,
    pub(crate) terms: Terms,
    pub(crate) timer: Timer,
    pub(crate) chance: Arc<Chance>,
    pub(crate) parting: Parting,
    pub(crate) relay: Relay,
    keeper: Keeper,
    stop_keeper: Arc<Notify>,
    closed: AtomicBool,
}

pub(crate) struct Settings {
    pub(crate) namespace: Namespace,
    pub(crate) note: Note,
    pub(crate) ttl: Duration,
    pub(crate) seed: Option<u64>,
}

impl Client {
    pub(crate) fn start(driver: Driver, backend: Arc<dyn Backend>, settings: Settings) -> Arc<Self> {
        let timer = driver.timer();
        let (clock, attempt_limit) = (timer.clock().clone(), deadline::attempt_limit(settings.ttl));
        let chance = Arc::new(Chance::new(settings.seed));
        let (parting, departures) = Parting::new();
        let (keeper, stop_keeper) = (Keeper::new(), Arc::new(Notify::new()));
        let keeping = {
            let (backend, clock, stop) = (backend.clone(), clock.clone(), stop_keeper.clone());
            // Followed before the first lock can be taken, so that none is noticed by nobody.
            let notices = backend.notices();
            keeper.clone().run(backend, notices, clock, chance.clone(), async move { stop.notified().await })
        };
        let departing = departures.run(backend.clone(), clock, attempt_limit);
        let work = Box::pin(async {
            futures_util::future::join(keeping, departing).await;
        });
        driver.run(work, attempt_limit / 2);
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: CLIENTS.fetch_add(1, Ordering::Relaxed),
            store: backend.to_string().into(),
            capabilities: backend.capabilities(),
            backend,
            namespace: settings.namespace,
            note: settings.note,
            terms: Terms { holding: settings.ttl, waiting: deadline::waiting_ttl(settings.ttl) },
            timer,
            chance,
            parting,
            relay: Relay::default(),
            keeper,
            stop_keeper,
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn key(&self, name: impl AsRef<[u8]>) -> Result<Key> {
        Key::new(&self.namespace, name)
    }

    /// Refuses what this store cannot do, before anything is sent.
    pub(crate) fn supports(&self, claim: Claim, key: &Key) -> Result<()> {
        let (able, what) = match claim {
            Claim::Exclusive => return Ok(()),
            Claim::Shared => (self.capabilities.shared, "shared claims"),
            Claim::Permits { .. } => (self.capabilities.counted, "counted claims"),
        };
        if able { Ok(()) } else { Err(self.unsupported(what, key)) }
    }

    pub(crate) fn unsupported(&self, what: &str, key: &Key) -> Error {
        Error::new(ErrorKind::Unsupported, format!("this store cannot honour {what}")).at(key).on(&self.store)
    }

    /// Refuses to take locks that nobody would keep.
    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        let why = if self.closed.load(Ordering::Acquire) {
            "these locks have been closed"
        } else if self.is_forked() {
            "these locks belong to the parent process: connect anew after a fork"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Closed, why).on(&self.store))
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether this is a copy in a child process, whose keeper thread stayed behind in the parent.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.note.pid
    }

    pub(crate) fn now(&self) -> Moment {
        self.timer.now()
    }

    /// How long to wait for one answer of the store.
    pub(crate) fn attempt_limit(&self) -> Duration {
        deadline::attempt_limit(self.terms.holding)
    }

    /// One request to the store, bounded in time, with an error that says where and what.
    pub(crate) async fn ask<T>(
        &self,
        doing: &'static str,
        key: &Key,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answer = self.timer.within(self.attempt_limit(), request).await;
        answer.unwrap_or_else(|| Err(self.no_answer())).map_err(|error| self.place_error(error, doing, key))
    }

    /// Who holds the key and who waits for it; `None` if nobody does. One request.
    pub(crate) async fn look_at(&self, key: &Key) -> Result<Option<KeyView>> {
        let query = Query { namespace: key.namespace().clone(), key: Some(key.clone()), after: None, keys_max: 1 };
        let page = self.ask("inspecting", key, self.backend.inspect(&query)).await?;
        Ok(page.items.into_iter().next())
    }

    pub(crate) fn no_answer(&self) -> Error {
        Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate()
    }

    pub(crate) fn place_error(&self, error: Error, doing: &'static str, key: &Key) -> Error {
        error.on(&self.store).while_doing(doing).at(key)
    }

    /// Believes in a lease that a request sent at `sent_at` was granted, and has it kept from now on.
    pub(crate) fn believe(&self, place: &Place, lease: &Lease, sent_at: Moment) -> Arc<Hold> {
        let hold = Arc::new(Hold::new(place.clone(), lease.ttl, deadline::believe_until(sent_at, lease.ttl)));
        self.keeper.keep(&hold, sent_at.after(deadline::renew_every(lease.ttl)));
        hold
    }

    /// Believes in an entry by the lease of the one before it, which is believed in until then.
    pub(crate) fn borrow(&self, hold: &Hold, until: Moment) {
        self.keeper.borrow(self.now(), hold, until);
    }

    /// Stops renewing; the entry itself stays where it is.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.keeper.forget(hold);
    }

    pub(crate) fn hear(&self, notice: Notice) {
        self.keeper.hear(self.now(), notice);
    }

    pub(crate) fn kept(&self) -> usize {
        self.keeper.kept()
    }

    /// Takes an entry out of its line in the background, once the request that is still under way has come to its end.
    /// Its lease cannot have begun later than now.
    pub(crate) fn part_from(&self, place: Place, entering: Option<Entering>, may_yet_appear: bool) {
        let dead_after = deadline::dead_after(self.now(), self.terms.holding);
        self.parting.leave(Departing { place, entering, may_yet_appear, dead_after });
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // No guard is left by now: each keeps its client alive. The thread ends when the last departure is done.
        self.stop_keeper.notify_one();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.store).field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
