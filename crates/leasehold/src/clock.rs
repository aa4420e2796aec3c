//! Time, and the only place that reads it.
//!
//! Deadlines live on `CLOCK_BOOTTIME`, which goes on counting while a machine is suspended: `Instant` stops there, and a
//! laptop that wakes after an hour would believe in its lock for another half minute. Wall time is read for one purpose
//! only, to notice that it moved against boot time (a restored snapshot, a stepped clock) and ask the store again.
#![expect(clippy::disallowed_methods, reason = "this is the module that the rest of the crate reads time through")]

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::{Either, select};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
// Elsewhere the monotonic clock counts suspension already (macOS), or nothing better is to be had.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// When the clocks of tests begin, in µs since 1970.
#[cfg(any(feature = "etcd", feature = "redis"))]
const TEST_EPOCH_MICROS: u64 = 1_700_000_000_000_000;

/// A point in time on one [`Clock`]. Moments of different clocks have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Later than any moment that a clock will show: 146 years after boot.
    pub const FAR: Self = Self(u64::MAX >> 2);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment and `span` more, or [`Moment::FAR`] if that is sooner.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos).min(Self::FAR.0))
    }

    /// How long it is from here to `later`; zero if that is past.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// A source of [`Moment`]s: the machine's boot clock, or one that tests can move.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Boot,
    Runtime { start: tokio::time::Instant },
    Moved(Arc<Hand>),
}

impl Clock {
    /// The machine's clock since boot, suspension included.
    pub fn boot() -> Self {
        Self(Source::Boot)
    }

    /// The clock of the tokio runtime that the caller is on, which a test may pause and which then moves by itself to
    /// the next timer. Locks made with it keep their leases on that runtime too, so such a test is repeatable.
    pub fn runtime() -> Self {
        Self(Source::Runtime { start: tokio::time::Instant::now() })
    }

    /// A clock that follows `base` until its hand is moved.
    pub fn moved_by_hand(base: Self) -> (Self, Arc<Hand>) {
        let start = base.now();
        let hand = Arc::new(Hand { base, set: Mutex::new(Setting { at: start, shows: start, rate: 1.0, wall: 0 }) });
        (Self(Source::Moved(hand.clone())), hand)
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Boot => {
                let time = clock_gettime(CLOCK);
                Moment((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
            }
            Source::Runtime { start } => Moment(0).after(start.elapsed()),
            Source::Moved(hand) => hand.now(),
        }
    }

    /// By how many nanoseconds wall time is ahead of this clock. Only its changes mean anything.
    pub(crate) fn wall_lead(&self) -> i64 {
        match &self.0 {
            Source::Boot => i64::try_from(unix_time_in(Duration::ZERO).as_nanos())
                .unwrap_or(i64::MAX)
                .saturating_sub_unsigned(self.now().as_nanos()),
            Source::Runtime { .. } => 0,
            Source::Moved(hand) => hand.set.lock().expect("no panic under this lock").wall,
        }
    }

    /// What the wall clock shows in µs since 1970, for numbers that should grow across machines and restarts. Never a
    /// deadline. On a clock of a test's own it is a time that the test decides.
    #[cfg(any(feature = "etcd", feature = "redis"))]
    pub(crate) fn wall_micros(&self) -> u64 {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        match &self.0 {
            Source::Boot => micros(unix_time_in(Duration::ZERO)),
            Source::Runtime { .. } => TEST_EPOCH_MICROS + self.now().as_nanos() / 1000,
            Source::Moved(hand) => {
                let moved = i128::from(hand.now().0) - i128::from(hand.base.now().0) + i128::from(self.wall_lead());
                let moved = i64::try_from(moved / 1000).unwrap_or(i64::MAX);
                hand.base.wall_micros().saturating_add_signed(moved)
            }
        }
    }

    pub(crate) fn follows_runtime(&self) -> bool {
        match &self.0 {
            Source::Boot => false,
            Source::Runtime { .. } => true,
            Source::Moved(hand) => hand.base.follows_runtime(),
        }
    }
}

/// What the wall clock will show in `span`, since 1970. For other programs, which know no clock but that one; never a
/// deadline of our own.
pub fn unix_time_in(span: Duration) -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(span)
}

/// Moves the clock made by [`Clock::moved_by_hand`].
#[derive(Debug)]
pub struct Hand {
    base: Clock,
    set: Mutex<Setting>,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    at: Moment,
    shows: Moment,
    rate: f64,
    wall: i64,
}

impl Hand {
    fn now(&self) -> Moment {
        let set = *self.set.lock().expect("no panic under this lock");
        set.shows.after(set.at.until(self.base.now()).mul_f64(set.rate))
    }

    /// Moves the clock ahead at once.
    pub fn jump(&self, ahead: Duration) {
        self.change(|set| set.shows = set.shows.after(ahead));
    }

    /// Lets the clock go faster or slower than its base from now on.
    pub fn run_at(&self, rate: f64) {
        self.change(|set| set.rate = rate);
    }

    /// Moves wall time against this clock, as a restored snapshot or a stepped system clock would.
    pub fn step_wall(&self, by: Duration) {
        self.change(|set| set.wall += i64::try_from(by.as_nanos()).expect("a step shorter than centuries"));
    }

    fn change(&self, change: impl FnOnce(&mut Setting)) {
        let (at, shows) = (self.base.now(), self.now());
        let mut set = self.set.lock().expect("no panic under this lock");
        *set = Setting { at, shows, ..*set };
        change(&mut set);
    }
}

