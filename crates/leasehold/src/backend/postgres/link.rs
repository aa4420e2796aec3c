//! A connection to the server, encrypted or not, and what it hears.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error as PgError, NoTls, Row, Statement};

use super::address::Settings;
use super::fault;
use super::hub::Hub;
#[cfg(feature = "tls")]
use super::tls::Connector;
#[cfg(not(feature = "tls"))]
use crate::backend::tls::Tls;
use crate::clock::{Moment, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Mutex, locked};

/// A connection that requests are sent on, one behind the other.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    /// What has been sent on it, and what is known by a name since.
    sent: Mutex<HashMap<Box<str>, Option<Statement>>>,
    /// How many requests are on their way.
    busy: AtomicUsize,
    /// When the server last answered anything.
    answered_at: Mutex<Moment>,
    timer: Timer,
    patience: Duration,
    driving: AbortHandle,
    ended: Arc<Notify>,
}

/// A value for a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Bytes(Option<Vec<u8>>),
    Number(i64),
    Flag(bool),
    ManyBytes(Vec<Vec<u8>>),
    Numbers(Vec<i64>),
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(Some(bytes.into()))
    }

    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(text) => (text, Type::TEXT),
            Self::Bytes(bytes) => (bytes, Type::BYTEA),
            Self::Number(number) => (number, Type::INT8),
            Self::Flag(flag) => (flag, Type::BOOL),
            Self::ManyBytes(many) => (many, Type::BYTEA_ARRAY),
            Self::Numbers(numbers) => (numbers, Type::INT8_ARRAY),
        }
    }
}

impl Link {
    /// Connects. Must be called on the runtime that is to drive the connection. Requests are timed by `timer`, which has to last as
    /// long as they do; whoever connects in the background may outlast it.
    pub(super) async fn open(settings: &Settings, timer: &Timer, hub: Option<Arc<Hub>>) -> Result<Self> {
        let (timer, patience) = (timer.clone(), settings.patience);
        let ended = Arc::new(Notify::new());
        let (client, driving) = Timer::on_callers_runtime(timer.clock().clone())
            .within(patience, connect(settings, hub, ended.clone()))
            .await
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unreachable, "no connection could be made in time")))?;
        let (sent, busy, answered_at) = (Mutex::default(), AtomicUsize::new(0), Mutex::new(timer.now()));
        Ok(Self { client, sent, busy, answered_at, timer, patience, driving, ended })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.load(Relaxed)
    }

    /// Resolves when the connection has ended.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Sends a statement and waits for its rows. A connection that says nothing at all for too long is cut. One that answers what was
    /// sent before is not, however many are in front.
    ///
    /// It has no name on the server, where nothing is left of it: behind a pooler the next one may go to another session. If
    /// the session `is_ours`, what is sent a second time is given a name, which costs a trip once, and spares the server the
    /// reading of it from then on.
    pub(super) async fn ask(&self, statement: &str, values: &[Value], is_ours: bool) -> Result<Vec<Row>, Complaint> {
        self.busy.fetch_add(1, Relaxed);
        let _idle = Idle(&self.busy);
        let values: Vec<_> = values.iter().map(Value::typed).collect();
        let answer = async {
            match self.named(statement, &values, is_ours).await? {
                None => self.client.query_typed(statement, &values).await,
                Some(named) => {
                    let values: Vec<_> = values.iter().map(|(value, _)| *value).collect();
                    self.client.query(&named, &values).await
                }
            }
        };
        let (mut answer, mut silent_since) = (pin!(answer), self.timer.now());
        loop {
            let left = self.timer.now().until(silent_since.after(self.patience));
            if let Some(answer) = self.timer.within(left, answer.as_mut()).await {
                *locked(&self.answered_at) = self.timer.now();
                return answer.map_err(Complaint::Server);
            }
            let answered_at = *locked(&self.answered_at);
            if answered_at <= silent_since {
                self.driving.abort();
                return Err(Complaint::Silence);
            }
            silent_since = answered_at;
        }
    }

    /// The name of a statement, if it has one or is to have one.
    async fn named(
        &self,
        statement: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
        is_ours: bool,
    ) -> Result<Option<Statement>, PgError> {
        let before = locked(&self.sent).get(statement).cloned();
        let named = match before {
            _ if !is_ours => return Ok(None),
            Some(Some(named)) => return Ok(Some(named)),
            None => None,
            Some(None) => {
                let types: Vec<Type> = values.iter().map(|(_, of)| of.clone()).collect();
                Some(self.client.prepare_typed(statement, &types).await?)
            }
        };
        locked(&self.sent).insert(statement.into(), named.clone());
        Ok(named)
    }

    /// The same for a statement without values and rows.
    pub(super) async fn command(&self, statement: &str) -> Result<()> {
        self.ask(statement, &[], false).await.map(drop).map_err(|complaint| complaint.error())
    }
}

/// Why there are no rows.
#[derive(Debug)]
pub(super) enum Complaint {
    /// It was not sent, for want of a connection.
    NoConnection(Error),
    Server(PgError),
    Silence,
}

impl Complaint {
    pub(super) fn error(&self) -> Error {
        match self {
            Self::NoConnection(error) => error.clone(),
            Self::Server(error) => fault::of_request(error),
            Self::Silence => Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate(),
        }
    }

    /// Whether two transactions got into each other's way, this one was undone, and another try may well succeed.
    pub(super) fn is_collision(&self) -> bool {
        matches!(self, Self::Server(error) if fault::is_collision(error))
    }

    /// Whether the session is not ours alone after all, and the names of its statements are not those that we gave; or what they
    /// stand for has been replaced. Nothing was done.
    pub(super) fn is_about_names(&self) -> bool {
        use SqlState as Said;
        let names = [Said::INVALID_SQL_STATEMENT_NAME, Said::DUPLICATE_PSTATEMENT, Said::FEATURE_NOT_SUPPORTED];
        matches!(self, Self::Server(error) if error.code().is_some_and(|code| names.contains(code)))
    }

    /// Whether the connection is gone, and what became of the statement unknown.
    pub(super) fn is_break(&self) -> bool {
        matches!(self, Self::Server(error) if fault::is_break(error))
    }
}

struct Idle<'a>(&'a AtomicUsize);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

async fn connect(settings: &Settings, hub: Option<Arc<Hub>>, ended: Arc<Notify>) -> Result<(Client, AbortHandle)> {
    let refused = |error: PgError| fault::of_connecting(&error);
    match &settings.tls {
        None => {
            let (client, connection) = settings.config.connect(NoTls).await.map_err(refused)?;
            Ok((client, tokio::spawn(drive(connection, hub, ended)).abort_handle()))
        }
        #[cfg(feature = "tls")]
        Some(tls) => {
            let connector = Connector(tokio_rustls::TlsConnector::from(tls.config.clone()));
            let (client, connection) = settings.config.connect(connector).await.map_err(refused)?;
            Ok((client, tokio::spawn(drive(connection, hub, ended)).abort_handle()))
        }
        #[cfg(not(feature = "tls"))]
        Some(Tls {}) => unreachable!("an encrypted address is refused without the feature"),
    }
}

/// Reads and writes until the connection ends, and passes on what the server says by itself.
async fn drive<S, T>(mut connection: Connection<S, T>, hub: Option<Arc<Hub>>, ended: Arc<Notify>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let (AsyncMessage::Notification(told), Some(hub)) = (message, &hub) {
            hub.hear(told.channel(), told.payload());
        }
    }
    ended.notify_one();
}
