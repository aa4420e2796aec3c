//! The connection's own task.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Inner, Slot, closed};
use crate::clock::Timer;
use crate::sync::locked;

/// How long a reader may leave the others without answers before the connection's own task takes over.
const UNREAD_MAX: Duration = Duration::from_millis(10);

pub(super) fn spawn(inner: Arc<Inner>) {
    tokio::spawn(attend(Attendance(inner)));
}

/// Reads while nobody waits for an answer, and when whoever does is not at it. Ends the wait for answers that are overdue.
async fn attend(attendance: Attendance) {
    let inner = &attendance.0;
    let timer = Timer::on_callers_runtime(inner.clock.clone());
    loop {
        let reading = poll_fn(|cx| inner.attend(cx));
        let reader = if locked(&inner.state).waiting.is_empty() {
            reading.await
        } else {
            let Some(reader) = timer.within(UNREAD_MAX, reading).await else {
                inner.end_overdue();
                continue;
            };
            reader
        };
        let Some(reader) = reader else { return };
        let passed_on = poll_fn(|cx| {
            let mut state = locked(&inner.state);
            if state.reader.is_none() || state.broken.is_some() {
                return Poll::Ready(());
            }
            state.own_task = Some(cx.waker().clone());
            Poll::Pending
        });
        if timer.within(UNREAD_MAX, passed_on).await.is_none() {
            {
                let mut state = locked(&inner.state);
                if state.reader == Some(reader) {
                    state.reader = None;
                }
            }
            inner.end_overdue();
        }
    }
}

/// The connection's own task. It may end with its runtime, and then nobody would watch for overdue answers.
struct Attendance(Arc<Inner>);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.fail(&closed());
    }
}

impl Inner {
    /// Reads until somebody else does: who that is, or nobody if there is nothing to read any more.
    fn attend(&self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        {
            let mut state = locked(&self.state);
            state.own_task = Some(cx.waker().clone());
            state.own_task_reads = state.reader.is_none();
            if state.broken.is_some() {
                return Poll::Ready(None);
            }
            if state.reader.is_some() {
                return Poll::Ready(state.reader);
            }
        }
        self.turn(None, cx);
        if locked(&self.state).broken.is_some() { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Tells those whose answers are overdue that they need not wait. Their answers may still come, to nobody.
    fn end_overdue(&self) {
        let now = self.clock.now();
        let overdue: Vec<Arc<Slot>> =
            locked(&self.state).slots().take_while(|slot| slot.overdue_at <= now).cloned().collect();
        let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let wakers: Vec<Waker> = overdue.iter().filter_map(|slot| slot.fill(timed_out())).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}
