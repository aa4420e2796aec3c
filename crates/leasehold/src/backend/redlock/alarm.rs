//! One timer for many answers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_core::future::BoxFuture;

use crate::clock::{Moment, Timer};

/// A timer that is set once for a series of waits, unless one of them ends earlier: answers come one by one, and setting a
/// timer for each may wake another thread.
pub(super) struct Alarm {
    timer: Timer,
    /// When it rings. That may be too early for whoever waits now, and then it is set once more.
    set: Option<(Moment, BoxFuture<'static, ()>)>,
}

impl Alarm {
    pub(super) fn new(timer: Timer) -> Self {
        Self { timer, set: None }
    }

    /// What `work` comes to, or `None` if it is `at` before that. Work that is done at once sets no timer.
    pub(super) async fn before<T>(&mut self, at: Moment, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if at >= Moment::FAR {
                return Poll::Pending;
            }
            loop {
                let (rings_at, ringing) = match &mut self.set {
                    Some(set) if set.0 <= at => set,
                    unset => {
                        let timer = self.timer.clone();
                        unset.insert((at, Box::pin(async move { timer.sleep_until(at).await })))
                    }
                };
                if ringing.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let rang_at = *rings_at;
                self.set = None;
                if rang_at >= at {
                    return Poll::Ready(None);
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn every_wait_ends_when_it_should_whatever_the_alarm_was_set_for_before() {
        let timer = Timer::on_callers_runtime(Clock::runtime());
        let (mut alarm, start) = (Alarm::new(timer.clone()), timer.now());
        let after = |ms| start.after(Duration::from_millis(ms));
        assert_eq!(alarm.before(after(50), ready(1)).await, Some(1));
        let later = async {
            timer.sleep(Duration::from_millis(10)).await;
            2
        };
        assert_eq!(alarm.before(after(50), later).await, Some(2));
        for (at, why) in [(70, "it rings too early"), (71, "it is not set"), (71, "that is past")] {
            assert_eq!(alarm.before(after(at), pending::<u8>()).await, None);
            assert_eq!(timer.now(), after(at), "{why}");
        }
        assert_eq!(alarm.before(after(200), futures_util::future::poll_immediate(pending::<u8>())).await, Some(None));
        assert_eq!(alarm.before(after(90), pending::<u8>()).await, None);
        assert_eq!(timer.now(), after(90), "it was set for later");
    }
}
