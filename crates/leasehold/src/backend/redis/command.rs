//! Commands as the bytes that a server reads.
//!
//! Those that locks are made of are written straight into the form in which they are sent; the client crate's own way
//! writes each part twice, and was a tenth of what a lock cost us.

use std::io::Write as _;

/// A command, or several in a row.
pub(in crate::backend) struct Command {
    bytes: Vec<u8>,
    /// How many there are.
    pub(in crate::backend) count: usize,
}

impl Command {
    /// One of so many parts.
    pub(in crate::backend) fn of(parts: usize) -> Self {
        Self { bytes: Vec::with_capacity(512), count: 0 }.and(parts)
    }

    /// Another of so many parts, behind it.
    pub(in crate::backend) fn and(mut self, parts: usize) -> Self {
        write_count(&mut self.bytes, b'*', parts);
        self.count += 1;
        self
    }

    /// And then that one.
    pub(in crate::backend) fn before(mut self, other: &Self) -> Self {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self
    }

    pub(in crate::backend) fn part(mut self, part: &[u8]) -> Self {
        write_count(&mut self.bytes, b'$', part.len());
        self.bytes.extend_from_slice(part);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// A part that is put together from several.
    pub(in crate::backend) fn joined(mut self, parts: &[&[u8]]) -> Self {
        write_count(&mut self.bytes, b'$', parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    pub(in crate::backend) fn number(self, number: u64) -> Self {
        let mut digits = [0; 20];
        let mut rest = &mut digits[..];
        write!(rest, "{number}").expect("no number is longer");
        let length = 20 - rest.len();
        self.part(&digits[..length])
    }

    pub(in crate::backend) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn write_count(bytes: &mut Vec<u8>, kind: u8, count: usize) {
    bytes.push(kind);
    write!(bytes, "{count}\r\n").expect("memory takes what is written to it");
}
