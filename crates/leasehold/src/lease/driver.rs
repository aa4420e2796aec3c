//! Where the keeper runs: on a thread of its own, so that a blocked runtime cannot starve it.

use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::select;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};

/// How long opening a store may take.
#[cfg(feature = "sqlite")]
const OPEN_MAX: Duration = Duration::from_secs(5);

/// A runtime for the keeper, the departures, the timers and the store's connections of one client.
pub(crate) struct Driver {
    handle: Handle,
    clock: Clock,
    /// `None`: the work runs on the runtime of whoever made the client, in tests that move its clock.
    thread: Option<oneshot::Sender<BoxFuture<'static, ()>>>,
}

impl Driver {
    pub(crate) fn start(clock: Clock) -> Result<Self> {
        if clock.follows_runtime() {
            let handle = Handle::try_current().map_err(|cause| {
                Error::option("clock", "follows a runtime, so the locks must be made on one").caused_by(cause)
            })?;
            return Ok(Self { handle, clock, thread: None });
        }
        let refused = |cause| {
            Error::new(ErrorKind::Closed, "the operating system refused a thread for the lease keeper").caused_by(cause)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let handle = runtime.handle().clone();
        let (thread, work) = oneshot::channel::<BoxFuture<'static, ()>>();
        std::thread::Builder::new()
            .name("leasehold".into())
            .spawn(move || {
                if let Ok(work) = runtime.block_on(work) {
                    runtime.block_on(work);
                }
            })
            .map_err(refused)?;
        Ok(Self { handle, clock, thread: Some(thread) })
    }

    pub(crate) fn timer(&self) -> Timer {
        match self.thread {
            Some(_) => Timer::driven_by(self.clock.clone(), self.handle.clone()),
            None => Timer::on_callers_runtime(self.clock.clone()),
        }
    }

    /// Opens a store that may block while it is opened, on a thread of this runtime: whatever it spawns goes on here when
    /// the caller's runtime is blocked.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn open<T: Send + 'static>(&self, open: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let opening = self.handle.spawn_blocking(open);
        match self.timer().within(OPEN_MAX, opening).await {
            Some(Ok(opened)) => opened,
            Some(Err(failed)) => Err(Error::new(ErrorKind::Protocol, "opening the store panicked").caused_by(failed)),
            None => Err(Error::new(ErrorKind::Unreachable, "the store was not open in time: somebody keeps it busy")),
        }
    }

    /// Runs the work to its end; the thread ends with it. Timers for later than `pulse` do not wake it.
    pub(crate) fn run(self, work: BoxFuture<'static, ()>, pulse: Duration) {
        let timer = Timer::on_callers_runtime(self.clock.clone());
        match self.thread {
            // The thread waits for exactly this; it can only be gone if the process is ending.
            Some(thread) => {
                let beat = Box::pin(async move { timer.beat(pulse).await });
                drop(thread.send(Box::pin(async { drop(select(work, beat).await) })));
            }
            None => drop(self.handle.spawn(work)),
        }
    }
}
