//! Waiting for what is in the way, and hearing of what happens to our own entries.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use futures_util::future::{Either, join, select};

use crate::backend::etcd::core::Core;
use crate::backend::etcd::hub::{Heard, Range as Watched};
use crate::backend::etcd::line::{Blocker, Stand};
use crate::backend::etcd::message::{Range, Ranged};
use crate::backend::etcd::names;
use crate::backend::etcd::roster::Own;
use crate::backend::etcd::verbs::{RANGE, gone};
use crate::backend::{EntryId, Place, Standing};
use crate::clock::Moment;
use crate::error::Result;

/// The pause after nobody could tell where an entry stands.
const PAUSE: Duration = Duration::from_millis(100);

/// How often an entry is looked at that cannot be watched.
const LOOKS_IN_A_TTL: u32 = 3;

/// Where an entry of ours was seen to stand.
struct Looked {
    stand: Stand,
    revision: i64,
    /// When that was asked.
    asked_at: Moment,
}

impl Core {
    /// Resolves when our standing may differ. Then it is looked at: our own entry may have gone as well.
    pub(super) async fn changed(self: &Arc<Self>, place: &Place) -> Result<Option<Standing>> {
        loop {
            let Some(own) = self.roster.get(place.entry) else { return Ok(Some(gone())) };
            self.watch_now(&own);
            let mut looked = None;
            if let Some((blocker, revision)) = &own.waits {
                match select(pin!(own.fate.gone()), pin!(self.out_of_the_way(&own, blocker, *revision))).await {
                    Either::Left(_) => return Ok(Some(gone())),
                    Either::Right((waited, _)) => looked = waited?,
                }
            }
            let Looked { stand, revision, asked_at } = match looked {
                Some(looked) => looked,
                None => self.look_from_here(&own).await?,
            };
            match self.standing(&own, &stand, revision, asked_at) {
                Standing::Waiting { .. } => {}
                standing => return Ok(Some(standing)),
            }
        }
    }

    /// Looks until it is told: whoever waits would hear of nothing else until its next look, which may be far off.
    async fn look_from_here(self: &Arc<Self>, own: &Own) -> Result<Looked> {
        let (core, own) = (self.clone(), own.clone());
        let looking = async move {
            loop {
                let asked_at = core.wire.timer.now();
                match core.look(&core.wire, &own, false).await {
                    Ok((stand, revision)) => return Ok(Looked { stand, revision, asked_at }),
                    Err(error) if error.is_passing() => core.wire.timer.sleep(PAUSE).await,
                    Err(error) => return Err(error),
                }
            }
        };
        self.io.run(looking).await
    }

    /// Resolves when nothing that we know of is in the way any more, with where we stand if that was looked at. One look if
    /// anything at all has happened in the store before the watch began.
    async fn out_of_the_way(self: &Arc<Self>, own: &Own, blocker: &Blocker, revision: i64) -> Result<Option<Looked>> {
        let (key, end) = match blocker {
            Blocker::Entry(key) => (key.clone(), Vec::new()),
            Blocker::Weights { .. } => {
                let line = names::line(&own.place.key);
                let end = names::behind(&line);
                (line, end)
            }
        };
        let mut blocker = blocker.clone();
        // What is told begins where it was seen, or else it is looked for again: should another entry come to its key at once,
        // the departure is noticed all the same.
        let range = Watched { key, end, departures_only: true };
        let (_watching, mut news) = self.hub.listen_from_now(range, revision + 1);
        while let Some(heard) = news.recv().await {
            match heard {
                Heard::Gone(key, _) if blocker.leaves(&key) => return Ok(None),
                Heard::Gone(..) | Heard::Put(_) => {}
                Heard::Late => {
                    let looked = self.look_from_here(own).await?;
                    match &looked.stand {
                        Stand::Waiting { blocker: same @ Blocker::Entry(_), .. } if *same == blocker => {}
                        // What has left by then is not among these, so that it does no harm to hear of it again.
                        Stand::Waiting { blocker: rest @ Blocker::Weights { .. }, .. } => blocker = rest.clone(),
                        _ => return Ok(Some(looked)),
                    }
                }
                Heard::Gap => return Ok(None),
                Heard::Broken(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Watches an entry of ours from where it was made, unless it is being watched.
    pub(super) fn watch_now(self: &Arc<Self>, own: &Own) {
        if let Some(ticket) = own.ticket
            && !own.fate.watched.swap(true, AcqRel)
        {
            self.watch_from(own, ticket + 1);
        }
    }

    /// Hears that an entry of ours is gone or wanted, from that revision on.
    fn watch_from(self: &Arc<Self>, own: &Own, from: i64) {
        let entry = own.place.entry;
        let watch = |key: Vec<u8>, heard: fn(&Arc<Self>, EntryId, Heard)| {
            let core = Arc::downgrade(self);
            let sink = move |news| {
                if let Some(core) = core.upgrade() {
                    heard(&core, entry, news);
                }
            };
            self.hub.watch(Watched { key, end: Vec::new(), departures_only: false }, from, Arc::new(sink))
        };
        let own_key = watch(own.written.key.clone(), |core, entry, news| match news {
            Heard::Gone(..) => core.roster.is_gone(entry),
            Heard::Late | Heard::Gap | Heard::Broken(_) => {
                let missed = core.clone();
                core.io.spawn(async move { missed.look_after(entry, matches!(news, Heard::Broken(_))).await });
            }
            Heard::Put(_) => {}
        });
        let wish = watch(names::wish(&own.place.key, entry), |core, entry, news| {
            if let Heard::Put(_) = news {
                core.roster.is_wanted(entry);
            }
        });
        self.roster.watch(entry, [own_key, wish]);
    }

    /// A watch has missed what happened to an entry of ours: looks what has become of it, and watches it from there. One that
    /// cannot be watched is looked at now and then.
    async fn look_after(self: &Arc<Self>, entry: EntryId, mut pauses: bool) {
        while let Some(own) = self.roster.get(entry) {
            if pauses {
                self.wire.timer.sleep(own.session.ttl / LOOKS_IN_A_TTL).await;
            }
            pauses = true;
            let wish = Range { key: names::wish(&own.place.key, entry), ..Range::default() };
            let (looked, wish) =
                join(self.look(&self.wire, &own, false), self.wire.read::<_, Ranged>(RANGE, wish)).await;
            if wish.is_ok_and(|wish| wish.count > 0) {
                self.roster.is_wanted(entry);
            }
            match looked {
                Ok((Stand::Gone, _)) => return self.roster.is_gone(entry),
                Ok((_, revision)) => return self.watch_from(&own, revision + 1),
                Err(error) => {
                    tracing::debug!(target: "leasehold::etcd", key = %own.place.key, %error, "an entry is not watched");
                }
            }
        }
    }
}
