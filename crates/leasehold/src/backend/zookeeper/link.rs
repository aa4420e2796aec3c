//! A connection to one server. Requests leave in the order in which they are made, and answers come back in that order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::backend::socket::Stream;
use crate::backend::zookeeper::fault::Trouble;
use crate::backend::zookeeper::jute::{Reader, Writer};
use crate::backend::zookeeper::request::{Ask, Event, op};
use crate::sync::locked;

/// How much is read at once.
const READ_MAX: usize = 16 * 1024;

/// The longest answer: a line of a hundred thousand names, some times over.
const FRAME_MAX: usize = 64 * 1024 * 1024;

/// Answers that belong to no request by its number.
mod xid {
    pub(super) const EVENT: i32 = -1;
    pub(super) const PING: i32 = -2;
    pub(super) const AUTH: i32 = -4;
}

/// What a request came to: the body of its answer.
pub(super) type Answer = Result<Vec<u8>, Trouble>;

/// What is done with what a server says by itself. `None`: it will say no more.
pub(super) type Hear = Box<dyn Fn(Option<Event>) + Send + Sync>;

/// A connection. It is closed when nobody has it any more.
pub(super) struct Link {
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    inner: Arc<Inner>,
}

struct Inner {
    hear: Hear,
    state: Mutex<State>,
}

struct State {
    last_xid: i32,
    /// Those who wait, in the order of their answers.
    waiting: VecDeque<(i32, oneshot::Sender<Answer>)>,
    /// The last change that was heard of.
    last_zxid: i64,
    broken: bool,
    /// Whether the session is to be closed with the connection.
    retired: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        if locked(&self.inner.state).retired {
            drop(self.send(&[Ask::close_session()]));
        }
    }
}

impl Link {
    /// Must be called on the runtime of the stream, on which a task goes on until the connection is closed. `frames` has
    /// what was read behind the greeting.
    pub(super) fn over(stream: Box<dyn Stream>, frames: Frames, last_zxid: i64, hear: Hear) -> Self {
        let state = State { last_xid: 0, waiting: VecDeque::new(), last_zxid, broken: false, retired: false };
        let inner = Arc::new(Inner { hear, state: Mutex::new(state) });
        let (outgoing, queue) = mpsc::unbounded_channel();
        let mut wire = Wire { stream, frames, queue, writing: Vec::new(), written: 0 };
        let attending = inner.clone();
        tokio::spawn(async move {
            let why = poll_fn(|cx| wire.poll(&attending, cx)).await;
            attending.fail(&why);
        });
        Self { outgoing, inner }
    }

    /// Puts requests behind the others, together. They may have been sent once this was called.
    pub(super) fn send(&self, asks: &[Ask]) -> Vec<oneshot::Receiver<Answer>> {
        let mut bytes = Vec::new();
        let mut answers = Vec::with_capacity(asks.len());
        let mut state = locked(&self.inner.state);
        for ask in asks {
            let xid = match ask.op {
                op::PING => xid::PING,
                op::AUTH => xid::AUTH,
                _ => {
                    state.last_xid = state.last_xid.checked_add(1).unwrap_or(1);
                    state.last_xid
                }
            };
            let frame = Writer::default().int(xid).int(ask.op).raw(&ask.body).bytes();
            bytes.extend(framed(&frame));
            let (sender, answer) = oneshot::channel();
            if state.broken {
                let _ = sender.send(Err(Trouble::NotSent));
            } else {
                state.waiting.push_back((xid, sender));
            }
            answers.push(answer);
        }
        if !state.broken {
            // Under the lock, so that requests leave in the order in which they wait for their answers.
            let _ = self.outgoing.send(bytes);
        }
        answers
    }

    pub(super) fn is_broken(&self) -> bool {
        locked(&self.inner.state).broken
    }

    pub(super) fn last_zxid(&self) -> i64 {
        locked(&self.inner.state).last_zxid
    }

    /// The session of this connection ends with it: once nobody has anything more to ask.
    pub(super) fn retire(&self) {
        locked(&self.inner.state).retired = true;
    }

    /// Gives the connection up.
    pub(super) fn abandon(&self, why: &Trouble) {
        self.inner.fail(why);
    }
}

