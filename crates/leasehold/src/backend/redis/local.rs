//! The connections of the runtime that takes locks, on which news arrive as well.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use redis::Value;
use tokio::sync::{oneshot, watch};

use crate::backend::redis::call::Call;
use crate::backend::redis::hub::Hub;
use crate::backend::redis::listening;
use crate::backend::redis::wire::Wire;
use crate::error::Result;

/// The connections of one runtime.
pub(super) struct Local {
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
        Self { wire, listens, _stay: stay }
    }

    pub(super) async fn ask(&self, call: &Call) -> Result<Value> {
        if !*self.listens.borrow() {
            // It says so or ends; in both cases there is nothing to wait for any more.
            let _ = self.listens.clone().wait_for(|listens| *listens).await;
        }
        self.wire.call(call).await
    }
}
