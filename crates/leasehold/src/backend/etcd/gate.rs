//! The resource's side of fencing, for data that lives on the same cluster.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;

use crate::backend::etcd::core::Core;
use crate::backend::etcd::message::{Act, Compare, Operand, Put, Relation, Target, Txn, TxnDone};
use crate::backend::etcd::names;
use crate::backend::etcd::verbs::TXN;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FenceGate, FencingToken};

/// Remembers the highest token at a key of the cluster, as twenty digits, so that they compare as numbers do.
///
/// What is written in a transaction of your own needs no gate of its own. Compare there, and write where this writes:
///
/// ```text
/// compare:  value("fence/account-7") > "00000000000000004711"     nobody newer has been here
/// success:  nothing, and be told that the token is stale
/// failure:  put "fence/account-7" "00000000000000004711", and whatever else is to be written
/// ```
///
/// A key that is not there compares as not greater, so the first token passes.
pub struct Gate {
    core: Arc<Core>,
    key: Vec<u8>,
}

impl Gate {
    pub(super) fn new(core: Arc<Core>, key: Vec<u8>) -> Self {
        Self { core, key }
    }
}

impl FenceGate for Gate {
    fn admit(&self, token: FencingToken) -> BoxFuture<'_, Result<()>> {
        let (core, key) = (self.core.clone(), self.key.clone());
        Box::pin(self.core.io.run(async move {
            let digits = format!("{token:020}", token = token.get()).into_bytes();
            let newer = Compare {
                relation: Relation::Greater.into(),
                target: Target::Value.into(),
                key: key.clone(),
                operand: Some(Operand::Value(digits.clone())),
                range_end: Vec::new(),
            };
            let put = Put { key, value: digits, ..Put::default() };
            let txn = Txn { compare: vec![newer], success: Vec::new(), failure: vec![Act::Put(put).into()] };
            let done: TxnDone = core.wire.call(TXN, txn).await?;
            if done.succeeded {
                let stale =
                    format!("token {token} is older than one that was here: its holder has lost the lock since");
                return Err(Error::new(ErrorKind::Stale, stale));
            }
            Ok(())
        }))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&names::shown(&self.key)).finish()
    }
}
