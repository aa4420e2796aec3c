//! gRPC on one connection: as much of it as etcd's API needs.
//!
//! A request leaves in one packet with its message, from the task that makes it
//! ([why not by a crate](../../../../../docs/decisions/0040-etcd-grpc-in-one-packet.md)).

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use prost::Message;
use prost::bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::sync::mpsc;

use crate::backend::socket::{self, Stream};
use crate::backend::tls::Tls;
use crate::url::Host;

/// The largest answer that is read: the keys of a namespace with some hundred thousand locks.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// How much a server may send of one answer, and of all, before it hears that we have read it: a long list is sent without a
/// pause, and does not keep others from theirs.
const ANSWER_WINDOW: u32 = 2 << 20;
const ANSWERS_WINDOW: u32 = 8 << 20;

/// A message is preceded by whether it is compressed, and by its length.
const PREFIX: usize = 5;

/// Why there is no answer: the server's own words, or what became of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: String,
}

/// What sort of reason that is, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
    Unauthenticated,
    /// Something of this request.
    Other,
    /// The server is in no state to answer, or cannot be reached.
    Unavailable,
}

impl Code {
    /// By the number that gRPC gives it.
    fn of(number: u8) -> Self {
        match number {
            3 => Self::InvalidArgument,
            5 => Self::NotFound,
            6 | 15 => Self::Other,
            7 => Self::PermissionDenied,
            8 => Self::ResourceExhausted,
            9 => Self::FailedPrecondition,
            11 => Self::OutOfRange,
            12 => Self::Unimplemented,
            16 => Self::Unauthenticated,
            _ => Self::Unavailable,
        }
    }
}

impl Status {
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: Code::Unavailable, message: message.into() }
    }

    /// What a server says at the end of an answer, or in place of one. `None` if it says nothing of the kind.
    fn of(headers: &HeaderMap) -> Option<Result<(), Self>> {
        let number = headers.get("grpc-status")?.to_str().ok().and_then(|number| number.parse().ok());
        if number == Some(0) {
            return Some(Ok(()));
        }
        let said = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
        let message = percent_decode_str(said).decode_utf8_lossy().into_owned();
        Some(Err(Self { code: number.map_or(Code::Unavailable, Code::of), message }))
    }
}

impl From<h2::Error> for Status {
    fn from(error: h2::Error) -> Self {
        Self::unavailable(error.get_io().map_or_else(|| error.to_string(), ToString::to_string))
    }
}

/// A connection. It is closed when nobody has it any more and nothing is under way on it.
#[derive(Clone)]
pub(super) struct Channel {
    requests: SendRequest<Bytes>,
    scheme: Scheme,
    authority: Authority,
}

impl Channel {
    /// Must be called on the runtime that is to drive the connection.
    pub(super) async fn connect(host: &Host, authority: Authority, tls: Option<&Tls>) -> io::Result<Self> {
        let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        Self::over(socket::connect(host, tls).await?, scheme, authority).await
    }

