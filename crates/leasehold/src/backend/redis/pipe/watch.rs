//! What a connection watches: one key at a time, for whoever asked last.
//!
//! A server tells a connection whether anybody has touched a key since, by refusing a transaction. It does so for all keys that
//! the connection watches, and none is watched behind any transaction. So whose key it is, and whether it still is, is decided
//! where requests are put in line, and nowhere else.

use std::sync::Arc;

use redis::{RedisResult, Value};

use super::{Awaited, Pipe, Request, Slot, State};
use crate::backend::redis::command::Command;
use crate::sync::locked;

/// A request behind which the connection watches a key for somebody, if nothing else is under way.
pub(in crate::backend) struct Watching<'a> {
    pub(in crate::backend) whose: u128,
    pub(in crate::backend) asked: &'a Command,
    pub(in crate::backend) watch: &'a Command,
    /// What is asked behind that.
    pub(in crate::backend) then: &'a Command,
}

/// A request that is meant for when the key is watched that somebody had watched, and one for when it is not. The former ends with
/// `EXEC`, after which nothing is watched.
pub(in crate::backend) struct Watched<'a> {
    pub(in crate::backend) whose: u128,
    pub(in crate::backend) asked: &'a Command,
    pub(in crate::backend) otherwise: &'a Command,
}

/// What the connection watches. It is one for all: no other request than those above may begin or end that.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    whose: u128,
    /// Whether that one has said that it watches what it wanted to.
    sure: bool,
}

impl Pipe {
    /// Asks, and watches a key from then on. That it does is for [`Pipe::is_sure_of`] to say. Each command may have been refused.
    pub(in crate::backend) async fn ask_watching(&self, request: &Watching<'_>) -> RedisResult<Value> {
        self.end.0.send(Request::Watching(request)).await
    }

    /// The key that is watched for somebody is the one that it meant, and was as it should be when that had begun.
    pub(in crate::backend) fn is_sure_of(&self, whose: u128) {
        if let Some(watch) = &mut locked(&self.end.0.state).watch {
            watch.sure |= watch.whose == whose;
        }
    }

    /// Asks one thing or the other: which of them, the answer shows.
    pub(in crate::backend) async fn ask_watched(&self, request: &Watched<'_>) -> RedisResult<Value> {
        self.end.0.send(Request::Watched(request)).await?.extract_error()
    }
}

impl State {
    /// Puts such a request behind the others. What was watched before and is no longer of use is not watched any more; as long as
    /// others are under way it may be.
    pub(super) fn put_watching(&mut self, request: &Watching<'_>, slot: Arc<Slot>) {
        let Watching { whose, asked, watch, then } = *request;
        let mut parts = vec![asked];
        let unwatch = Command::of(1).part(b"UNWATCH");
        if self.waiting.is_empty() && self.together.slots.is_empty() {
            parts.extend(self.watch.is_some().then_some(&unwatch));
            parts.push(watch);
            self.watch = Some(Watch { whose, sure: false });
        }
        parts.push(then);
        parts.iter().for_each(|part| self.outgoing.extend_from_slice(part.bytes()));
        self.waiting.push_back(Awaited::One(slot, parts.iter().map(|part| part.count).sum()));
    }

    pub(super) fn put_watched(&mut self, request: &Watched<'_>, slot: Arc<Slot>) {
        let is_watched = self.watch.is_some_and(|watch| watch.whose == request.whose && watch.sure);
        if is_watched {
            self.watch = None;
        }
        self.put(if is_watched { request.asked } else { request.otherwise }, slot);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    fn pipe() -> (Pipe, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        (Pipe::over(Box::new(ours), None, Duration::from_secs(5)), theirs)
    }

    fn word(word: &str) -> Command {
        Command::of(1).part(word.as_bytes())
    }

    /// What was written since, as its words, each of which is answered.
    async fn answered(server: &mut DuplexStream) -> Vec<String> {
        let mut bytes = vec![0; 1024];
        let read = server.read(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes[..read].to_vec()).unwrap();
        let words: Vec<String> = text.lines().filter(|line| !line.starts_with(['*', '$'])).map(Into::into).collect();
        server.write_all(":1\r\n".repeat(words.len()).as_bytes()).await.unwrap();
        words
    }

    #[tokio::test]
    async fn what_is_watched_is_for_whoever_asked_last_once_that_is_sure_and_then_for_nobody() {
        let (pipe, mut server) = pipe();
        let (asked, watch, then, otherwise) = (word("ask"), word("WATCH"), word("look"), word("otherwise"));
        let watching = async |whose, server: &mut DuplexStream| {
            let words = Watching { whose, asked: &asked, watch: &watch, then: &then };
            let (answer, words) = futures_util::future::join(pipe.ask_watching(&words), answered(server)).await;
            assert!(matches!(answer.unwrap(), Value::Array(answers) if answers.len() == words.len()));
            words
        };
        let watched = async |whose, server: &mut DuplexStream| {
            let words = Watched { whose, asked: &asked, otherwise: &otherwise };
            let (answer, words) = futures_util::future::join(pipe.ask_watched(&words), answered(server)).await;
            answer.unwrap();
            words
        };
        assert_eq!(watching(1, &mut server).await, ["ask", "WATCH", "look"]);
        pipe.is_sure_of(1);
        assert_eq!(watching(2, &mut server).await, ["ask", "UNWATCH", "WATCH", "look"]);
        assert_eq!(watched(2, &mut server).await, ["otherwise"], "it has not said that it is sure");
        pipe.is_sure_of(2);
        assert_eq!(watched(1, &mut server).await, ["otherwise"], "another has come since");
        assert_eq!(watched(2, &mut server).await, ["ask"]);
        assert_eq!(watched(2, &mut server).await, ["otherwise"], "that has ended it");
        assert_eq!(watching(3, &mut server).await, ["ask", "WATCH", "look"]);
    }

    #[tokio::test]
    async fn nothing_is_watched_behind_a_request_that_is_under_way() {
        let (pipe, mut server) = pipe();
        let (asked, watch, then, ping) = (word("ask"), word("WATCH"), word("look"), word("PING"));
        let mut under_way = pin!(pipe.ask(&ping));
        assert!(under_way.as_mut().now_or_never().is_none());
        let words = Watching { whose: 1, asked: &asked, watch: &watch, then: &then };
        let mut watching = pin!(pipe.ask_watching(&words));
        for _ in 0..2 {
            assert!(watching.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert_eq!(answered(&mut server).await, ["PING", "ask", "look"]);
        assert_eq!(under_way.await.unwrap(), Value::Int(1));
        assert!(watching.await.is_ok());
    }
}
