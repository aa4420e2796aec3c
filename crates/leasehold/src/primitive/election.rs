//! One leader at a time, known to everybody.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};

use crate::acquire::Attempt;
use crate::backend::{KeyView, NOTE_BYTES_MAX, Note};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::FencingToken;
use crate::guard::{Guard, Held};
use crate::key::{Escaped, Key};
use crate::primitive::{Access, with_guard};

/// The first pause before an observer follows again after it lost sight; it doubles up to [`FOLLOW_PAUSE_MAX`].
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);
const FOLLOW_PAUSE_MAX: Duration = Duration::from_secs(5);

/// An office that one candidate holds at a time: a mutex whose holder says what it stands for.
///
/// ```
/// # leasehold::doc_test(async |locks| {
/// let election = locks.election("scheduler")?;
/// let leadership = election.campaign("10.0.0.7:8080").await?;
/// let leader = election.leader().await?.expect("we lead");
/// assert_eq!(&*leader.value, b"10.0.0.7:8080");
/// assert_eq!(leader.token, leadership.token());
/// leadership.resign().await?;
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    client: Arc<Client>,
    access: Access,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it stands for: what it last proclaimed.
    pub value: Arc<[u8]>,
    /// The number of its term, larger than that of every term before.
    pub token: FencingToken,
    /// Who it is.
    pub note: Note,
}

impl std::fmt::Display for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in term {}: {}", self.note, self.token, Escaped(&self.value))
    }
}

impl Election {
    pub(crate) fn new(client: &Arc<Client>, key: Key) -> Result<Self> {
        if !client.capabilities.notes {
            return Err(client.unsupported("elections", &key));
        }
        let access = Access::new(client, key, crate::claim::Claim::Exclusive)?;
        Ok(Self { client: client.clone(), access })
    }

    /// Waits until every candidate ahead has had its term, and leads, standing for `value`.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) if `value` is longer than [`NOTE_BYTES_MAX`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate; no entry outlives its lease.
    pub async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leadership> {
        self.standing_for(value.as_ref())?.take().await
    }

    /// Leads if nobody does and nobody is a candidate.
    pub async fn try_campaign(&self, value: impl AsRef<[u8]>) -> Result<Option<Leadership>> {
        self.standing_for(value.as_ref())?.try_take().await
    }

    /// Waits to lead, but no longer than `limit`.
    pub async fn campaign_within(&self, value: impl AsRef<[u8]>, limit: Duration) -> Result<Option<Leadership>> {
        self.standing_for(value.as_ref())?.take_within(limit).await
    }

    /// As [`campaign_within`](Self::campaign_within), and says who leads instead. A limit of zero only tries.
    pub async fn attempt_within(&self, value: impl AsRef<[u8]>, limit: Duration) -> Result<Attempt<Leadership>> {
        self.standing_for(value.as_ref())?.attempt_within(limit).await
    }

    /// Waits to lead, runs `work` as the leader, and resigns. Work that outlives the term is dropped unfinished.
    pub async fn with<T>(&self, value: impl AsRef<[u8]>, work: impl AsyncFnOnce(&Leadership) -> T) -> Result<T> {
        with_guard!(self.campaign(value).await?, work)
    }

    /// Who leads now, as the store sees it.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        Ok(self.client.look_at(self.key()).await?.as_ref().and_then(leader_in))
    }

    /// Who leads, now and after every change: `None` while nobody does. Terms come in order and none comes twice; on a
    /// store that tells of every change, none is left out.
    ///
    /// The stream goes on through a store that cannot be reached for a while, and yields other errors as they are.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// use futures_util::StreamExt as _;
    ///
    /// let election = locks.election("scheduler")?;
    /// let mut leaders = std::pin::pin!(election.observe());
    /// assert_eq!(leaders.next().await.unwrap()?, None);
    /// let _leadership = election.campaign("a").await?;
    /// assert_eq!(&*leaders.next().await.unwrap()?.unwrap().value, b"a");
    /// # Ok(()) });
    /// ```
    pub fn observe(&self) -> impl Stream<Item = Result<Option<Leader>>> + Send + use<> {
        let observer = Observer {
            client: self.client.clone(),
            key: self.key().clone(),
            source: None,
            seen: None,
            last_term: None,
            look_in: None,
            missed: false,
            pause: FOLLOW_PAUSE,
        };
        stream::unfold(observer, async |mut observer| {
            let sight = observer.next().await;
            Some((sight, observer))
        })
    }

    /// The key that it is about.
    pub fn key(&self) -> &Key {
        self.access.key()
    }

    fn standing_for(&self, value: &[u8]) -> Result<Access> {
        let value = checked_value(value, self.key())?;
        Ok(self.access.clone().noted(|note| note.value = Some(value)))
    }
}