    async fn over(stream: impl Stream + 'static, scheme: Scheme, authority: Authority) -> io::Result<Self> {
        let (requests, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(ANSWER_WINDOW)
            .initial_connection_window_size(ANSWERS_WINDOW)
            .handshake(stream)
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(async move { drop(connection.await) }); // whoever asks is told why it ended
        Ok(Self { requests, scheme, authority })
    }

    /// Whether nothing can be asked on it any more, as far as is known.
    pub(super) fn has_ended(&self) -> bool {
        // A copy of its own is ready at once, or never.
        matches!(self.requests.clone().poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
    }

    /// One message, and the one that answers it.
    pub(super) async fn unary<A: Message + Default>(
        &self,
        path: &'static str,
        more: &[(HeaderName, HeaderValue)],
        query: &impl Message,
    ) -> Result<A, Status> {
        let (answer, mut outgoing) = self.begin(path, more).await?;
        outgoing.send_data(framed(query), true)?;
        let mut answers = Answers::of(answer.await?)?;
        let answer = poll_fn(|cx| answers.poll_next(cx)).await?;
        // What it comes to is said behind the message.
        match (answer, poll_fn(|cx| answers.poll_next::<A>(cx)).await?) {
            (Some(answer), None) => Ok(answer),
            _ => Err(Status::unavailable("the server did not answer with one message")),
        }
    }

    /// Sends messages as they come, until there will be no more, and hears those that come back. The server does not answer
    /// before it has been told something.
    pub(super) async fn stream<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        more: &[(HeaderName, HeaderValue)],
        queries: mpsc::UnboundedReceiver<Q>,
    ) -> Result<Streaming<Q, A>, Status> {
        let (mut answer, outgoing) = self.begin(path, more).await?;
        let mut sending = Sending { queries, outgoing: Some(outgoing) };
        let answers = poll_fn(|cx| {
            sending.poll_send(cx);
            Pin::new(&mut answer).poll(cx)
        });
        let answers = Answers::of(answers.await?)?;
        Ok(Streaming { sending, answers, of: PhantomData })
    }

    async fn begin(
        &self,
        path: &'static str,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Status> {
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static(path));
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_parts(parts).expect("it has all three of them");
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.extend(more.iter().cloned());
        Ok(self.requests.clone().ready().await?.send_request(request, false)?)
    }
}

/// Messages in both directions. Those to the server leave while one from it is awaited.
pub(super) struct Streaming<Q, A> {
    sending: Sending<Q>,
    answers: Answers,
    of: PhantomData<fn() -> A>,
}

impl<Q: Message, A: Message + Default> Streaming<Q, A> {
    /// The next message, or `None` if the server has no more. Nothing is lost if this is dropped.
    pub(super) async fn message(&mut self) -> Result<Option<A>, Status> {
        poll_fn(|cx| {
            self.sending.poll_send(cx);
            self.answers.poll_next(cx)
        })
        .await
    }
}

struct Sending<Q> {
    queries: mpsc::UnboundedReceiver<Q>,
    /// Until everything has been said.
    outgoing: Option<SendStream<Bytes>>,
}

impl<Q: Message> Sending<Q> {
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while let Some(outgoing) = &mut self.outgoing {
            let Poll::Ready(query) = self.queries.poll_recv(cx) else { return };
            let is_last = query.is_none();
            let sent = outgoing.send_data(query.map_or_else(Bytes::new, |query| framed(&query)), is_last);
            // Why it cannot be sent is told to whoever reads.
            if is_last || sent.is_err() {
                self.outgoing = None;
            }
        }
    }
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("what is asked is short"));
    message.encode(&mut frame).expect("a buffer grows");
    frame.freeze()
}

/// What comes back.
struct Answers {
    incoming: RecvStream,
    read: BytesMut,
}

impl Answers {
    fn of(response: Response<RecvStream>) -> Result<Self, Status> {
        if response.status() != StatusCode::OK {
            return Err(Status::unavailable(format!("the server answers with HTTP status {}", response.status())));
        }
        Status::of(response.headers()).unwrap_or(Ok(()))?;
        Ok(Self { incoming: response.into_body(), read: BytesMut::new() })
    }

