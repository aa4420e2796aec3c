//! The connections of one runtime: made when needed, replaced when broken, and found by the slot of a key.
//!
//! The crate's own client for clusters is not used: it sends a request again whose answer was lost, and a lock must know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::future::try_join;
use redis::{PushKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;

use crate::backend::redis::command::Command;
use crate::backend::redis::fault;
use crate::backend::redis::hub::Hub;
use crate::backend::redis::pipe::{Hear, Pipe};
use crate::backend::redis::scripts::{Layout, Script, Scripts};
use crate::backend::redis::together::Joinable;
use crate::backend::redis::topology::{Route, Servers, Topology};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;
use crate::url::Host;

/// How often a request follows a key that has moved before it gives up.
const REDIRECTS_MAX: usize = 4;

/// What all connections of a client have in common.
pub(super) struct Settings {
    pub(super) topology: Topology,
    pub(super) layout: Layout,
    pub(super) scripts: &'static Scripts,
    /// What the channels of this client begin with.
    pub(super) client: String,
    /// How many replicas must confirm a grant.
    pub(super) replicas: u32,
}

pub(super) struct Wire {
    pub(super) settings: Arc<Settings>,
    /// The channel on which entries are heard of that are made over these connections.
    pub(super) channel: String,
    /// A connection broke, or there is something else to listen to.
    pub(super) stirred: Arc<Notify>,
    hear: Hear,
    state: Mutex<State>,
    /// Held by whoever makes a connection or asks for the route, so that a hundred waiters make one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    route: Option<Arc<Route>>,
    links: HashMap<Host, Link>,
    /// Tells a connection from the one that replaced it.
    opened: u64,
}

/// A connection to one server.
#[derive(Clone)]
pub(super) struct Link {
    host: Arc<Host>,
    pub(super) pipe: Pipe,
    number: u64,
}

impl Wire {
    /// Connections that tell the hub what they hear, on a channel of the client's that ends so.
    pub(super) fn new(settings: Arc<Settings>, channel: &str, hub: &Arc<Hub>, stirred: Arc<Notify>) -> Self {
        let channel = format!("{}:{channel}", settings.client);
        let hear: Hear = {
            let (hub, stirred) = (hub.clone(), stirred.clone());
            Arc::new(move |push| match push.kind {
                PushKind::Disconnection => {
                    hub.doubt_kept();
                    stirred.notify_one();
                }
                _ => hub.hear(push),
            })
        };
        let (state, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { settings, channel, stirred, hear, state, opening }
    }

    /// Whether keys are spread over servers by their slots.
    pub(super) fn has_slots(&self) -> bool {
        matches!(self.settings.topology.servers, Servers::Cluster(_))
    }

    /// Calls a script on whoever has that slot. Tells by which connection it was answered. It is sent once, unless the server says that it did nothing.
    pub(super) async fn ask(&self, slot: u16, script: &Script, call: &Command) -> Result<(Value, Link)> {
        let mut link = self.link_to(slot).await?;
        let mut asking = false;
        for _ in 0..REDIRECTS_MAX {
            let error = match link.send(script, call, asking).await {
                Ok(answer) => return Ok((answer, link)),
                Err(error) => error,
            };
            asking = matches!(error.kind(), redis::ErrorKind::Server(ServerErrorKind::Ask));
            let moved_to = error.redirect_node().and_then(|(address, _)| host_of(address, &link.host));
            let Some(host) = moved_to else {
                self.learn_from(&error, &link);
                return Err(fault::of_request(&error));
            };
            if !asking {
                locked(&self.state).route = None;
            }
            link = self.link(&host).await?;
        }
        Err(Error::new(ErrorKind::Unreachable, "the key keeps moving between the cluster's nodes"))
    }

    /// Sends commands to whoever has that slot. No answer, if the server refused one of them.
    pub(super) async fn send(&self, slot: u16, commands: &Command) -> Result<(Option<Value>, Link)> {
        let link = self.link_to(slot).await?;
        let answer = match link.pipe.ask(commands).await {
            Ok(answer) => Some(answer),
            Err(error) => self.refused(&error, &link)?,
        };
        Ok((answer, link))
    }

    /// The same, together with whatever else leaves for that server. One that has forgotten our scripts is told of the one
    /// that does many, and of the one that must follow now.
    pub(super) async fn send_together(
        &self,
        slot: u16,
        request: &dyn Joinable,
        follows: &Script,
    ) -> Result<Option<Value>> {
        let link = self.link_to(slot).await?;
        let error = match link.pipe.ask_together(request).await {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) {
            let loaded = try_join(self.settings.scripts.leave_many.load(&link.pipe), follows.load(&link.pipe)).await;
            loaded.map_err(|error| fault::of_request(&error))?;
        }
        self.refused(&error, &link)
    }

    fn refused(&self, error: &RedisError, link: &Link) -> Result<Option<Value>> {
        if matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension) {
            return Ok(None);
        }
        self.learn_from(error, link);
        Err(fault::of_request(error))
    }

    /// A connection to whoever has that slot.
    pub(super) async fn link_to(&self, slot: u16) -> Result<Link> {
        let known = {
            let state = locked(&self.state);
            let host = state.route.as_ref().map(|route| route.host(slot));
            host.and_then(|host| state.links.get(host)).filter(|link| !link.pipe.is_broken()).cloned()
        };
        match known {
            Some(link) => Ok(link),
            None => {
                let route = self.route().await?;
                self.link(route.host(slot)).await
            }
        }
    }

    /// Who has which keys.
    pub(super) async fn route(&self) -> Result<Arc<Route>> {
        let _only_one = self.opening.lock().await;
        if let Some(route) = locked(&self.state).route.clone() {
            return Ok(route);
        }
        let route = Arc::new(self.settings.topology.route().await?);
        locked(&self.state).route = Some(route.clone());
        Ok(route)
    }

    /// A connection to that server.
    pub(super) async fn link(&self, host: &Host) -> Result<Link> {
        let _only_one = self.opening.lock().await;
        if let Some(link) = locked(&self.state).links.get(host).filter(|link| !link.pipe.is_broken()) {
            return Ok(link.clone());
        }
        let pipe = match self.settings.topology.connect(host, Some(self.hear.clone())).await {
            Ok(pipe) => pipe,
            Err(error) => {
                // It may no longer be the one to ask.
                locked(&self.state).route = None;
                return Err(error);
            }
        };
        let mut state = locked(&self.state);
        state.opened += 1;
        let link = Link { host: Arc::new(host.clone()), pipe, number: state.opened };
        state.links.insert(host.clone(), link.clone());
        Ok(link)
    }

    /// Forgets a connection, unless it has been replaced already.
    pub(super) fn forget(&self, link: &Link) {
        let mut state = locked(&self.state);
        if state.links.get(&*link.host).is_some_and(|known| known.number == link.number) {
            state.links.remove(&*link.host);
        }
        state.route = None;
    }

    fn learn_from(&self, error: &RedisError, link: &Link) {
        use ServerErrorKind as Server;
        match error.kind() {
            redis::ErrorKind::Server(Server::ReadOnly | Server::MasterDown | Server::ClusterDown) => self.forget(link),
            redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => {}
            _ => self.forget(link),
        }
    }
}

impl Link {
    /// Calls a script, for a key that this server is about to have if it is `asking`.
    async fn send(&self, script: &Script, call: &Command, asking: bool) -> Result<Value, RedisError> {
        if asking {
            let answers = script.call(&self.pipe, &Command::of(1).part(b"ASKING").before(call)).await?;
            Ok(answers.into_sequence().unwrap_or_default().pop().unwrap_or(Value::Nil))
        } else {
            script.call(&self.pipe, call).await
        }
    }

    /// Listens on that channel, on this connection.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<()> {
        self.command(&Command::of(2).part(b"SUBSCRIBE").part(channel.as_bytes())).await.map(drop)
    }

    /// Stops listening.
    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.command(&Command::of(2).part(b"UNSUBSCRIBE").part(channel.as_bytes())).await.map(drop)
    }

    /// Sends a command to this very server.
    pub(super) async fn command(&self, command: &Command) -> Result<Value> {
        self.pipe.ask(command).await.map_err(|error| fault::of_request(&error))
    }
}

/// `host:port`, where an empty host is the one that said so.
fn host_of(address: &str, told_by: &Host) -> Option<Host> {
    let (name, port) = address.rsplit_once(':')?;
    let name = if name.is_empty() { &told_by.name } else { name };
    Some(Host { name: name.trim_matches(['[', ']']).into(), port: port.parse().ok()? })
}
