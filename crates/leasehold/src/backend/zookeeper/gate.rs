//! The resource's side of fencing, for data that lives on ZooKeeper.

use std::sync::Arc;

use futures_core::future::BoxFuture;

use crate::backend::zookeeper::core::Core;
use crate::backend::zookeeper::fault::Trouble;
use crate::backend::zookeeper::request::{self, Ask, Mode, code};
use crate::backend::zookeeper::session::Seat;
use crate::backend::zookeeper::{Shared, Zookeeper};
use crate::error::{Error, ErrorKind, Fate, Result};
use crate::fence::{FenceGate, FencingToken};

/// How often a transaction is put together anew because another one came between.
const TRIES_MAX: usize = 16;

/// A node that remembers the highest token seen, and lets a write pass in the same transaction (`multi`) in which its token
/// does. Its data is the token in decimal digits, so that programs of other kinds can do the same: read it, refuse a lower token
/// of their own, and send the write together with `setData` of the node at the version that was read.
///
/// ```no_run
/// # async fn example(guard: leasehold::Guard) -> leasehold::Result<()> {
/// use leasehold::backend::zookeeper::{Gate, Write};
///
/// let gate = Gate::connect("zookeeper://localhost", "/account/fence").await?;
/// let balance = Write::Set { path: "/account/balance".into(), data: b"17".into(), version: None };
/// gate.write(guard.token(), &[balance]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
    path: Arc<str>,
}

/// A change that is carried out together with others, or not at all. Paths are whole: the folder of the URL is not theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// Makes a node that stays.
    Create {
        /// Where.
        path: String,
        /// What it says.
        data: Vec<u8>,
    },
    /// Replaces what a node says.
    Set {
        /// Where.
        path: String,
        /// What it is to say.
        data: Vec<u8>,
        /// The version that it must have had before, if that matters.
        version: Option<i32>,
    },
    /// Removes a node.
    Delete {
        /// Where.
        path: String,
        /// The version that it must have had before, if that matters.
        version: Option<i32>,
    },
}

impl Gate {
    /// A gate at that node of the store that `url` names. The node is made when the first token passes; its folder must be there.
    pub async fn connect(url: &str, path: &str) -> Result<Self> {
        let store = Zookeeper::connect(url).await?;
        Ok(Self { shared: store.shared, path: path.into() })
    }

    /// Carries the changes out if the token is at least the highest seen so far, and remembers it: all of that or nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] for a lower token; [`ErrorKind::Unusable`] for a change that the servers refuse.
    pub async fn write(&self, token: FencingToken, writes: &[Write]) -> Result<()> {
        let (core, path) = (self.shared.core.clone(), self.path.clone());
        let writes: Vec<Ask> = writes.iter().map(|write| core.write(write)).collect();
        self.shared.to_its_end(async move { core.pass(&path, token, writes).await }).await
    }
}

impl FenceGate for Gate {
    fn admit(&self, token: FencingToken) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(token, &[]))
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("store", &self.shared.name).field("path", &self.path).finish()
    }
}

impl Core {
    fn write(&self, write: &Write) -> Ask {
        match write {
            Write::Create { path, data } => Ask::create(path, data, Mode::Persistent, self.rights),
            Write::Set { path, data, version } => Ask::set_data(path, data, version.unwrap_or(-1)),
            Write::Delete { path, version } => Ask::delete_version(path, version.unwrap_or(-1)),
        }
    }

    /// Two trips, and two more each time that another transaction came between.
    async fn pass(&self, path: &str, token: FencingToken, writes: Vec<Ask>) -> Result<()> {
        let seat = self.session.seat(true).await?;
        for _ in 0..TRIES_MAX {
            let remembers = self.remembering(&seat, path, token).await.map_err(Error::with_no_effect)?;
            let transaction: Vec<Ask> = [remembers].into_iter().chain(writes.iter().cloned()).collect();
            let answer = self.session.ask(&seat, &[Ask::together(&transaction)]).await.remove(0)?;
            match request::together(&transaction, &answer).map_err(Trouble::from)? {
                Ok(()) => return Ok(()),
                // Another token passed since it was read.
                Err((0, code::BAD_VERSION | code::NODE_EXISTS)) => {}
                Err((nth, refused)) => return Err(refusal(nth, refused)),
            }
        }
        Err(Error::new(ErrorKind::Unreachable, "other tokens keep passing the gate"))
    }

    /// What makes the node remember the token, if it has not seen a higher one.
    async fn remembering(&self, seat: &Seat, path: &str, token: FencingToken) -> Result<Ask> {
        let mut answers = self.session.ask(seat, &[Ask::sync(path), Ask::data(path, false)]).await;
        let digits = token.to_string();
        let (data, stat) = match answers.remove(1) {
            Ok(body) => request::data(&body).map_err(Trouble::from)?,
            Err(trouble) if trouble.is(code::NO_NODE) => {
                return Ok(Ask::create(path, digits.as_bytes(), Mode::Persistent, self.rights));
            }
            Err(trouble) => return Err(trouble.into()),
        };
        let highest: u64 = std::str::from_utf8(&data)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| Error::new(ErrorKind::Unusable, "the gate's node holds something else than a token"))?;
        if token.get() < highest {
            let why = format!("token {token} is older than {highest}: its holder has lost the lock since");
            return Err(Error::new(ErrorKind::Stale, why));
        }
        Ok(Ask::set_data(path, digits.as_bytes(), stat.version))
    }
}

fn refusal(nth: usize, refused: i32) -> Error {
    let error = Error::from(Trouble::Refused(refused));
    // A transaction that was refused is known not to have been carried out.
    if error.fate() == Fate::Unknown || matches!(refused, code::NO_NODE) {
        let what = if nth == 0 { "the gate's own node".into() } else { format!("change {nth}") };
        return Error::new(ErrorKind::Unusable, format!("the servers refused {what} with the code {refused}"));
    }
    error
}