    fn poll_next<A: Message + Default>(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<A>, Status>> {
        loop {
            if let Some(message) = self.taken()? {
                return Poll::Ready(Ok(Some(message)));
            }
            match ready!(self.incoming.poll_data(cx)) {
                Some(chunk) => {
                    let chunk = chunk?;
                    self.incoming.flow_control().release_capacity(chunk.len())?;
                    self.read.extend_from_slice(&chunk);
                }
                None => {
                    let trailers = ready!(self.incoming.poll_trailers(cx))?;
                    let ended = trailers.as_ref().and_then(Status::of);
                    let ended = ended.unwrap_or_else(|| Err(Status::unavailable("the server ended the stream")));
                    return Poll::Ready(ended.map(|()| None));
                }
            }
        }
    }

    /// The first message of what was read, if it is there to its end.
    fn taken<A: Message + Default>(&mut self) -> Result<Option<A>, Status> {
        let Some((prefix, rest)) = self.read.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 || length > ANSWER_BYTES_MAX {
            return Err(Status::unavailable("the server answers with something that is no message for us"));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = A::decode(message).map_err(|cause| Status::unavailable(cause.to_string()))?;
        self.read.advance(PREFIX + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use futures_util::FutureExt as _;
    use futures_util::future::join;
    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

    use super::*;
    use crate::backend::etcd::message::Authenticated;

    type Server = h2::server::Connection<DuplexStream, Bytes>;

    /// One end of a connection, which counts how often it is written to.
    struct Counting(DuplexStream, Arc<AtomicUsize>);

    impl AsyncRead for Counting {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counting {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.1.fetch_add(1, Relaxed);
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    async fn connected() -> (Channel, Server, Arc<AtomicUsize>) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let written = Arc::new(AtomicUsize::new(0));
        let channel = Channel::over(Counting(ours, written.clone()), Scheme::HTTP, Authority::from_static("h:1"));
        let (channel, server) = join(channel, h2::server::handshake(theirs)).await;
        (channel.unwrap(), server.unwrap(), written)
    }

    /// Any message will do.
    fn message(token: &str) -> Authenticated {
        Authenticated { token: token.into() }
    }

    fn trailers(status: &str, message: &str) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        trailers.insert("grpc-message", message.parse().unwrap());
        trailers
    }

    /// What comes of a request that is answered with these bytes, and then so.
    async fn answered(status: StatusCode, chunks: &[&[u8]], end: Option<HeaderMap>) -> Result<Authenticated, Status> {
        let (channel, mut server, _) = connected().await;
        let query = message("?");
        let asking = channel.unary("/a/b", &[], &query);
        let answering = async {
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            let response = Response::builder().status(status).body(()).unwrap();
            let mut sending = respond.send_response(response, false).unwrap();
            for chunk in chunks {
                sending.send_data(Bytes::copy_from_slice(chunk), false).unwrap();
            }
            match end {
                Some(trailers) => sending.send_trailers(trailers).unwrap(),
                None => sending.send_data(Bytes::new(), true).unwrap(),
            }
            drop(server.accept().await);
        };
        tokio::select! {
            answer = asking => answer,
            () = answering => unreachable!("nobody closes the connection"),
        }
    }

    #[tokio::test]
    async fn a_request_and_its_message_are_written_at_once() {
        let (channel, mut server, written) = connected().await;
        for _ in 0..3 {
            let before = written.load(Relaxed);
            let query = message("what is asked");
            let (more, mut seen) = ([(TE, HeaderValue::from_static("trailers"))], 0);
            let asking = channel.unary::<Authenticated>("/a/b", &more, &query);
            let answering = async {
                let (request, mut respond) = server.accept().await.unwrap().unwrap();
                assert_eq!(request.uri(), "http://h:1/a/b");
                assert_eq!(request.headers()[CONTENT_TYPE], "application/grpc");
                let mut body = request.into_body();
                let said = tokio::select! {
                    said = body.data() => said.unwrap().unwrap(),
                    _ = server.accept() => unreachable!("nobody asks for anything else"),
                };
                assert_eq!(said, framed(&query));
                seen = written.load(Relaxed);
                let mut sending = respond.send_response(Response::new(()), false).unwrap();
                sending.send_data(framed(&message("an answer")), false).unwrap();
                sending.send_trailers(trailers("0", "")).unwrap();
                drop(server.accept().await);
            };
            tokio::select! {
                answer = asking => assert_eq!(answer.unwrap(), message("an answer")),
                () = answering => unreachable!("nobody closes the connection"),
            }
            assert_eq!(seen - before, 1);
        }
    }

    #[tokio::test]
    async fn an_answer_may_come_in_pieces() {
        let answer = framed(&message("in pieces"));
        let pieces: Vec<&[u8]> = answer.chunks(2).collect();
        assert_eq!(answered(StatusCode::OK, &pieces, Some(trailers("0", ""))).await.unwrap(), message("in pieces"));
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_servers_words_even_behind_an_answer() {
        let answer = framed(&message("an answer"));
        for chunks in [&[][..], &[&answer[..]]] {
            let refused = answered(StatusCode::OK, chunks, Some(trailers("5", "lease%20not found"))).await;
            assert_eq!(refused.unwrap_err(), Status { code: Code::NotFound, message: "lease not found".into() });
        }
        let (channel, mut server, _) = connected().await;
        let query = message("?");
        let answering = async {
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            let mut response = Response::new(());
            *response.headers_mut() = trailers("16", "who are you");
            respond.send_response(response, true).unwrap();
            drop(server.accept().await);
        };
        tokio::select! {
            answer = channel.unary::<Authenticated>("/a/b", &[], &query) => {
                assert_eq!(answer.unwrap_err().code, Code::Unauthenticated);
            }
            () = answering => unreachable!("nobody closes the connection"),
        }
    }

    #[tokio::test]
    async fn nonsense_is_an_error_that_leaves_everything_open() {
        let (fine, answer) = (|| Some(trailers("0", "")), framed(&message("an answer")));
        let twice = [&answer[..], &answer[..]];
        let compressed = [&[1, 0, 0, 0, 0][..]];
        let endless = [&[0, 255, 255, 255, 255][..]];
        let no_message = [&[0, 0, 0, 0, 1, 255][..]];
        let half = [&answer[..7]];
        for (status, chunks, end) in [
            (StatusCode::SERVICE_UNAVAILABLE, &[][..], None),
            (StatusCode::OK, &[], None),
            (StatusCode::OK, &[], fine()),
            (StatusCode::OK, &twice, fine()),
            (StatusCode::OK, &compressed, fine()),
            (StatusCode::OK, &endless, fine()),
            (StatusCode::OK, &no_message, fine()),
            (StatusCode::OK, &half, fine()),
            (StatusCode::OK, &[&answer], Some(trailers("many", ""))),
        ] {
            let refused = answered(status, chunks, end).await;
            assert_eq!(refused.unwrap_err().code, Code::Unavailable, "{status} {chunks:?}");
        }
    }

    #[tokio::test]
    async fn a_stream_goes_on_in_both_directions_and_loses_nothing_to_whoever_stops_waiting() {
        let (channel, mut server, _) = connected().await;
        let (queries, outbox) = mpsc::unbounded_channel();
        queries.send(message("first")).unwrap();
        let echoing = async {
            let (request, mut respond) = server.accept().await.unwrap().unwrap();
            let echo = async {
                let (mut heard, mut sending) = (request.into_body(), None);
                while let Some(chunk) = heard.data().await {
                    let chunk = chunk.unwrap();
                    heard.flow_control().release_capacity(chunk.len()).unwrap();
                    let sending =
                        sending.get_or_insert_with(|| respond.send_response(Response::new(()), false).unwrap());
                    sending.send_data(chunk, false).unwrap();
                }
                sending.unwrap().send_trailers(trailers("0", "")).unwrap();
            };
            join(echo, server.accept()).await;
        };
        let asking = async {
            let mut stream = channel.stream::<_, Authenticated>("/a/b", &[], outbox).await.unwrap();
            assert_eq!(stream.message().await.unwrap(), Some(message("first")));
            queries.send(message("second")).unwrap();
            assert!(stream.message().now_or_never().is_none(), "it is on its way");
            queries.send(message("third")).unwrap();
            drop(queries);
            assert_eq!(stream.message().await.unwrap(), Some(message("second")));
            assert_eq!(stream.message().await.unwrap(), Some(message("third")));
            assert_eq!(stream.message().await.unwrap(), None);
        };
        tokio::select! {
            () = asking => {}
            _ = echoing => unreachable!("nobody closes the connection"),
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_tells_whoever_asks() {
        let (channel, server, _) = connected().await;
        let query = message("?");
        let asking = channel.unary::<Authenticated>("/a/b", &[], &query);
        assert!(!channel.has_ended());
        let (answer, ()) = join(asking, async { drop(server) }).await;
        assert_eq!(answer.unwrap_err().code, Code::Unavailable);
        assert!(channel.has_ended());
    }
}
