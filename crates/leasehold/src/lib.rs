//! Distributed locks that know when they are lost. (crate docs to come)

mod acquire;
pub mod backend;
mod chance;
mod claim;
mod client;
pub mod clock;
mod error;
pub mod fence;
mod guard;
mod inspect;
mod key;
mod lease;
mod locks;
mod primitive;
pub mod queue;
mod sync;

pub use crate::acquire::{Attempt, Busy};
pub use crate::claim::{Capacity, Claim};
pub use crate::error::{Error, ErrorKind, Fate, Result};
pub use crate::fence::FencingToken;
pub use crate::guard::{Guard, Held, SharedGuard};
pub use crate::key::{Key, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Namespace};
pub use crate::lease::hold::{Loss, State};
pub use crate::locks::{Builder, Locks, connect};
pub use crate::primitive::election::{Election, Leader, Leadership};
pub use crate::primitive::multi::{AllGuard, AllOf};
pub use crate::primitive::mutex::Mutex;
pub use crate::primitive::reentrant::{Owner, Reentrant, ReentrantGuard};
pub use crate::primitive::rwlock::RwLock;
pub use crate::primitive::semaphore::Semaphore;

/// Runs an example of the documentation on a store in memory.
#[doc(hidden)]
pub fn doc_test(example: impl AsyncFnOnce(Locks) -> Result<()>) {
    pollster::block_on(async { example(connect("memory:").await?).await }).expect("the example works");
}
