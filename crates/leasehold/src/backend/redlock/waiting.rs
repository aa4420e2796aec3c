//! Waiting for a key without a line: whoever is refused is told when the key comes free, by any of the servers, and looks
//! again by itself if it is not told.
//!
//! One release wakes one waiter of this client, so that those who wait here do not get in each other's way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::redlock::core::Core;
use crate::backend::redlock::member::Member;
use crate::backend::redlock::node::freed_channel;
use crate::clock::Moment;
use crate::key::Key;
use crate::sync::locked;

/// How long a channel is listened on after the last waiter has gone: it may only be trying again.
const LINGER: Duration = Duration::from_secs(5);

/// The first who got in each other's way try again within this; it doubles each time.
const APART: Duration = Duration::from_millis(5);
const APART_DOUBLINGS_MAX: u32 = 7;

/// Keys whose last attempt here met another's. Beyond that many they are forgotten, and try again sooner.
const CLASHES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Waiting {
    topics: Mutex<BTreeMap<String, Topic>>,
    clashes: Mutex<BTreeMap<Key, u32>>,
}

/// A channel on which releases of one key are told.
#[derive(Debug, Default)]
struct Topic {
    waiters: VecDeque<oneshot::Sender<()>>,
    /// Nobody was waiting when the key came free: whoever comes next looks at once.
    spare: bool,
    /// Which servers tell us.
    heard_by: BTreeSet<usize>,
    /// Who left last, and which servers have said so.
    release: Option<(Vec<u8>, BTreeSet<usize>)>,
    last_used: Option<Moment>,
}

impl Topic {
    fn wake_one(&mut self) {
        while let Some(waiter) = self.waiters.pop_front() {
            if waiter.send(()).is_ok() {
                return;
            }
        }
        self.spare = true;
    }
}

impl Waiting {
    /// Who got in each other's way try again at different moments, ever further apart.
    fn clash(&self, key: &Key) -> Duration {
        let mut clashes = locked(&self.clashes);
        if clashes.len() >= CLASHES_MAX {
            clashes.clear();
        }
        let count = clashes.entry(key.clone()).or_default();
        *count += 1;
        APART * (1 << (*count).min(APART_DOUBLINGS_MAX))
    }

    fn no_clash(&self, key: &Key) {
        locked(&self.clashes).remove(key);
    }
}

impl Core {
    /// We got in somebody's way, and they in ours. Says how soon to try again: some moment that they hardly choose too.
    pub(super) fn clash(&self, key: &Key) -> Duration {
        let trip = self.members.iter().filter_map(Member::trip).max().unwrap_or_default();
        self.chance.up_to(self.waiting.clash(key).max(trip * 2)) + Duration::from_millis(1)
    }

    /// Whoever has the key has it alone.
    pub(super) fn no_clash(&self, key: &Key) {
        self.waiting.no_clash(key);
    }

    /// Resolves when the key may have come free.
    pub(super) async fn freed(&self, key: &Key) {
        let channel = freed_channel(key);
        let (woken, new) = {
            let mut topics = locked(&self.waiting.topics);
            let new = !topics.contains_key(&channel);
            let topic = topics.entry(channel.clone()).or_default();
            topic.last_used = None;
            if std::mem::take(&mut topic.spare) {
                return;
            }
            let (waker, woken) = oneshot::channel();
            topic.waiters.push_back(waker);
            (woken, new)
        };
        if new {
            self.members.iter().for_each(|member| member.node.listen(&channel));
        }
        let _ = woken.await;
    }

    /// A server says who left a key.
    pub(super) fn hear_release(self: &Arc<Self>, server: usize, channel: &str, who: &[u8]) {
        let needed = self.majority();
        let mut topics = locked(&self.waiting.topics);
        let Some(topic) = topics.get_mut(channel) else { return };
        let told = match &mut topic.release {
            Some((last, told)) if last == who => told,
            _ => &mut topic.release.insert((who.to_vec(), BTreeSet::new())).1,
        };
        if !told.insert(server) {
            return;
        }
        match told.len() {
            // Enough of them are free to be worth a try.
            count if count == needed => topic.wake_one(),
            // The others may be slow to say so, or not say it at all.
            1 => {
                let limit = self.members.iter().map(|member| member.limit(self.longest)).min().unwrap_or_default();
                let (core, channel, who) = (self.clone(), channel.to_owned(), who.to_vec());
                self.spawn(async move {
                    core.timer.sleep(limit).await;
                    if let Some(topic) = locked(&core.waiting.topics).get_mut(&channel)
                        && topic.release.as_ref().is_some_and(|(last, told)| *last == who && told.len() < needed)
                    {
                        topic.wake_one();
                    }
                });
            }
            _ => {}
        }
    }

    /// A server tells us of that channel from now on. What it said before was not heard.
    pub(super) fn hears(&self, server: usize, channel: &str) {
        if let Some(topic) = locked(&self.waiting.topics).get_mut(channel) {
            topic.heard_by.insert(server);
            if topic.heard_by.len() == self.majority() {
                topic.wake_one();
            }
        }
    }

    /// One who shares the key got in, so others may.
    pub(super) fn let_next_in(&self, key: &Key) {
        if let Some(topic) = locked(&self.waiting.topics).get_mut(&freed_channel(key))
            && !topic.waiters.is_empty()
        {
            topic.wake_one();
        }
    }

    /// Stops listening where nobody has waited for a while.
    pub(super) fn tidy_topics(&self) {
        let now = self.timer.now();
        let mut unused = Vec::new();
        locked(&self.waiting.topics).retain(|channel, topic| {
            topic.waiters.retain(|waiter| !waiter.is_closed());
            if !topic.waiters.is_empty() {
                topic.last_used = None;
                return true;
            }
            let used = now < topic.last_used.get_or_insert(now).after(LINGER);
            if !used {
                unused.push(channel.clone());
            }
            used
        });
        for channel in unused {
            self.members.iter().for_each(|member| member.node.unlisten(&channel));
        }
    }
}
