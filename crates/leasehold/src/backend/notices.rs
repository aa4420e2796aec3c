//! How a store within this process hands its notices to the keepers that follow them.

use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::broadcast;

use crate::backend::Notice;

/// How many notices a keeper may fall behind before it misses some. Renewals tell the same.
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
        Box::pin(stream::unfold(self.0.subscribe(), async |mut notices| {
            loop {
                match notices.recv().await {
                    Ok(notice) => return Some((notice, notices)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        }))
    }
}
