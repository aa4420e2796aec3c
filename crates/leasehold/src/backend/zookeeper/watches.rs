//! Who waits for news of which node. The server tells once of each node that was asked about; whoever is told asks again.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::backend::zookeeper::link::{Answer, Link};
use crate::backend::zookeeper::request::{Ask, Change, Event};
use crate::sync::locked;

/// Those who wait.
#[derive(Default)]
pub(super) struct Watches {
    ears: Mutex<HashMap<String, Vec<Arc<Heard>>>>,
    followers: Mutex<HashMap<String, Vec<Following>>>,
    last_follower: AtomicU64,
}

/// A follower's number, and where it hears.
type Following = (u64, mpsc::UnboundedSender<News>);

/// Hears of the first change of any of its nodes. Nothing is missed from when it is made.
pub(super) struct Ear<'a> {
    watches: &'a Watches,
    paths: Vec<String>,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    something: Notify,
    /// Whether one of the nodes is gone.
    deleted: AtomicBool,
}

/// A change in a folder, with what was read of the node right after it. Whoever reads only when it gets round to it may
/// find that the node is gone again.
#[derive(Clone)]
pub(super) struct News {
    pub(super) event: Event,
    pub(super) read: Option<Shared<oneshot::Receiver<Answer>>>,
}

/// Hears of every change in a folder. It ends where changes may be missing.
pub(super) struct Follower {
    watches: Arc<Watches>,
    folder: String,
    number: u64,
    pub(super) news: mpsc::UnboundedReceiver<News>,
}

impl Watches {
    pub(super) fn listen(&self, paths: Vec<String>) -> Ear<'_> {
        let heard = Arc::new(Heard::default());
        let mut ears = locked(&self.ears);
        for path in &paths {
            ears.entry(path.clone()).or_default().push(heard.clone());
        }
        drop(ears);
        Ear { watches: self, paths, heard }
    }

    pub(super) fn follow(self: &Arc<Self>, folder: &str) -> Follower {
        let (sender, news) = mpsc::unbounded_channel();
        let number = self.last_follower.fetch_add(1, Relaxed);
        locked(&self.followers).entry(folder.to_owned()).or_default().push((number, sender));
        Follower { watches: self.clone(), folder: folder.to_owned(), number, news }
    }

    pub(super) fn tell(&self, link: &Link, event: &Event) {
        for ear in locked(&self.ears).remove(&event.path).unwrap_or_default() {
            if event.change == Change::Deleted {
                ear.deleted.store(true, Release);
            }
            ear.something.notify_one();
        }
        let parent = event.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let followers = locked(&self.followers);
        let following: Vec<_> =
            [&*event.path, parent].iter().filter_map(|folder| followers.get(*folder)).flatten().collect();
        if following.is_empty() {
            return;
        }
        let reads = matches!(event.change, Change::Created | Change::Data);
        let read = reads.then(|| link.send(&[Ask::data(&event.path, false)]).remove(0).shared());
        for (_, follower) in following {
            let _ = follower.send(News { event: event.clone(), read: read.clone() }); // it is just going
        }
    }

    /// The connection is gone: whoever waits has to look, and whoever follows has missed something.
    pub(super) fn tell_all(&self) {
        for (_, ears) in std::mem::take(&mut *locked(&self.ears)) {
            ears.iter().for_each(|ear| ear.something.notify_one());
        }
        locked(&self.followers).clear();
    }
}

impl Ear<'_> {
    /// Resolves when there is news, with whether one of the nodes is gone for certain.
    pub(super) async fn heard(&self) -> bool {
        self.heard.something.notified().await;
        self.heard.deleted.load(Acquire)
    }
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        let mut ears = locked(&self.watches.ears);
        for path in &self.paths {
            let Some(others) = ears.get_mut(path) else { continue };
            others.retain(|ear| !Arc::ptr_eq(ear, &self.heard));
            if others.is_empty() {
                ears.remove(path);
            }
        }
    }
}

impl Follower {
    /// Whether nobody else follows that folder.
    pub(super) fn is_last(&self) -> bool {
        locked(&self.watches.followers).get(&self.folder).is_none_or(|all| all.len() <= 1)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followers = locked(&self.watches.followers);
        let Some(others) = followers.get_mut(&self.folder) else { return };
        others.retain(|(number, _)| *number != self.number);
        if others.is_empty() {
            followers.remove(&self.folder);
        }
    }
}
