//! All watches of a client on one stream, which is opened again elsewhere when it breaks or falls silent, and goes on where
//! it was.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{Notify, mpsc};

use crate::backend::etcd::grpc::Streaming;
use crate::backend::etcd::message::{
    Empty, EventKind, Filter, KeyValue, Watch, WatchAct, WatchCancel, WatchCreate, Watched,
};
use crate::backend::etcd::wire::{Link, Wire};
use crate::error::{Error, ErrorKind};
use crate::sync::locked;

const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// The pause after no stream could be opened.
const PAUSE: Duration = Duration::from_millis(100);

/// How many times as long as for an answer a stream may be silent, though it was asked to say something.
const SILENCE: u32 = 2;
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// What is heard of a watched range.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    /// A key was written.
    Put(KeyValue),
    /// A key is gone, since that revision.
    Gone(Vec<u8>, i64),
    /// The server has forgotten what happened in between: look again.
    Gap,
    /// What happened before this is not told, and something has: look again, and go on listening.
    Late,
    /// It cannot be watched.
    Broken(Error),
}

type Sink = Arc<dyn Fn(Heard) + Send + Sync>;

#[derive(Default)]
pub(super) struct Hub {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Default)]
struct State {
    last_id: i64,
    watchers: HashMap<i64, Watcher>,
    /// The way to the server, while a stream is open.
    outbox: Option<mpsc::UnboundedSender<Watch>>,
}

struct Watcher {
    range: Range,
    /// The first revision that has not been heard of.
    next: i64,
    /// Whether the stream shall not tell what has happened already.
    from_now: bool,
    sink: Sink,
}

/// What is watched.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) key: Vec<u8>,
    /// Empty for that key alone.
    pub(super) end: Vec<u8>,
    pub(super) departures_only: bool,
}

/// A watch, which ends when this is dropped.
pub(super) struct Watching {
    hub: Weak<Hub>,
    id: i64,
}

impl Hub {
    /// Hears of everything that happens in that range from that revision on.
    pub(super) fn watch(self: &Arc<Self>, range: Range, from: i64, sink: Sink) -> Watching {
        self.add(Watcher { range, next: from, from_now: false, sink })
    }

    fn add(self: &Arc<Self>, watcher: Watcher) -> Watching {
        let mut state = locked(&self.state);
        state.last_id += 1;
        let id = state.last_id;
        if let Some(outbox) = &state.outbox {
            let _ = outbox.send(watcher.create(id)); // if the stream has just ended, the next one is told
        }
        state.watchers.insert(id, watcher);
        drop(state);
        self.woken.notify_one();
        Watching { hub: Arc::downgrade(self), id }
    }

    /// The same, to be read one after the other.
    pub(super) fn listen(self: &Arc<Self>, range: Range, from: i64) -> (Watching, mpsc::UnboundedReceiver<Heard>) {
        let (sink, receiver) = channel();
        (self.watch(range, from, sink), receiver)
    }

    /// The same from now on, and [`Heard::Late`] if anything has happened in the store meanwhile. A server has a watch that begins
    /// in the past catch up every 100 ms, and tells it nothing sooner; somebody else writes something all the time.
    pub(super) fn listen_from_now(
        self: &Arc<Self>,
        range: Range,
        from: i64,
    ) -> (Watching, mpsc::UnboundedReceiver<Heard>) {
        let (sink, receiver) = channel();
        (self.add(Watcher { range, next: from, from_now: true, sink }), receiver)
    }

    /// Keeps a stream open while anything is watched. Ends with the runtime.
    pub(super) async fn run(self: Arc<Self>, wire: Arc<Wire>) {
        loop {
            self.until_needed().await;
            let Ok(link) = wire.link().await else {
                wire.timer.sleep(PAUSE).await;
                continue;
            };
            let (outbox, queries) = mpsc::unbounded_channel();
            self.open(outbox);
            match wire.bounded(&link, link.stream(WATCH, queries)).await {
                Ok(Ok(replies)) => self.follow(&wire, &link, replies).await,
                _ => wire.timer.sleep(PAUSE).await,
            }
            locked(&self.state).outbox = None;
            wire.replace(&link);
        }
    }

    async fn until_needed(&self) {
        loop {
            let woken = self.woken.notified();
            if !locked(&self.state).watchers.is_empty() {
                return;
            }
            woken.await;
        }
    }

    /// Tells a new stream what is watched, from where each watch was.
    fn open(&self, outbox: mpsc::UnboundedSender<Watch>) {
        let mut state = locked(&self.state);
        for (id, watcher) in &state.watchers {
            let _ = outbox.send(watcher.create(*id)); // we have its receiver
        }
        state.outbox = Some(outbox);
    }

    /// Reads until the stream breaks, its connection is given up, or nothing is heard though something should be.
    async fn follow(&self, wire: &Wire, link: &Link, mut replies: Streaming<Watch, Watched>) {
        let silence = (wire.settings.patience * SILENCE).max(SILENCE_MIN);
        let mut asked = false;
        loop {
            let reply = {
                let reply = std::pin::pin!(wire.timer.within(silence, replies.message()));
                match select(reply, std::pin::pin!(wire.replaced(link))).await {
                    Either::Left((reply, _)) => reply,
                    Either::Right(_) => return,
                }
            };
            match reply {
                Some(Ok(Some(reply))) => {
                    asked = false;
                    self.hear(reply);
                }
                Some(Ok(None) | Err(_)) => return,
                None if asked => return,
                None => {
                    asked = true;
                    if let Some(outbox) = &locked(&self.state).outbox {
                        let progress = Watch { act: Some(WatchAct::Progress(Empty {})) };
                        let _ = outbox.send(progress); // if the stream has ended, that is read next
                    }
                }
            }
        }
    }

