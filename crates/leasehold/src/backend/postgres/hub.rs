//! Where everything arrives that the server says by itself, and who waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, broadcast};

use super::reply;
use crate::backend::notices::NoticeBoard;
use crate::backend::sql::waiters::{News, Waiters};
use crate::backend::{EntryId, KeyView, Notice};
use crate::fence::Ticket;
use crate::key::{Key, Namespace};
use crate::sync::{Mutex, locked};

/// How many messages a slow follower may fall behind before it has to look anew.
const BACKLOG: usize = 1024;

/// What a follower of a key hears.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    /// The answer to that watch: who holds it at first.
    Began(u64, KeyView),
    /// Who holds it now.
    Changed(KeyView),
    /// Messages may have been missed, or did not fit.
    Gap,
}

#[derive(Debug)]
pub(super) struct Hub {
    /// By which others address us: 128 random bits.
    pub(super) client: String,
    pub(super) waiters: Arc<Waiters>,
    pub(super) notices: NoticeBoard,
    followed: Mutex<HashMap<Key, Topic>>,
    /// Whether the server can tell us anything.
    hears: AtomicBool,
    /// Rings when a probe has come back.
    probed: Notify,
}

#[derive(Debug)]
struct Topic {
    followers: usize,
    news: broadcast::Sender<Heard>,
}

impl Hub {
    pub(super) fn new() -> Self {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system hands out random bytes");
        Self {
            client: format!("{:032x}", u128::from_ne_bytes(id)),
            waiters: Arc::default(),
            notices: NoticeBoard::new(),
            followed: Mutex::default(),
            hears: AtomicBool::new(false),
            probed: Notify::new(),
        }
    }

    pub(super) fn channel(&self) -> String {
        format!("leasehold_{}", self.client)
    }

    pub(super) fn hears(&self) -> bool {
        self.hears.load(Relaxed)
    }

    pub(super) fn set_hears(&self, hears: bool) {
        self.hears.store(hears, Relaxed);
    }

    /// Resolves when a probe comes back that is sent from now on.
    pub(super) fn probe_returns(&self) -> Notified<'_> {
        self.probed.notified()
    }

    /// Called by the listening connection with whatever it is told. Does not block. What is not from us is ignored.
    pub(super) fn hear(&self, channel: &str, message: &str) {
        if channel != self.channel() {
            return;
        }
        let (head, line) = message.split_once('\n').unwrap_or((message, ""));
        let words: Vec<&str> = head.split(' ').collect();
        let entry = |word: &str| word.parse::<EntryId>().ok();
        match *words.as_slice() {
            ["p"] => self.probed.notify_waiters(),
            ["g", id, ticket] => {
                if let (Some(entry), Ok(ticket)) = (entry(id), ticket.parse()) {
                    self.waiters.tell(entry, News::Granted(Ticket(ticket)));
                }
            }
            ["x", id] => {
                if let Some(entry) = entry(id) {
                    self.notices.post(Notice::Gone(entry));
                    self.waiters.tell(entry, News::Gone);
                }
            }
            ["n", id] => {
                if let Some(entry) = entry(id) {
                    self.waiters.tell(entry, News::LookAgain);
                }
            }
            ["y", id] => {
                if let Some(entry) = entry(id) {
                    self.notices.post(Notice::YieldAsked(entry));
                }
            }
            ["s", namespace, name] => {
                self.spread(namespace, name, |key| reply::held(key, line).map(Heard::Changed).ok());
            }
            ["b", watch, namespace, name] => self.spread(namespace, name, |key| {
                let view = reply::held(key, line).ok()?;
                Some(Heard::Began(watch.parse().ok()?, view))
            }),
            ["l", namespace, name] => self.spread(namespace, name, |_| Some(Heard::Gap)),
            _ => {}
        }
    }

    fn spread(&self, namespace: &str, name: &str, heard: impl FnOnce(&Key) -> Option<Heard>) {
        let key = namespace.strip_prefix('n').and_then(|namespace| Namespace::new(namespace).ok());
        let key = key.zip(reply::unhexed(name).ok()).and_then(|(namespace, name)| Key::new(&namespace, name).ok());
        let Some(key) = key else { return };
        if let Some(topic) = locked(&self.followed).get(&key) {
            let _ = topic.news.send(heard(&key).unwrap_or(Heard::Gap)); // the last follower may just have gone
        }
    }

    /// Messages may have been missed: everybody looks for themselves.
    pub(super) fn let_all_look(&self) {
        self.waiters.let_all_look();
        self.let_followers_look();
    }

    pub(super) fn let_followers_look(&self) {
        for topic in locked(&self.followed).values() {
            let _ = topic.news.send(Heard::Gap);
        }
    }

    pub(super) fn keys_followed(&self) -> usize {
        locked(&self.followed).len()
    }

    pub(super) fn follows(&self, key: &Key) -> bool {
        locked(&self.followed).contains_key(key)
    }

    pub(super) fn follow(self: &Arc<Self>, key: &Key) -> broadcast::Receiver<Heard> {
        let mut followed = locked(&self.followed);
        let new = || Topic { followers: 0, news: broadcast::channel(BACKLOG).0 };
        let topic = followed.entry(key.clone()).or_insert_with(new);
        topic.followers += 1;
        topic.news.subscribe()
    }

    /// True if nobody follows that key any more.
    pub(super) fn part(&self, key: &Key) -> bool {
        let mut followed = locked(&self.followed);
        let Some(topic) = followed.get_mut(key) else { return false };
        topic.followers -= 1;
        let is_last = topic.followers == 0;
        if is_last {
            followed.remove(key);
        }
        is_last
    }
}
