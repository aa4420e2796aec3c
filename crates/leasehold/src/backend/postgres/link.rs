//! A connection to the server, encrypted or not, and what it hears.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error as PgError, NoTls, Row};

use super::address::Settings;
use super::fault;
use super::hub::Hub;
#[cfg(feature = "tls")]
use super::tls::Connector;
#[cfg(not(feature = "tls"))]
use crate::backend::tls::Tls;
use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};

/// A connection that requests are sent on, one behind the other.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    /// How many requests are on their way.
    busy: AtomicUsize,
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
    /// Connects. Must be called on the runtime that is to drive the connection.
    pub(super) async fn open(settings: &Settings, hub: Option<Arc<Hub>>) -> Result<Self> {
        let timer = Timer::on_callers_runtime(Clock::boot());
        let patience = settings.patience;
        let ended = Arc::new(Notify::new());
        let (client, driving) = timer
            .within(patience, connect(settings, hub, ended.clone()))
            .await
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unreachable, "no connection could be made in time")))?;
        Ok(Self { client, busy: AtomicUsize::new(0), timer, patience, driving, ended })
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

    /// Sends a statement and waits for its rows. It has no name on the server, where nothing is left of it: behind a pooler
    /// the next one may go to another server's session. A connection that does not answer in time is cut.
    pub(super) async fn ask(&self, statement: &str, values: &[Value]) -> Result<Vec<Row>, Complaint> {
        self.busy.fetch_add(1, Relaxed);
        let _idle = Idle(&self.busy);
        let values: Vec<_> = values.iter().map(Value::typed).collect();
        match self.timer.within(self.patience, self.client.query_typed(statement, &values)).await {
            Some(Ok(rows)) => Ok(rows),
            Some(Err(error)) => Err(Complaint::Server(error)),
            None => {
                self.driving.abort();
                Err(Complaint::Silence)
            }
        }
    }

    /// The same for a statement without values and rows.
    pub(super) async fn command(&self, statement: &str) -> Result<()> {
        self.ask(statement, &[]).await.map(drop).map_err(|complaint| complaint.error())
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