    fn hear(&self, reply: Watched) {
        let (sink, news) = {
            let mut state = locked(&self.state);
            let Some(watcher) = state.watchers.get_mut(&reply.watch_id) else { return };
            let sink = watcher.sink.clone();
            let mut news = Vec::new();
            // A member that lags behind begins earlier, and nothing is missed. One that does not say where it begins may.
            if reply.created && std::mem::take(&mut watcher.from_now) {
                let begun = reply.header.as_ref().map_or(0, |header| header.revision);
                if begun == 0 || begun >= watcher.next {
                    watcher.next = watcher.next.max(begun + 1);
                    news.push(Heard::Late);
                }
            }
            for event in reply.events {
                let Some(kv) = event.kv else { continue };
                // One that was told again by a new stream is old news.
                if kv.mod_revision < watcher.next {
                    continue;
                }
                news.push(match EventKind::try_from(event.kind) {
                    Ok(EventKind::Put) => Heard::Put(kv),
                    Ok(EventKind::Delete) => Heard::Gone(kv.key, kv.mod_revision),
                    Err(_) => continue,
                });
            }
            let last = news.last().map(|heard| match heard {
                Heard::Put(kv) => kv.mod_revision,
                Heard::Gone(_, revision) => *revision,
                Heard::Late | Heard::Gap | Heard::Broken(_) => 0,
            });
            watcher.next = last.map_or(watcher.next, |last| watcher.next.max(last + 1));
            if reply.canceled {
                state.watchers.remove(&reply.watch_id);
                news.push(match reply.compact_revision {
                    0 => Heard::Broken(Error::new(ErrorKind::Unusable, format!("no watch: {}", reply.cancel_reason))),
                    _ => Heard::Gap,
                });
            }
            (sink, news)
        };
        news.into_iter().for_each(|heard| sink(heard));
    }

    fn forget(&self, id: i64) {
        let mut state = locked(&self.state);
        if state.watchers.remove(&id).is_some()
            && let Some(outbox) = &state.outbox
        {
            let _ = outbox.send(Watch { act: Some(WatchAct::Cancel(WatchCancel { watch_id: id })) });
        }
    }
}

/// News that are read one after the other.
fn channel() -> (Sink, mpsc::UnboundedReceiver<Heard>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(move |heard| drop(sender.send(heard))), receiver) // nobody may be left to hear it
}

impl Watcher {
    fn create(&self, id: i64) -> Watch {
        let Range { key, end, departures_only } = self.range.clone();
        let start_revision = if self.from_now { 0 } else { self.next };
        let filters = if departures_only { vec![Filter::NoPut.into()] } else { Vec::new() };
        let create = WatchCreate { key, range_end: end, start_revision, filters, watch_id: id };
        Watch { act: Some(WatchAct::Create(create)) }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.forget(self.id);
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watching({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::etcd::message::{Event, Header};

    const KEY: &[u8] = b"k";

    /// A watch of what happens from revision 5 on, of which the server says that it begins behind that revision.
    fn begun_behind(revision: i64) -> (Arc<Hub>, Watching, mpsc::UnboundedReceiver<Heard>) {
        let hub = Arc::new(Hub::default());
        let range = Range { key: KEY.into(), end: Vec::new(), departures_only: true };
        let (watching, news) = hub.listen_from_now(range, 5);
        assert_eq!(start_of(&hub, &watching), 0);
        let header = Some(Header { revision, ..Header::default() });
        hub.hear(Watched { header, watch_id: watching.id, created: true, ..Watched::default() });
        (hub, watching, news)
    }

    /// Where a new stream would begin.
    fn start_of(hub: &Hub, watching: &Watching) -> i64 {
        match locked(&hub.state).watchers[&watching.id].create(watching.id).act {
            Some(WatchAct::Create(create)) => create.start_revision,
            _ => panic!("it makes no watch"),
        }
    }

    fn departure(hub: &Hub, watching: &Watching, revision: i64) {
        let kv = Some(KeyValue { key: KEY.into(), mod_revision: revision, ..KeyValue::default() });
        let events = vec![Event { kind: EventKind::Delete.into(), kv }];
        hub.hear(Watched { watch_id: watching.id, events, ..Watched::default() });
    }

    #[test]
    fn a_watch_from_now_on_says_that_it_is_late_and_goes_on_from_there_on_another_stream() {
        let (hub, watching, mut news) = begun_behind(7);
        assert!(matches!(news.try_recv(), Ok(Heard::Late)));
        assert_eq!(start_of(&hub, &watching), 8);
        departure(&hub, &watching, 9);
        assert!(matches!(news.try_recv(), Ok(Heard::Gone(_, 9))));
        assert_eq!(start_of(&hub, &watching), 10);
    }

    #[test]
    fn a_watch_from_now_on_at_a_member_that_lags_behind_misses_nothing_and_hears_no_old_news() {
        for begun in [2, 4] {
            let (hub, watching, mut news) = begun_behind(begun);
            departure(&hub, &watching, 4);
            assert!(news.try_recv().is_err(), "that was before");
            assert_eq!(start_of(&hub, &watching), 5);
            departure(&hub, &watching, 5);
            assert!(matches!(news.try_recv(), Ok(Heard::Gone(_, 5))));
        }
    }
}
