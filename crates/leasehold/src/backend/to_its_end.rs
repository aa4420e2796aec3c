//! Requests that are sent from the caller's runtime and must be heard out whoever stops waiting: what their answer says has to be
//! taken down, and a connection that is in the middle of one is of no use to anybody.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use tokio::runtime::Handle;

/// Work that is done where it is awaited, and to its end on the same runtime once begun, even if nobody awaits it any more.
pub(super) struct ToItsEnd<T: 'static> {
    work: Option<BoxFuture<'static, T>>,
    begun: Option<Handle>,
}

impl<T: 'static> ToItsEnd<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), begun: None }
    }
}

impl<T: 'static> Future for ToItsEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Should it panic, it is not there any more.
        let mut work = self.work.take().expect("not asked for more than it yields");
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.begun.get_or_insert_with(Handle::current);
            self.work = Some(work);
        }
        polled
    }
}

impl<T: 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        if let (Some(work), Some(runtime)) = (self.work.take(), self.begun.take()) {
            runtime.spawn(work.map(drop));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn work_that_was_begun_is_done_to_its_end_and_other_work_is_not() {
        runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let (go, gone) = oneshot::channel::<()>();
            let (done, seen) = oneshot::channel();
            let mut work = ToItsEnd::new(async {
                let _ = gone.await;
                done.send(()).unwrap();
            });
            assert!((&mut work).now_or_never().is_none());
            drop(work);
            go.send(()).unwrap();
            seen.await.unwrap();
            let (done, seen) = oneshot::channel();
            drop(ToItsEnd::new(async { done.send(()).unwrap() }));
            assert!(seen.await.is_err());
        });
    }
}
