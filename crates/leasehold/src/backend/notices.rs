//! How a store within this process hands its notices to the keepers that follow them.

use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::broadcast;

use crate::backend::Notice;

/// How many notices a keeper may fall behind before it misses some. It is told that it did, and asks about everything.
const BACKLOG: usize = 1024;

/// Where notices are posted, and from where every keeper picks out those of its own entries.
#[derive(Debug)]
pub(super) struct NoticeBoard(broadcast::Sender<Notice>);

impl NoticeBoard {
    pub(super) fn new() -> Self {
        Self(broadcast::channel(BACKLOG).0)
    }

    pub(super) fn post(&self, notice: Notice) {
        let _ = self.0.send(notice); // nobody may be following
    }

    pub(super) fn follow(&self) -> BoxStream<'static, Notice> {
        Box::pin(stream::unfold(self.0.subscribe(), async |mut notices| match notices.recv().await {
            Ok(notice) => Some((notice, notices)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((Notice::Shaken, notices)),
            Err(broadcast::error::RecvError::Closed) => None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};

    use super::*;
    use crate::backend::EntryId;

    #[test]
    fn a_keeper_that_missed_notices_is_told_to_doubt_everything() {
        let board = NoticeBoard::new();
        let mut followed = board.follow();
        let notice = |nth: usize| Notice::Gone(EntryId(nth as u128));
        (0..=BACKLOG).for_each(|nth| board.post(notice(nth)));
        let mut next = || followed.next().now_or_never().flatten();
        assert_eq!((next(), next()), (Some(Notice::Shaken), Some(notice(1))));
    }
}
