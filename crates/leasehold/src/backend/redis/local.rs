//! The connections of the runtime that takes locks.
//!
//! They live on the caller's runtime and not on our own thread, so that a lock which nobody else wants costs no change of
//! threads: on an idle machine waking another thread takes as long as the trip to the server.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select;
use redis::Value;
use tokio::runtime;
use tokio::sync::{oneshot, watch};

use crate::backend::redis::call::Call;
use crate::backend::redis::hub::Hub;
use crate::backend::redis::listening;
use crate::backend::redis::wire::Wire;
use crate::clock::{Clock, Timer};
use crate::error::Result;

/// The connections of one runtime.
pub(super) struct Local {
    pub(super) runtime: runtime::Id,
    wire: Arc<Wire>,
    /// Whether news of what is entered will be heard. It ends with the runtime.
    listens: watch::Receiver<bool>,
    /// Dropped with this, which ends the listening.
    _stay: oneshot::Sender<()>,
}

impl Local {
    /// Must be called on a runtime. What it spawns lives as long as that, or as this.
    pub(super) fn start(wire: Arc<Wire>, hub: Arc<Hub>) -> Self {
        let (stay, gone) = oneshot::channel::<()>();
        let (subscribed, listens) = watch::channel(false);
        let listening = listening::follow(wire.clone(), hub, subscribed);
        tokio::spawn(async {
            select(gone, pin!(listening)).await;
        });
        Self { runtime: runtime::Handle::current().id(), wire, listens, _stay: stay }
    }

    pub(super) async fn ask(&self, call: &Call) -> Result<Value> {
        if !*self.listens.borrow() {
            // It says so or ends; in both cases there is nothing to wait for any more.
            let _ = self.listens.clone().wait_for(|listens| *listens).await;
        }
        self.wire.call(call).await
    }

    /// Whether that runtime is still there.
    pub(super) fn is_open(&self) -> bool {
        self.listens.has_changed().is_ok()
    }
}

/// Whether the runtime that this is called on has what a connection needs. There is no other way to ask than to try, and
/// one that has not panics.
pub(super) fn can_connect() -> bool {
    std::panic::catch_unwind(|| {
        let timer = Timer::on_callers_runtime(Clock::boot());
        timer.sleep(Duration::from_secs(1)).now_or_never();
        tokio::net::UnixStream::pair().is_ok()
    })
    .unwrap_or(false)
}
