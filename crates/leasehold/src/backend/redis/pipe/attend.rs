//! The connection's own task.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Inner, Slot, State, closed};
use crate::clock::Timer;
use crate::sync::locked;

/// How often readers are looked after. One that has left the others without answers from one look to the next is relieved.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// After how many looks in a row nobody is looked after any more, if nobody has asked for anything meanwhile. The next request
/// then wakes the connection's own task, which takes as long as the trip itself.
const QUIET_LOOKS: u32 = 20;

pub(super) fn spawn(inner: Arc<Inner>) {
    tokio::spawn(attend(Attendance(inner)));
}

/// Reads while nobody waits for an answer, and when whoever does is not at it. Ends the wait for answers that are overdue.
async fn attend(attendance: Attendance) {
    let inner = &attendance.0;
    let timer = Timer::on_callers_runtime(inner.clock.clone());
    while poll_fn(|cx| inner.attend(cx, |state| state.watched)).await {
        let mut last = Look::default();
        while inner.look(&mut last) {
            if timer.within(LOOK_EVERY, poll_fn(|cx| inner.attend(cx, |_| false))).await.is_some() {
                return;
            }
        }
    }
}

/// What was seen when readers were looked after.
#[derive(Default)]
struct Look {
    reader: Option<u64>,
    made: u64,
    /// How many looks in a row have seen nothing.
    quiet: u32,
}

/// The connection's own task. It may end with its runtime, and then nobody would watch for overdue answers.
struct Attendance(Arc<Inner>);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.fail(&closed());
    }
}

impl Inner {
    /// Reads whenever nobody else does, until that is so (true) or there is nothing to read any more (false).
    fn attend(&self, cx: &mut Context<'_>, until: impl Fn(&State) -> bool) -> Poll<bool> {
        {
            let mut state = locked(&self.state);
            if state.broken.is_some() {
                return Poll::Ready(false);
            }
            state.own_task = Some(cx.waker().clone());
            if until(&state) {
                return Poll::Ready(true);
            }
        }
        self.turn(None, cx);
        if locked(&self.state).broken.is_some() { Poll::Ready(false) } else { Poll::Pending }
    }

    /// Looks after those who read and wait. False if nobody needs that any more.
    fn look(&self, last: &mut Look) -> bool {
        let mut state = locked(&self.state);
        if state.reader == last.reader {
            state.reader = None;
        }
        let seen_nothing = state.made == last.made && state.waiting.is_empty();
        *last = Look { reader: state.reader, made: state.made, quiet: if seen_nothing { last.quiet + 1 } else { 0 } };
        state.watched = last.quiet < QUIET_LOOKS;
        let watched = state.watched;
        drop(state);
        self.end_overdue();
        watched
    }

    /// Tells those whose answers are overdue that they need not wait. Their answers may still come, to nobody.
    fn end_overdue(&self) {
        let now = self.clock.now();
        let overdue: Vec<Arc<Slot>> =
            locked(&self.state).slots().filter(|slot| slot.overdue_at <= now).cloned().collect();
        let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let wakers: Vec<Waker> = overdue.iter().filter_map(|slot| slot.fill(timed_out())).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}
