//! Looks after the entries that a client has: has itself told when one of them goes or is wanted, takes out what is to go and
//! what nobody renews, and keeps a session that has none.

use std::pin::pin;
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::mpsc;

use crate::backend::EntryId;
use crate::backend::Place;
use crate::backend::zookeeper::core::Core;
use crate::backend::zookeeper::request::{Ask, Change, Event, code};
use crate::backend::zookeeper::session::Seat;
use crate::clock::{Moment, Timer};

/// How long an entry is left alone before its node is watched: most locks are given back sooner, and need no request for it.
const WATCHED_AFTER: Duration = Duration::from_millis(50);

/// How often it is looked whether an entry's time is over, while there is any.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Goes on for as long as the client is there.
pub(super) async fn care(core: Weak<Core>, mut events: mpsc::UnboundedReceiver<Event>, timer: Timer) {
    let (mut watch_at, mut look_at) = (Moment::FAR, timer.now());
    loop {
        let Some(this) = core.upgrade() else { return };
        let woken = {
            let (event, news) = (pin!(events.recv()), pin!(this.entries.news.notified()));
            let due = pin!(timer.sleep_until(watch_at.min(look_at)));
            let told = select(event, news);
            match select(told, due).await {
                Either::Left((Either::Left((event, _)), _)) => Woken::Event(event),
                Either::Left((Either::Right(_), _)) => Woken::News,
                Either::Right(_) => Woken::Due,
            }
        };
        let now = timer.now();
        match woken {
            Woken::Event(None) => return,
            Woken::Event(Some(event)) => this.heed_event(&event).await,
            Woken::News => {
                watch_at = watch_at.min(now.after(WATCHED_AFTER));
                look_at = look_at.min(now.after(LOOK_EVERY));
            }
            Woken::Due => {
                if watch_at <= now {
                    watch_at = Moment::FAR;
                    this.watch_own().await;
                }
                if look_at <= now {
                    look_at = this.look_around().await;
                }
            }
        }
    }
}

enum Woken {
    Event(Option<Event>),
    /// There are entries to look after that were not there before, or there is a new connection.
    News,
    Due,
}

impl Core {
    async fn heed_event(&self, event: &Event) {
        let Some(id) = self.entries.at(&event.path) else { return };
        match event.change {
            Change::Deleted => self.lost(id),
            Change::Data => {
                if let Some(seat) = self.session.seat_now() {
                    self.watch(&seat, &[(id, event.path.as_str().into())]).await;
                }
            }
            Change::Created | Change::Other => {}
        }
    }

    /// Has itself told of every entry that nobody watches yet, and takes out those that are to go. One trip for all, and one
    /// for each of those.
    async fn watch_own(&self) {
        let Some(seat) = self.session.seat_now() else { return };
        self.watch(&seat, &self.entries.take_unwatched()).await;
        self.take_out(self.entries.leaving()).await;
    }

    async fn watch(&self, seat: &Seat, own: &[(EntryId, std::sync::Arc<str>)]) {
        if own.is_empty() {
            return;
        }
        let asks: Vec<Ask> = own.iter().map(|(_, path)| Ask::data(path, true)).collect();
        for ((id, _), answer) in own.iter().zip(self.session.ask(seat, &asks).await) {
            match answer {
                Ok(body) => {
                    // Before anybody may rely on it: an event may follow at once.
                    self.entries.change(*id, |entry| entry.watched = !seat.link.is_broken());
                    let _ = self.heed(*id, &body); // a note that makes no sense asks for nothing
                }
                Err(trouble) if trouble.is(code::NO_NODE) => self.lost(*id),
                Err(_) => {} // a new connection has them all watched again
            }
        }
    }

    /// Sees to what is overdue, and says when to look again.
    async fn look_around(&self) -> Moment {
        let now = self.session.now();
        let Some(seat) = self.session.seat_now() else { return Moment::FAR };
        if !self.entries.is_empty() {
            let overdue = self.entries.overdue(now);
            for id in &overdue {
                tracing::debug!(target: "leasehold::zookeeper", entry = %id, "nobody renews it: taken out");
            }
            self.take_out(overdue).await;
            return now.after(LOOK_EVERY);
        }
        // Nothing hangs on it; the next lock is some trips cheaper with a session than without.
        let ping_at = self.session.last_sent().after(seat.timeout / 3);
        if ping_at <= now {
            self.session.ask(&seat, &[Ask::ping()]).await;
            return now.after(seat.timeout / 3);
        }
        ping_at
    }

    /// Takes entries out that nobody should have any more.
    async fn take_out(&self, ids: Vec<EntryId>) {
        for id in ids {
            let Some(entry) = self.entries.find(id) else { continue };
            // What fails is tried again at the next look.
            let _ = self.leave(&Place { key: entry.key, entry: id }).await;
        }
    }
}
