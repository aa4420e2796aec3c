//! Which server is asked, and how: one connection for everything, replaced by one to the next server when it fails or falls
//! silent. So whoever is heard at all is heard by a server that answers.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::uri::Authority;
use prost::Message;
use tokio::sync::{mpsc, watch};

use crate::backend::etcd::grpc::{Channel, Status, Streaming};
use crate::backend::etcd::joined::Joined;
use crate::backend::etcd::message::{self, Authenticate, Authenticated, Empty};
use crate::backend::etcd::{fault, health};
use crate::backend::tls::Tls;
use crate::clock::Timer;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;
use crate::url::Host;

/// Says who asks, to a server that knows us.
const TOKEN: HeaderName = HeaderName::from_static("token");

/// Without it, a member that is cut off from the others goes on with a stream as if nothing happened there.
const HAS_LEADER: (HeaderName, HeaderValue) = (HeaderName::from_static("hasleader"), HeaderValue::from_static("true"));

/// What connections are made with.
pub(super) struct Settings {
    pub(super) hosts: Vec<Host>,
    pub(super) login: Option<(String, String)>,
    pub(super) tls: Option<Tls>,
    /// How long a connection may take to be made, and a request to be answered, before the next server is tried.
    pub(super) patience: Duration,
}

pub(super) struct Wire {
    pub(super) settings: Arc<Settings>,
    pub(super) timer: Timer,
    current: Mutex<Current>,
    connecting: Joined<Result<Arc<Link>>>,
    /// The number of the connection that was replaced last.
    replaced: watch::Sender<u64>,
    /// Whose server is this one's too: what that one has left, this one does not go on with.
    beside: Option<Arc<Wire>>,
}

#[derive(Default)]
struct Current {
    link: Option<Arc<Link>>,
    /// Which server is tried first when a connection is needed.
    host: usize,
    links: u64,
    /// Which connection of the one beside it was replaced last, as far as this one knows.
    replaced_beside: u64,
}

/// A connection to one server.
pub(super) struct Link {
    number: u64,
    pub(super) host: Host,
    channel: Channel,
    token: Option<HeaderValue>,
}

impl Current {
    /// The connection, unless it has ended while nobody asked for anything: that is no request's fault, and no server's.
    fn open_link(&self) -> Option<Arc<Link>> {
        self.link.clone().filter(|link| !link.channel.has_ended())
    }
}

impl Wire {
    pub(super) fn new(settings: Arc<Settings>, timer: Timer) -> Self {
        let (current, connecting) = (Mutex::default(), Joined::new());
        Self { settings, timer, current, connecting, replaced: watch::Sender::new(0), beside: None }
    }

    /// One more to the same server, which is made where it is first used.
    pub(super) fn another(self: &Arc<Self>, timer: Timer) -> Self {
        let wire = Self { beside: Some(self.clone()), ..Self::new(self.settings.clone(), timer) };
        locked(&wire.current).host = locked(&self.current).host;
        wire
    }

