//! Values cut out of the bytes that a server sends.
//!
//! Where one ends is found here, and each byte is looked at once however the bytes arrive: the client crate's own way to do
//! that comes only with its own connections. What one means is left to the crate, but for the few kinds that the answers
//! to locks are made of: its parser takes longer for those than all the rest of a lock.

use redis::{RedisResult, Value};

/// How deep a value may be nested.
const DEPTH_MAX: usize = 32;

/// How many bytes that were cut off already are kept in front of others.
const CUT_MAX: usize = 64 * 1024;

/// What was read and not yet cut.
#[derive(Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where the next value begins.
    begins: usize,
    /// Up to where that value was looked at.
    seen: usize,
    /// How many parts the value and those in it still lack, from the outside in.
    lacking: Vec<u64>,
}

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.begins == self.bytes.len() {
            self.bytes.clear();
            (self.begins, self.seen) = (0, 0);
        } else if self.begins > CUT_MAX {
            self.bytes.drain(..self.begins);
            (self.begins, self.seen) = (0, self.seen - self.begins);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next value, if all of it is there.
    pub(super) fn next(&mut self) -> RedisResult<Option<Frame<'_>>> {
        while self.skip_part()? {
            if self.lacking.is_empty() {
                let begins = std::mem::replace(&mut self.begins, self.seen);
                return Ok(Some(Frame(&self.bytes[begins..self.seen])));
            }
        }
        Ok(None)
    }

    /// Goes behind the next part of the value. False if it is not all there yet.
    fn skip_part(&mut self) -> RedisResult<bool> {
        let rest = &self.bytes[self.seen..];
        let Some(line) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(false) };
        let count = || {
            let digits = std::str::from_utf8(&rest[1..line]).ok();
            digits.and_then(|digits| digits.parse::<i64>().ok()).ok_or_else(nonsense)
        };
        let (mut length, mut parts) = (line + 2, 0);
        match rest[0] {
            b':' | b'+' | b'-' | b'_' | b',' | b'#' | b'(' => {}
            // -1 is nothing at all, without an end of its own.
            b'$' | b'!' | b'=' => {
                if let Ok(bytes) = usize::try_from(count()?) {
                    length = length.checked_add(bytes).and_then(|length| length.checked_add(2)).ok_or_else(nonsense)?;
                }
            }
            b'*' | b'>' | b'~' => parts = u64::try_from(count()?).unwrap_or(0),
            b'%' => parts = pairs(count()?)?,
            // It stands before the value that it speaks of.
            b'|' => parts = pairs(count()?)? + 1,
            _ => return Err(nonsense()),
        }
        if rest.len() < length {
            return Ok(false);
        }
        self.seen += length;
        if parts > 0 {
            if self.lacking.len() == DEPTH_MAX {
                return Err(nonsense());
            }
            self.lacking.push(parts);
            return Ok(true);
        }
        while let Some(lacking) = self.lacking.last_mut() {
            *lacking -= 1;
            if *lacking > 0 {
                break;
            }
            self.lacking.pop();
        }
        Ok(true)
    }
}

/// A value as it was sent.
pub(super) struct Frame<'a>(&'a [u8]);

impl Frame<'_> {
    /// Whether the server sent it by itself, or as the answer to a subscription.
    pub(super) fn is_push(&self) -> bool {
        self.0[0] == b'>'
    }

    pub(super) fn value(&self) -> RedisResult<Value> {
        match plain(self.0) {
            Some((value, [])) => Ok(value),
            _ => redis::parse_redis_value(self.0),
        }
    }
}

/// A number, a text, nothing, or a list of those, and what is behind it.
fn plain(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (head, rest) = (bytes.get(1..line)?, &bytes[line + 2..]);
    let number = || std::str::from_utf8(head).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b':' => Some((Value::Int(number()?), rest)),
        b'+' if head == b"OK" => Some((Value::Okay, rest)),
        b'_' => Some((Value::Nil, rest)),
        b'$' => {
            let (text, rest) = rest.split_at_checked(usize::try_from(number()?).ok()?)?;
            Some((Value::BulkString(text.into()), rest.strip_prefix(b"\r\n")?))
        }
        b'*' => {
            let mut rest = rest;
            let mut parts = Vec::new();
            for _ in 0..usize::try_from(number()?).ok()? {
                let (part, behind) = plain(rest)?;
                parts.push(part);
                rest = behind;
            }
            Some((Value::Array(parts), rest))
        }
        _ => None,
    }
}

fn pairs(count: i64) -> RedisResult<u64> {
    u64::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(2))
        .filter(|count| *count < u64::MAX)
        .ok_or_else(nonsense)
}

fn nonsense() -> redis::RedisError {
    (redis::ErrorKind::Parse, "what was sent is no Redis protocol").into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values of all the kinds that a server sends, as it sends them.
    fn sent() -> impl Strategy<Value = Vec<u8>> {
        let text = proptest::collection::vec(any::<u8>(), 0..20);
        let bulk =
            |kind: char, text: Vec<u8>| [format!("{kind}{}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            text.prop_map(move |text| bulk('$', text)),
            "[a-zA-Z ]{0,9}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            Just(b"+OK\r\n".to_vec()),
            Just(b"_\r\n".to_vec()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            Just(b"#t\r\n".to_vec()),
            Just(b",1.5\r\n".to_vec()),
            Just(b"-ERR what\r\n".to_vec()),
        ];
        leaf.prop_recursive(4, 24, 5, |part| {
            prop_oneof![
                (prop_oneof![Just('*'), Just('~')], proptest::collection::vec(part.clone(), 0..5)).prop_map(
                    |(kind, parts)| [format!("{kind}{}\r\n", parts.len()).into_bytes(), parts.concat()].concat()
                ),
                proptest::collection::vec((part.clone(), part), 0..3).prop_map(|pairs| {
                    let parts =
                        pairs.iter().map(|(key, value)| [&key[..], value].concat()).collect::<Vec<_>>().concat();
                    [format!("%{}\r\n", pairs.len()).into_bytes(), parts].concat()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_are_the_same_however_their_bytes_arrive(
            values in proptest::collection::vec(sent(), 1..6),
            pieces in proptest::collection::vec(1usize..9, 1..20),
        ) {
            let expected: Vec<_> = values.iter().map(|value| redis::parse_redis_value(value).unwrap()).collect();
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            let (bytes, mut at) = (values.concat(), 0);
            for piece in pieces.iter().cycle() {
                let end = bytes.len().min(at + piece);
                frames.push(&bytes[at..end]);
                while let Some(frame) = frames.next().unwrap() {
                    found.push(frame.value().unwrap());
                }
                at = end;
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn nothing_that_is_sent_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(frame)) = frames.next() {
                let _ = frame.value();
            }
        }
    }

    #[test]
    fn a_value_that_is_nested_deeper_than_any_answer_is_refused() {
        let mut frames = Frames::default();
        frames.push("*1\r\n".repeat(DEPTH_MAX + 1).as_bytes());
        assert!(frames.next().is_err());
    }
}