fn checked_value(value: &[u8], key: &Key) -> Result<Arc<[u8]>> {
    if value.len() > NOTE_BYTES_MAX {
        let long = format!("the value has {} bytes, and {NOTE_BYTES_MAX} is the most", value.len());
        return Err(Error::new(ErrorKind::InvalidOption, long).at(key));
    }
    Ok(value.into())
}

fn leader_in(view: &KeyView) -> Option<Leader> {
    let holder = view.holders.first()?;
    let value = holder.note.value.clone().unwrap_or_default();
    Some(Leader { value, token: holder.token?, note: holder.note.clone() })
}

fn lease_left(view: &KeyView) -> Option<Duration> {
    view.holders.first().map(|leader| leader.lease_left)
}

/// Follows one key through the store's changes.
struct Observer {
    client: Arc<Client>,
    key: Key,
    source: Option<BoxStream<'static, Result<KeyView>>>,
    seen: Option<Option<Leader>>,
    last_term: Option<FencingToken>,
    /// When to look by ourselves: nobody announces that a lease has ended, and a look makes the store notice.
    look_in: Option<Duration>,
    /// Whether a look has found what the watch should have told of, and has not yet.
    missed: bool,
    pause: Duration,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            let source = self.source.get_or_insert_with(|| self.client.backend.watch(&self.key));
            let change = match self.look_in {
                Some(span) => self.client.timer.within(span, source.next()).await,
                None => Some(source.next().await),
            };
            match change {
                Some(Some(Ok(view))) => {
                    self.pause = FOLLOW_PAUSE;
                    self.missed = false;
                    self.look_in = lease_left(&view);
                    if let Some(news) = self.news(leader_in(&view)) {
                        return Ok(news);
                    }
                }
                None if self.missed => self.lose_sight(),
                None => self.look().await,
                Some(Some(Err(error))) if !error.is_passing() => {
                    self.lose_sight();
                    return Err(self.client.place_error(error, "observing", &self.key));
                }
                Some(Some(Err(_)) | None) => {
                    self.lose_sight();
                    self.client.timer.sleep(self.client.chance.about(self.pause)).await;
                    self.pause = (self.pause * 2).min(FOLLOW_PAUSE_MAX);
                }
            }
        }
    }

    fn lose_sight(&mut self) {
        self.source = None;
        self.missed = false;
    }

    /// The lease of the leader we saw would be over by now. What a look finds is not told: the watch may have more to tell
    /// that came before. It is only believed to have missed something if it stays silent.
    async fn look(&mut self) {
        self.look_in = Some(self.client.attempt_limit());
        if let Ok(view) = self.client.look_at(&self.key).await {
            self.missed = self.seen != Some(view.as_ref().and_then(leader_in));
            if !self.missed {
                self.look_in = view.as_ref().and_then(lease_left);
            }
        }
    }

    /// Whether that is something we have not told yet.
    fn news(&mut self, leader: Option<Leader>) -> Option<Option<Leader>> {
        if self.seen.as_ref() == Some(&leader) {
            return None;
        }
        if let Some(leader) = &leader {
            if Some(leader.token) < self.last_term {
                return None; // a state that was overtaken by a later one
            }
            self.last_term = Some(leader.token);
        }
        self.seen = Some(leader.clone());
        Some(leader)
    }
}

/// A term as the leader. Dropping it resigns in the background.
#[derive(Debug)]
pub struct Leadership(Guard);

impl Leadership {
    /// The number of this term, larger than that of every term before it.
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// Stands for another value from now on. One request.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the term is over.
    pub async fn proclaim(&mut self, value: impl AsRef<[u8]>) -> Result<()> {
        let value = checked_value(value.as_ref(), self.0.key())?;
        self.0.held_mut().annotate(value).await
    }

    /// Gives up the office and waits until the store has confirmed. [`Lost`](ErrorKind::Lost) if the term was over.
    ///
    /// # Cancel safety
    /// Dropping the future still resigns, in the background.
    pub async fn resign(self) -> Result<()> {
        self.0.release().await
    }

    pub(crate) async fn release(self) -> Result<()> {
        self.resign().await
    }
}

impl Deref for Leadership {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.0
    }
}

impl From<Held> for Leadership {
    fn from(held: Held) -> Self {
        Self(held.into())
    }
}