    /// The connection that is in use, made if there is none.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Arc<Link>> {
        if let Some(link) = self.known() {
            return Ok(link);
        }
        let wire = self.clone();
        self.connecting.join(|| async move { wire.connect().await }).await
    }

    fn known(&self) -> Option<Arc<Link>> {
        let mut current = locked(&self.current);
        if let Some(beside) = &self.beside {
            let replaced = *beside.replaced.borrow();
            if replaced != current.replaced_beside {
                let host = locked(&beside.current).host;
                *current = Current { link: None, host, replaced_beside: replaced, ..*current };
            }
        }
        current.open_link()
    }

    async fn connect(&self) -> Result<Arc<Link>> {
        let (first, number) = {
            let mut current = locked(&self.current);
            if let Some(link) = current.open_link() {
                return Ok(link);
            }
            current.links += 1;
            (current.host, current.links)
        };
        let hosts = &self.settings.hosts;
        let mut failure = None;
        for nth in 0..hosts.len() {
            let at = (first + nth) % hosts.len();
            let connected = match self.connect_to(&hosts[at], number).await {
                Ok(link) => self.fit(&link).await.map(|()| link),
                failed => failed,
            };
            match connected {
                Ok(link) => {
                    let link = Arc::new(link);
                    let mut current = locked(&self.current);
                    (current.link, current.host) = (Some(link.clone()), at);
                    return Ok(link);
                }
                // No other server would say anything else.
                Err(error) if error.kind() != ErrorKind::Unreachable => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("an address names at least one server").with_no_effect())
    }

    /// A connection to that server, and nothing else.
    pub(super) async fn connect_to(&self, host: &Host, number: u64) -> Result<Link> {
        let unreachable = |why: String| Error::new(ErrorKind::Unreachable, format!("{host}: {why}"));
        let invalid = |_| Error::option("url", "has a host that is no name and no address");
        let authority = Authority::try_from(host.to_string()).map_err(invalid)?;
        let connecting = Channel::connect(host, authority, self.settings.tls.as_ref());
        let channel = match self.timer.within(self.settings.patience, connecting).await {
            Some(Ok(channel)) => channel,
            Some(Err(cause)) => return Err(unreachable(cause.to_string())),
            None => return Err(unreachable("no connection in time".into())),
        };
        let mut link = Link { number, host: host.clone(), channel, token: None };
        if let Some((name, password)) = &self.settings.login {
            let login = Authenticate { name: name.clone(), password: password.clone() };
            let answer = link.unary::<_, Authenticated>("/etcdserverpb.Auth/Authenticate", login);
            let answer = self.timer.within(self.settings.patience, answer).await;
            let answer = answer.ok_or_else(|| unreachable("no answer in time".into()))?;
            let token = answer.map_err(|status| fault::of(&status).with_no_effect())?.token;
            let token =
                HeaderValue::try_from(token).map_err(|_| Error::new(ErrorKind::Protocol, "an unreadable token"))?;
            link.token = Some(token);
        }
        Ok(link)
    }

    /// Whether a server is worth asking. One that is cut off from the others may still accept connections.
    async fn fit(&self, link: &Link) -> Result<()> {
        let unfit = |why: String| Error::new(ErrorKind::Unreachable, format!("{}: {why}", link.host));
        let status = link.unary::<_, message::Status>("/etcdserverpb.Maintenance/Status", Empty {});
        match self.timer.within(self.settings.patience, status).await {
            None => Err(unfit("no answer in time".into())),
            Some(Err(status)) if fault::of_this_server(&status) => Err(unfit(status.message)),
            Some(Ok(status)) if status.leader == 0 => Err(unfit("it knows of no leader".into())),
            Some(Ok(status)) if status.is_learner => Err(unfit("it is a learner, which answers few requests".into())),
            Some(Ok(status)) => health::admit(&status, &link.host),
            // One that does not tell such things to everybody answers, which is enough.
            Some(_) => Ok(()),
        }
    }

    /// Whoever needs a connection next is given another one.
    pub(super) fn replace(&self, link: &Link) {
        let mut current = locked(&self.current);
        if current.link.as_ref().is_some_and(|current| current.number == link.number) {
            current.link = None;
            current.host = (current.host + 1) % self.settings.hosts.len();
            drop(current);
            self.replaced.send_replace(link.number);
        }
    }

    /// Resolves when that connection is not in use any more.
    pub(super) async fn replaced(&self, link: &Link) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.replaced.subscribe().wait_for(|number| *number >= link.number).await;
    }

    /// Asks once for something that changes nothing, however often it is asked.
    pub(super) async fn read<Q: Message + Clone, A: Message + Default>(
        self: &Arc<Self>,
        path: &'static str,
        query: Q,
    ) -> Result<A> {
        self.call(path, query).await.map_err(Error::with_no_effect)
    }

    /// Asks once. A server that has forgotten who we are did nothing, and is told again.
    pub(super) async fn call<Q: Message + Clone, A: Message + Default>(
        self: &Arc<Self>,
        path: &'static str,
        query: Q,
    ) -> Result<A> {
        let link = self.link().await?;
        // Only whoever logged in can be forgotten.
        let again = self.settings.login.is_some().then(|| query.clone());
        let answer = match (self.bounded(&link, link.unary(path, query)).await?, again) {
            (Err(status), Some(query)) if fault::forgot_us(&status) => {
                self.replace(&link);
                let link = self.link().await?;
                self.bounded(&link, link.unary(path, query)).await?
            }
            (answer, _) => answer,
        };
        answer.map_err(|status| fault::of(&status))
    }

    /// One message on a stream of its own, and the first that comes back.
    pub(super) async fn call_on_stream<Q: Message + Clone, A: Message + Default>(
        self: &Arc<Self>,
        path: &'static str,
        query: Q,
    ) -> Result<A> {
        let link = self.link().await?;
        let (sender, queries) = mpsc::unbounded_channel();
        let _ = sender.send(query); // we have the receiver
        let answer = async {
            let answer = link.stream::<Q, A>(path, queries).await?.message().await?;
            drop(sender); // not sooner: its end would be ours
            answer.ok_or_else(|| Status::unavailable("the server ended the stream"))
        };
        self.bounded(&link, answer).await?.map_err(|status| fault::of(&status))
    }

    /// Waits for an answer as long as is sensible. A server that has none is not asked again before the others.
    pub(super) async fn bounded<T>(
        &self,
        link: &Link,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<Result<T, Status>> {
        match self.timer.within(self.settings.patience, answer).await {
            Some(answer) => {
                if answer.as_ref().is_err_and(fault::of_this_server) {
                    self.replace(link);
                }
                Ok(answer)
            }
            None => {
                self.replace(link);
                Err(Error::new(ErrorKind::Unreachable, format!("{}: no answer in time", link.host)).with_unknown_fate())
            }
        }
    }
}

impl Link {
    pub(super) async fn unary<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        query: Q,
    ) -> Result<A, Status> {
        match &self.token {
            None => self.channel.unary(path, &[], &query).await,
            Some(token) => self.channel.unary(path, &[(TOKEN, token.clone())], &query).await,
        }
    }

    /// Opens a stream. The server does not answer before it has been told something.
    pub(super) async fn stream<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        queries: mpsc::UnboundedReceiver<Q>,
    ) -> Result<Streaming<Q, A>, Status> {
        let token = self.token.clone().map(|token| (TOKEN, token));
        let more: Vec<(HeaderName, HeaderValue)> = [HAS_LEADER].into_iter().chain(token).collect();
        self.channel.stream(path, &more, queries).await
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}
