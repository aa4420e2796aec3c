//! A thread of a store's own, for connections that must go on while the caller's runtime is blocked or gone.

#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
use std::sync::OnceLock;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};

#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
const PULSE: Duration = Duration::from_secs(1);

/// The thread and its runtime. Both end when this is dropped.
#[derive(Debug)]
pub(super) struct IoThread {
    handle: Handle,
    /// Dropped with this; the thread waits for that.
    _stay: oneshot::Sender<()>,
    #[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
    timer: OnceLock<Timer>,
}

impl IoThread {
    pub(super) fn start(name: &str) -> Result<Self> {
        let refused = |cause| {
            Error::new(ErrorKind::Closed, "the operating system refused a thread for the connections").caused_by(cause)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let handle = runtime.handle().clone();
        let (stay, gone) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _ = runtime.block_on(gone);
            })
            .map_err(refused)?;
        Ok(Self {
            handle,
            _stay: stay,
            #[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
            timer: OnceLock::new(),
        })
    }

    /// Time limits that this thread sees to, whoever sets them. It looks up every second from the first on; those that are longer
    /// than that do not wake it.
    #[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
    pub(super) fn timer(&self) -> Timer {
        let start = || {
            let timer = Timer::on_callers_runtime(Clock::boot());
            self.spawn(async move { timer.beat(PULSE).await });
            Timer::driven_by(Clock::boot(), self.handle.clone())
        };
        self.timer.get_or_init(start).clone()
    }

    /// Does the work on this thread, with nobody waiting for it.
    #[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Where work can be started that nobody waits for.
    #[cfg(feature = "zookeeper")]
    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends the thread once that is done, without waiting for it.
    #[cfg(feature = "zookeeper")]
    pub(super) fn end_after(self, work: impl Future<Output = ()> + Send + 'static) {
        let Self { handle, _stay: stay, .. } = self;
        handle.spawn(async move {
            work.await;
            drop(stay);
        });
    }

    /// Does the work on this thread. It is done to its end even if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self.handle.spawn(work).await {
            Ok(output) => output,
            Err(cause) => {
                let stopped = Error::new(ErrorKind::Closed, "the thread of the connections has ended");
                Err(stopped.caused_by(cause).with_unknown_fate())
            }
        }
    }
}
