//! Looks at lines that many join at once.
//!
//! Whoever joins has to see who is there. A list is as long as the line, so that ten thousand who join one by one are told of
//! fifty million. Of those who join while somebody else looks, all are satisfied by the next look: it is sent when the one
//! before it was answered, and requests on a connection are carried out in the order in which they were sent. Between two
//! connections there is no order, so that nothing is shared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio::sync::oneshot;

use crate::backend::zookeeper::line::Line;
use crate::error::Result;
use crate::sync::locked;

/// Tells a connection from all others that there are.
pub(super) type Connection = usize;

/// A look that several wait for.
pub(super) type Look = Shared<BoxFuture<'static, Result<Result<Arc<Line>>>>>;

/// The folders that somebody looks into.
#[derive(Clone, Default)]
pub(super) struct Looks(Arc<Mutex<HashMap<String, Folder>>>);

struct Folder {
    /// By which connection.
    by: Connection,
    /// Resolves when the look is answered that is under way.
    answered: Shared<oneshot::Receiver<()>>,
    /// The look behind it, which has not been sent.
    next: Option<Look>,
}

/// A look that is under way, until this is dropped.
pub(super) struct UnderWay {
    looks: Looks,
    folder: String,
    by: Connection,
    _answered: oneshot::Sender<()>,
}

impl Looks {
    /// Looks there at once, unless a look is under way.
    pub(super) fn begin(&self, folder: &str, by: Connection) -> Option<UnderWay> {
        let mut folders = locked(&self.0);
        if folders.get(folder).is_some_and(|known| known.by == by) {
            return None;
        }
        Some(self.under_way(&mut folders, folder, by))
    }

    /// A look that is sent after everything that has been sent so far by that connection.
    pub(super) fn next<L>(&self, folder: &str, by: Connection, look: L) -> Look
    where
        L: Future<Output = Result<Result<Arc<Line>>>> + Send + 'static,
    {
        let mut folders = locked(&self.0);
        let mut known = folders.get_mut(folder).filter(|known| known.by == by);
        if let Some(next) = known.as_ref().and_then(|known| known.next.clone()) {
            return next;
        }
        let before = known.as_ref().map(|known| known.answered.clone());
        // The list has it, and must not be kept by it.
        let (list, name) = (Arc::downgrade(&self.0), folder.to_owned());
        let next = async move {
            if let Some(before) = before {
                let _ = before.await; // or nobody waits for it any more
            }
            // From here on it is too late for others.
            let _under_way = list.upgrade().map(|list| Self(list.clone()).under_way(&mut locked(&list), &name, by));
            look.await
        };
        let next = next.boxed().shared();
        if let Some(known) = &mut known {
            known.next = Some(next.clone());
        }
        next
    }

    fn under_way(&self, folders: &mut HashMap<String, Folder>, folder: &str, by: Connection) -> UnderWay {
        let (sender, answered) = oneshot::channel();
        folders.insert(folder.to_owned(), Folder { by, answered: answered.shared(), next: None });
        UnderWay { looks: self.clone(), folder: folder.to_owned(), by, _answered: sender }
    }
}

impl Drop for UnderWay {
    /// Those who wait for the next look see to it. If there is none, the next to come looks at once.
    fn drop(&mut self) {
        let mut folders = locked(&self.looks.0);
        if folders.get(&self.folder).is_some_and(|folder| folder.by == self.by && folder.next.is_none()) {
            folders.remove(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// Looks that are counted when they are sent.
    #[derive(Clone, Default)]
    struct Sent(Arc<AtomicUsize>);

    impl Sent {
        fn look(&self) -> impl Future<Output = Result<Result<Arc<Line>>>> + Send + 'static {
            let sent = self.0.clone();
            async move {
                sent.fetch_add(1, Relaxed);
                Ok(Ok(Arc::default()))
            }
        }

        fn count(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    #[tokio::test]
    async fn those_who_come_while_somebody_looks_share_the_look_after_it() {
        let (looks, sent) = (Looks::default(), Sent::default());
        let first = looks.begin("f", 1).unwrap();
        assert!(looks.begin("f", 1).is_none());
        assert!(looks.begin("another", 1).is_some());
        assert!(looks.begin("another", 2).is_some());
        let mut waiting: Vec<Look> = (0..100).map(|_| looks.next("f", 1, sent.look())).collect();
        assert!(waiting.iter_mut().all(|look| look.now_or_never().is_none()));
        assert_eq!(sent.count(), 0, "nothing is sent while the first is under way");
        drop(first);
        for look in waiting {
            look.await.unwrap().unwrap();
        }
        assert_eq!(sent.count(), 1);
        assert!(looks.begin("f", 1).is_some(), "nobody looks any more");
    }

    #[tokio::test]
    async fn a_look_that_was_sent_is_nobody_elses() {
        let (looks, sent) = (Looks::default(), Sent::default());
        let first = looks.begin("f", 1).unwrap();
        let (go, gone) = oneshot::channel::<()>();
        let slow = {
            let sent = sent.look();
            async move {
                let line = sent.await;
                let _ = gone.await;
                line
            }
        };
        let mut second = looks.next("f", 1, slow);
        drop(first);
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(sent.count(), 1, "it is under way");
        let mut third = looks.next("f", 1, sent.look());
        assert!((&mut third).now_or_never().is_none());
        go.send(()).unwrap();
        second.await.unwrap().unwrap();
        third.await.unwrap().unwrap();
        assert_eq!(sent.count(), 2);
    }

    #[tokio::test]
    async fn a_look_that_nobody_waits_for_any_more_keeps_nobody_from_looking() {
        let (looks, sent) = (Looks::default(), Sent::default());
        let first = looks.begin("f", 1).unwrap();
        let mut dropped = looks.next("f", 1, sent.look());
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        drop(first);
        assert!(looks.begin("f", 1).is_none());
        looks.next("f", 1, sent.look()).await.unwrap().unwrap();
        assert_eq!(sent.count(), 1);
        assert!(looks.begin("f", 1).is_some());
    }

    #[tokio::test]
    async fn a_look_that_nobody_waits_for_any_more_does_not_keep_what_it_is_kept_by() {
        let looks = Looks::default();
        let first = looks.begin("f", 1).unwrap();
        drop((looks.next("f", 1, Sent::default().look()), first));
        let list = Arc::downgrade(&looks.0);
        drop(looks);
        assert!(list.upgrade().is_none());
    }
}
