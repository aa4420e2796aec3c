//! A network that fails on demand: a proxy between a client and its server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{self, shutdown};

use crate::wait::{self, Deadline};
use crate::{Failure, Result, ports};

/// Forwards connections to a target, except for what a test has it do to them. Ended when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    target: SocketAddr,
    network: Arc<Network>,
    door: Mutex<Option<Door>>,
}

/// What all connections of a proxy share.
#[derive(Debug, Default)]
struct Network {
    weather: Mutex<Weather>,
    links: Mutex<Vec<Arc<Link>>>,
}

/// What happens to what is sent.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    delay: Duration,
    swallows: bool,
    replies_to_drop: usize,
}

/// The thread that accepts connections.
#[derive(Debug)]
struct Door {
    listener: Arc<TcpListener>,
    thread: JoinHandle<()>,
}

/// A connection of a client, and the one to the target that belongs to it.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Something of it was swallowed: what came afterwards would follow a hole.
    torn: AtomicBool,
    /// Locked while such a request is passed on, so that it has left before anything is cut.
    drops_reply: Mutex<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

impl Proxy {
    /// Starts a proxy to a server, such as `("127.0.0.1", 6379)`. The server may come and go.
    pub fn start(target: impl ToSocketAddrs) -> Result<Self> {
        let cannot = || Failure::during("cannot start a proxy");
        let target = target.to_socket_addrs().map_err(cannot())?.next();
        let target = target.ok_or_else(|| Failure::new("the target of a proxy has no address"))?;
        loop {
            let port = ports::free()?;
            let proxy = Self { port, target, network: Arc::default(), door: Mutex::default() };
            match proxy.open() {
                Ok(()) => return Ok(proxy),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(cannot()(error)),
            }
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Holds back whatever is sent from now on, in each direction, for so long. Its order stays.
    pub fn delay(&self, delay: Duration) {
        self.network.weather().delay = delay;
    }

    /// Accepts and reads, but passes nothing on, not even that a side has hung up: a network that is down.
    pub fn blackhole(&self) {
        self.network.weather().swallows = true;
    }

    /// Closes all connections, now.
    pub fn cut(&self) {
        for link in self.network.links().drain(..) {
            link.cut();
        }
    }

    /// Refuses new connections. Those that are open stay.
    pub fn refuse(&self) {
        if let Some(Door { listener, thread }) = self.door().take() {
            // Not by closing it alone: a process that is just being started has it open too, until it runs its program.
            shutdown(&listener, net::Shutdown::Read).expect("a listener can be shut down");
            let _ = thread.join();
        }
    }

    /// Passes the next so many requests on, but closes their connections in place of the replies: the server acts, and the
    /// client cannot know. A request is what arrives in one piece, on whichever connection.
    pub fn drop_replies(&self, count: usize) {
        self.network.weather().replies_to_drop = count;
    }

    /// Forwards again. Connections of which something was swallowed are closed: they cannot go on behind a hole.
    ///
    /// # Panics
    /// If another process has taken the port while it was refused.
    #[track_caller]
    pub fn heal(&self) {
        *self.network.weather() = Weather::default();
        for link in self.network.links().extract_if(.., |link| link.torn.load(Ordering::Acquire)) {
            link.cut();
        }
        if self.door().is_none() {
            self.open().expect("the proxy's port is free");
        }
    }

    fn open(&self) -> std::io::Result<()> {
        let listener = Arc::new(TcpListener::bind(self.address())?);
        let (network, target, accepting) = (Arc::clone(&self.network), self.target, Arc::clone(&listener));
        let accept = move || {
            for client in accepting.incoming() {
                // That is what a listener says that was shut down.
                if client.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput) {
                    return;
                }
                let network = Arc::clone(&network);
                // On a thread of its own, because connecting to the target may take a while.
                thread::spawn(move || client.and_then(|client| network.connect(client, target)));
            }
        };
        *self.door() = Some(Door { listener, thread: thread::spawn(accept) });
        Ok(())
    }

    fn door(&self) -> MutexGuard<'_, Option<Door>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.cut();
    }
}

impl Network {
    /// A target that cannot be reached closes the client's connection.
    fn connect(self: &Arc<Self>, client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
        let server = TcpStream::connect(target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let link = Arc::new(Link { client, server, torn: AtomicBool::new(false), drops_reply: Mutex::new(false) });
        let mut links = self.links();
        links.retain(|link| Arc::strong_count(link) > 1 || link.torn.load(Ordering::Acquire));
        links.push(Arc::clone(&link));
        for direction in [Direction::Request, Direction::Reply] {
            let (sender, pieces) = mpsc::channel();
            let (network, reading, writing) = (Arc::clone(self), Arc::clone(&link), Arc::clone(&link));
            thread::spawn(move || {
                network.read(&reading, direction, &sender);
            });
            let network = Arc::clone(self);
            thread::spawn(move || network.write(&writing, direction, &pieces));
        }
        Ok(())
    }

    /// Takes what comes from one side, and notes when it may go to the other. An empty piece says that no more will come.
    fn read(&self, link: &Link, direction: Direction, pieces: &mpsc::Sender<(Deadline, Vec<u8>)>) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = match link.from(direction).read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0, // one that was reset has ended too
            };
            let due = Deadline::after(self.weather().delay);
            if pieces.send((due, buffer[..count].to_vec())).is_err() || count == 0 {
                return;
            }
        }
    }

    /// Passes pieces on when they are due. What happens to one is decided then, and not when it came.
    fn write(&self, link: &Link, direction: Direction, pieces: &mpsc::Receiver<(Deadline, Vec<u8>)>) {
        for (due, piece) in pieces {
            wait::sleep(due.left());
            let mut drops_reply = link.drops_reply.lock().unwrap_or_else(PoisonError::into_inner);
            {
                let mut weather = self.weather();
                if weather.swallows {
                    link.torn.store(true, Ordering::Release);
                    continue;
                }
                if direction == Direction::Request && !piece.is_empty() && weather.replies_to_drop > 0 {
                    weather.replies_to_drop -= 1;
                    *drops_reply = true;
                }
            }
            match (direction, *drops_reply) {
                (Direction::Request, true) => {}
                (Direction::Reply, true) => {
                    link.cut();
                    return;
                }
                // Not held while writing: a client that does not listen for a while may go on to ask.
                (_, false) => drop(drops_reply),
            }
            if piece.is_empty() {
                let _ = link.to(direction).shutdown(Shutdown::Write);
            } else if link.to(direction).write_all(&piece).is_err() {
                link.cut();
                return;
            }
        }
    }

    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    fn from(&self, direction: Direction) -> &TcpStream {
        match direction {
            Direction::Request => &self.client,
            Direction::Reply => &self.server,
        }
    }

    fn to(&self, direction: Direction) -> &TcpStream {
        match direction {
            Direction::Request => &self.server,
            Direction::Reply => &self.client,
        }
    }

    /// Fails only where the other side was quicker.
    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