/// A frame with its length in front.
pub(super) fn framed(frame: &[u8]) -> Vec<u8> {
    Writer::default().buffer(frame).bytes()
}

impl Inner {
    /// There will be no more answers.
    fn fail(&self, why: &Trouble) {
        let waiting = {
            let mut state = locked(&self.state);
            if std::mem::replace(&mut state.broken, true) {
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        for (_, answer) in waiting {
            let _ = answer.send(Err(why.clone())); // whoever asked may have gone
        }
        (self.hear)(None);
    }

    fn hand_out(&self, frame: &[u8]) -> Result<(), Trouble> {
        let mut reader = Reader::over(frame);
        let (xid, zxid, code) = (reader.int()?, reader.long()?, reader.int()?);
        let body = reader.rest();
        if xid == xid::EVENT {
            (self.hear)(Some(Event::parse(body)?));
            return Ok(());
        }
        let answer = {
            let mut state = locked(&self.state);
            state.last_zxid = state.last_zxid.max(zxid);
            // A server answers pings and logins when it likes, and everything else in order.
            let is_next = |(at, (waiting, _)): (usize, &(i32, _))| (*waiting == xid).then_some(at);
            let at = state.waiting.iter().enumerate().find_map(is_next).ok_or(Trouble::Garbled)?;
            if xid > 0 && state.waiting.iter().take(at).any(|(earlier, _)| *earlier > 0) {
                return Err(Trouble::Garbled);
            }
            state.waiting.remove(at).ok_or(Trouble::Garbled)?.1
        };
        let _ = answer.send(if code == 0 { Ok(body.to_vec()) } else { Err(Trouble::Refused(code)) });
        Ok(())
    }
}

/// The socket, and what is on its way.
struct Wire {
    stream: Box<dyn Stream>,
    frames: Frames,
    queue: mpsc::UnboundedReceiver<Vec<u8>>,
    writing: Vec<u8>,
    written: usize,
}

impl Wire {
    /// Writes and reads until there is nothing to do; ready when the connection is over.
    fn poll(&mut self, inner: &Inner, cx: &mut Context<'_>) -> Poll<Trouble> {
        if locked(&inner.state).broken {
            return Poll::Ready(Trouble::Closed);
        }
        let abandoned = loop {
            match self.queue.poll_recv(cx) {
                Poll::Ready(Some(bytes)) => self.writing.extend(bytes),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        match self.poll_write(cx) {
            Poll::Ready(Err(trouble)) => return Poll::Ready(trouble),
            Poll::Ready(Ok(())) if abandoned => return Poll::Ready(Trouble::Closed),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        loop {
            match self.frames.poll_read(&mut self.stream, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(trouble)) => return Poll::Ready(trouble),
                Poll::Ready(Ok(())) => {}
            }
            while let Some(frame) = self.frames.next() {
                if let Err(trouble) = frame.and_then(|frame| inner.hand_out(&frame)) {
                    return Poll::Ready(trouble);
                }
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        while self.written < self.writing.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.writing[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Trouble::Closed)),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Trouble::broke(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.writing.clear();
        self.written = 0;
        Pin::new(&mut self.stream).poll_flush(cx).map_err(Trouble::broke)
    }
}

/// Bytes that were read, cut into frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    next: usize,
}

impl Frames {
    /// Ready when something more has been read.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut Box<dyn Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Trouble>> {
        let mut read = [0; READ_MAX];
        let mut buffer = ReadBuf::new(&mut read);
        match Pin::new(stream).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(Trouble::broke(error))),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(Err(Trouble::Closed)),
            Poll::Ready(Ok(())) => {
                self.bytes.drain(..std::mem::take(&mut self.next));
                self.bytes.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Option<Result<Vec<u8>, Trouble>> {
        let rest = &self.bytes[self.next..];
        let length = Reader::over(rest).int().ok()?;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= FRAME_MAX) else {
            return Some(Err(Trouble::Garbled));
        };
        let frame = rest[4..].get(..length)?.to_vec();
        self.next += 4 + length;
        Some(Ok(frame))
    }
}