/// Sleeps and time limits on a clock.
#[derive(Clone, Debug)]
pub struct Timer {
    clock: Clock,
    /// The runtime that fires the timers. Not the caller's: that one may be blocked, or may not be tokio's at all.
    driver: Option<Handle>,
}

impl Timer {
    /// A timer whose sleeps fire on the runtime of whoever awaits them.
    pub fn on_callers_runtime(clock: Clock) -> Self {
        Self { clock, driver: None }
    }

    pub(crate) fn driven_by(clock: Clock, driver: Handle) -> Self {
        Self { clock, driver: Some(driver) }
    }

    /// The clock that it counts on.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Sleeps for at least `span`.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_on(span, self.now().after(span)).await;
    }

    /// Sleeps until the clock shows at least `moment`.
    pub async fn sleep_until(&self, moment: Moment) {
        self.sleep_on(self.now().until(moment), moment).await;
    }

    /// Until `moment`, which is `left` away.
    async fn sleep_on(&self, mut left: Duration, moment: Moment) {
        while !left.is_zero() {
            let sleep = {
                let _on_driver = self.driver.as_ref().map(Handle::enter);
                tokio::time::sleep(left)
            };
            sleep.await;
            left = self.now().until(moment);
        }
    }

    /// Does not end. The runtime that this is awaited on looks up every `pulse`, so that a timer for something later than that
    /// can be set from elsewhere without waking it: waking a thread takes as long as a trip to a store, and every request has a
    /// timer for its answer.
    pub(crate) async fn beat(&self, pulse: Duration) {
        loop {
            self.sleep(pulse).await;
        }
    }

    /// What `work` comes to, or `None` if it takes longer than `limit`. Work that is done at once sets no timer.
    pub async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        match select(pin!(work), pin!(self.sleep(limit))).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }
}

/// The keeper's alarm. On Linux a `timerfd` on the boot clock, so that it rings the moment a suspended machine wakes.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: Timer,
    #[cfg(target_os = "linux")]
    bell: Option<tokio::net::unix::pipe::Receiver>,
}

impl Alarm {
    /// Must be called on the runtime that will await it.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            bell: if clock.follows_runtime() { None } else { boot_alarm() },
            timer: Timer::on_callers_runtime(clock),
        }
    }

    /// Sleeps until `moment`; [`Moment::FAR`] is never. Dropping the future leaves the alarm ready to be set anew.
    pub(crate) async fn at(&self, moment: Moment) {
        if moment >= Moment::FAR {
            return std::future::pending().await;
        }
        #[cfg(target_os = "linux")]
        if let Some(bell) = &self.bell
            && self.at_boot_time(bell, moment).await.is_ok()
        {
            return;
        }
        self.timer.sleep_until(moment).await;
    }

    #[cfg(target_os = "linux")]
    async fn at_boot_time(&self, bell: &tokio::net::unix::pipe::Receiver, moment: Moment) -> std::io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let left = self.timer.now().until(moment);
            if left.is_zero() {
                return Ok(());
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let set = Itimerspec { it_interval: zero, it_value: clock_gettime(CLOCK) + left };
            timerfd_settime(bell, TimerfdTimerFlags::ABSTIME, &set)?;
            bell.readable().await?;
            // It may have rung for an earlier setting; the clock above decides, not the bell.
            let _ = bell.try_read(&mut [0; 8]);
        }
    }
}

/// `None` where the kernel refuses one: the alarm then sleeps like any other timer.
///
/// A timerfd is read like a pipe. Tokio's pipe takes over any descriptor without `unsafe`, which its `AsyncFd` does not.
#[cfg(target_os = "linux")]
fn boot_alarm() -> Option<tokio::net::unix::pipe::Receiver> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).ok()?;
    tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(fd).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_does_not_go_back_and_its_moments_saturate() {
        let clock = Clock::boot();
        let (first, second) = (clock.now(), clock.now());
        assert!(second >= first);
        assert_eq!(second.after(Duration::MAX), Moment::FAR);
        assert_eq!(second.after(Duration::from_secs(1)).until(second), Duration::ZERO);
    }

    #[test]
    fn a_moved_clock_jumps_and_runs_at_the_rate_it_is_given() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (clock, hand) = Clock::moved_by_hand(Clock::runtime());
            let start = clock.now();
            hand.jump(Duration::from_secs(60));
            assert_eq!(start.until(clock.now()), Duration::from_secs(60));
            hand.run_at(2.0);
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(start.until(clock.now()), Duration::from_secs(70));
        });
    }

    #[cfg(any(feature = "etcd", feature = "redis"))]
    #[test]
    fn the_wall_clock_of_a_moved_clock_goes_with_it_and_can_be_stepped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (clock, hand) = Clock::moved_by_hand(Clock::runtime());
            let start = clock.wall_micros();
            hand.jump(Duration::from_secs(2));
            hand.step_wall(Duration::from_secs(3));
            assert_eq!(clock.wall_micros(), start + 5_000_000);
        });
    }

    #[test]
    fn the_alarm_rings_at_its_moment_and_can_be_set_again_after_being_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::boot();
            let alarm = Alarm::new(clock.clone());
            drop(alarm.at(clock.now().after(Duration::from_secs(600))));
            let moment = clock.now().after(Duration::from_millis(20));
            alarm.at(moment).await;
            assert!(clock.now() >= moment);
        });
    }

    #[test]
    fn a_limit_cuts_work_short_and_lets_finished_work_through() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let timer = Timer::on_callers_runtime(Clock::runtime());
            assert_eq!(timer.within(Duration::ZERO, async { 1 }).await, Some(1));
            assert_eq!(timer.within(Duration::from_secs(9), std::future::pending::<()>()).await, None);
        });
    }
}
