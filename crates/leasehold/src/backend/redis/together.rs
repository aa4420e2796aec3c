//! Requests that leave together: many become one call of a script, which a server does in a third of the time.

use std::sync::Arc;

use crate::backend::redis::command::{Command, Digits, write_count, write_part};
use crate::backend::redis::pipe::Slot;

/// A request that may become a part of a call for several. Its maker understands both answers.
pub(super) trait Joinable: Sync {
    /// How it is sent when nothing else leaves with it.
    fn alone(&self) -> Command;

    /// The digest of the script that does many of them, which answers with as many values.
    fn script(&self) -> &'static str;

    /// Adds its keys and its arguments to a call of that script.
    fn join(&self, call: &mut Together);
}

/// A call for several that has yet to leave.
#[derive(Default)]
pub(super) struct Together {
    script: &'static str,
    keys: Parts,
    args: Parts,
    /// Whose answers they are, in order.
    pub(super) slots: Vec<Arc<Slot>>,
}

#[derive(Default)]
struct Parts {
    bytes: Vec<u8>,
    count: usize,
}

impl Together {
    /// Whether that one can come along.
    pub(super) fn takes(&self, request: &dyn Joinable) -> bool {
        self.slots.is_empty() || self.script == request.script()
    }

    pub(super) fn add(&mut self, request: &dyn Joinable, slot: Arc<Slot>) {
        self.script = request.script();
        request.join(self);
        self.slots.push(slot);
    }

    pub(super) fn key(&mut self, key: &[u8]) {
        self.keys.add(&[key]);
    }

    /// An argument that is put together from several parts.
    pub(super) fn arg(&mut self, parts: &[&[u8]]) {
        self.args.add(parts);
    }

    /// Ends the call, and begins another: the first is for those, and behind the other bytes.
    pub(super) fn close(&mut self, outgoing: &mut Vec<u8>) -> Vec<Arc<Slot>> {
        write_count(outgoing, b'*', 3 + self.keys.count + self.args.count);
        write_part(outgoing, &[b"EVALSHA"]);
        write_part(outgoing, &[self.script.as_bytes()]);
        write_part(outgoing, &[&Digits::of(self.keys.count as u64)]);
        outgoing.append(&mut self.keys.bytes);
        outgoing.append(&mut self.args.bytes);
        self.keys.count = 0;
        self.args.count = 0;
        std::mem::take(&mut self.slots)
    }
}

impl Parts {
    fn add(&mut self, part: &[&[u8]]) {
        write_part(&mut self.bytes, part);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::{join, join_all};
    use redis::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::backend::redis::pipe::Pipe;

    struct Wish(&'static str);

    impl Joinable for Wish {
        fn alone(&self) -> Command {
            Command::of(2).part(b"GET").part(self.0.as_bytes())
        }

        fn script(&self) -> &'static str {
            "all"
        }

        fn join(&self, call: &mut Together) {
            call.key(self.0.as_bytes());
            call.arg(&[b"n", b"ow"]);
        }
    }

    /// Three wishes at once, of which the first finds nobody to leave with, and what comes of them.
    async fn answers_to(answers: &[u8]) -> Vec<redis::RedisResult<Value>> {
        let (ours, mut server) = tokio::io::duplex(1024);
        let pipe = Pipe::over(Box::new(ours), None, Duration::from_secs(5));
        let sent = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n\
            *7\r\n$7\r\nEVALSHA\r\n$3\r\nall\r\n$1\r\n2\r\n$1\r\nb\r\n$1\r\nc\r\n$3\r\nnow\r\n$3\r\nnow\r\n";
        let wishes = [Wish("a"), Wish("b"), Wish("c")];
        let answering = async {
            let mut received = vec![0; sent.len()];
            server.read_exact(&mut received).await.unwrap();
            assert_eq!(received, sent, "{}", String::from_utf8_lossy(&received));
            server.write_all(answers).await.unwrap();
        };
        join(join_all(wishes.iter().map(|wish| pipe.ask_together(wish))), answering).await.0
    }

    #[tokio::test]
    async fn those_who_leave_together_are_one_call_and_each_gets_its_own_answer() {
        let answers: Vec<Value> =
            answers_to(b":1\r\n*2\r\n:2\r\n:3\r\n").await.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [Value::Int(1), Value::Int(2), Value::Int(3)]);
    }

    #[tokio::test]
    async fn an_error_is_told_to_each_who_left_together_and_to_nobody_else() {
        let answers = answers_to(b":1\r\n-NOSCRIPT none\r\n").await;
        assert_eq!(answers[0], Ok(Value::Int(1)));
        assert!(answers[1..].iter().all(|answer| answer.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT"))));
    }

    #[tokio::test]
    async fn an_answer_for_another_number_of_them_is_believed_by_none() {
        assert!(answers_to(b":1\r\n*1\r\n:2\r\n").await[1..].iter().all(Result::is_err));
    }
}
