//! A session with ZooKeeper and nothing around it: requests leave as they come, and are answered in that order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// As long as a server allows unless told otherwise, and how often it hears from us.
const SESSION_MS: i32 = 40_000;
const PING: Duration = Duration::from_secs(5);

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_CHILDREN: i32 = 8;
const PING_CODE: i32 = 11;

/// What a request is numbered with that nobody waits for by number: answers come in order.
const XID: i32 = 1;
const XID_OF_PING: i32 = -2;

/// Length, number, time of the server, and whether it failed.
const HEADER: usize = 4 + 8 + 4;

/// How a node is made.
#[derive(Clone, Copy)]
pub(super) enum Node {
    Persistent = 0,
    EphemeralSequential = 3,
}

/// The node above it is not there.
pub(super) struct NoParent;

type Answer = (i32, Vec<u8>);

/// A session. The server ends it when the connection is closed and its time is over.
#[derive(Clone)]
pub(super) struct Session {
    requests: mpsc::UnboundedSender<(Vec<u8>, oneshot::Sender<Answer>)>,
}

impl Session {
    pub(super) async fn open(address: &str) -> Self {
        let mut socket = TcpStream::connect(address).await.expect("bare connects");
        socket.set_nodelay(true).expect("set");
        let (version, seen, session, secret) = (0_i32, 0_i64, 0_i64, [0_u8; 16]);
        let mut hello = Vec::new();
        hello.extend(version.to_be_bytes());
        hello.extend(seen.to_be_bytes());
        hello.extend(SESSION_MS.to_be_bytes());
        hello.extend(session.to_be_bytes());
        bytes(&mut hello, &secret);
        socket.write_all(&framed(&hello)).await.expect("sent");
        let length = socket.read_i32().await.expect("a session");
        socket.read_exact(&mut vec![0; length as usize]).await.expect("a session");

        let (requests, queue) = mpsc::unbounded_channel();
        let (reading, writing) = socket.into_split();
        let awaited = Arc::default();
        tokio::spawn(read(reading, Arc::clone(&awaited)));
        tokio::spawn(write(writing, queue, awaited));
        let session = Self { requests };
        tokio::spawn(session.clone().stay_alive());
        session
    }

    /// Ends when the connection does.
    async fn stay_alive(self) {
        let timer = Timer::on_callers_runtime(Clock::boot());
        loop {
            timer.sleep(PING).await;
            let (answer, answered) = oneshot::channel();
            let ping = [XID_OF_PING.to_be_bytes(), PING_CODE.to_be_bytes()].concat();
            if self.requests.send((framed(&ping), answer)).is_err() || answered.await.is_err() {
                return;
            }
        }
    }

    async fn ask(&self, code: i32, body: &[u8]) -> Answer {
        let request = [&XID.to_be_bytes(), &code.to_be_bytes(), body].concat();
        let (answer, answered) = oneshot::channel();
        self.requests.send((framed(&request), answer)).expect("connected");
        answered.await.expect("answered")
    }

    /// Makes a node that anybody may do anything with. Its path.
    pub(super) async fn create(&self, path: &str, node: Node) -> Result<String, NoParent> {
        const NO_NODE: i32 = -101;
        const NODE_EXISTS: i32 = -110;
        let (rules, everything) = (1_i32, 31_i32);
        let mut body = Vec::new();
        bytes(&mut body, path.as_bytes());
        bytes(&mut body, b"");
        body.extend(rules.to_be_bytes());
        body.extend(everything.to_be_bytes());
        bytes(&mut body, b"world");
        bytes(&mut body, b"anyone");
        body.extend((node as i32).to_be_bytes());
        match self.ask(CREATE, &body).await {
            (0, answer) => Ok(strings(&answer, 1).remove(0)),
            (NO_NODE, _) => Err(NoParent),
            (NODE_EXISTS, _) => Ok(path.to_owned()),
            (other, _) => panic!("cannot make {path}: {other}"),
        }
    }

    /// The names of the nodes below a node.
    pub(super) async fn children(&self, path: &str) -> Vec<String> {
        let mut body = Vec::new();
        bytes(&mut body, path.as_bytes());
        body.push(0); // without a watch
        let (failed, answer) = self.ask(GET_CHILDREN, &body).await;
        assert_eq!(failed, 0, "listed");
        let (count, names) = answer.split_first_chunk().expect("a count");
        strings(names, i32::from_be_bytes(*count) as usize)
    }

    pub(super) async fn delete(&self, path: &str) {
        let whichever_version = -1_i32;
        let mut body = Vec::new();
        bytes(&mut body, path.as_bytes());
        body.extend(whichever_version.to_be_bytes());
        assert_eq!(self.ask(DELETE, &body).await.0, 0, "deleted");
    }
}

type Awaited = Arc<Mutex<VecDeque<oneshot::Sender<Answer>>>>;

/// What is ready together leaves together.
async fn write(
    mut socket: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<(Vec<u8>, oneshot::Sender<Answer>)>,
    awaited: Awaited,
) {
    let mut ready = Vec::new();
    while queue.recv_many(&mut ready, 64).await > 0 {
        let mut sent = Vec::new();
        for (request, answer) in ready.drain(..) {
            sent.extend(request);
            awaited.lock().unwrap_or_else(PoisonError::into_inner).push_back(answer);
        }
        if socket.write_all(&sent).await.is_err() {
            return;
        }
    }
}

async fn read(mut socket: OwnedReadHalf, awaited: Awaited) {
    while let Ok(length) = socket.read_i32().await {
        let mut answer = vec![0; length as usize];
        if socket.read_exact(&mut answer).await.is_err() {
            return;
        }
        let body = answer.split_off(HEADER);
        let failed = i32::from_be_bytes(*answer.last_chunk().expect("a header"));
        let asked = awaited.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let _ = asked.expect("an answer to a question").send((failed, body)); // whoever asked may be gone
    }
}

fn framed(request: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    bytes(&mut frame, request);
    frame
}

fn bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend((bytes.len() as i32).to_be_bytes());
    into.extend(bytes);
}

fn strings(mut from: &[u8], count: usize) -> Vec<String> {
    let mut strings = Vec::new();
    for _ in 0..count {
        let (length, rest) = from.split_first_chunk().expect("a length");
        let (string, rest) = rest.split_at(i32::from_be_bytes(*length) as usize);
        strings.push(String::from_utf8(string.to_vec()).expect("a path"));
        from = rest;
    }
    strings
}
