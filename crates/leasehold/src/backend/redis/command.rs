//! Commands as the bytes that a server reads.
//!
//! Those that locks are made of are written straight into the form in which they are sent; the client crate's own way
//! writes each part twice, and was a tenth of what a lock cost us.

/// A command, or several in a row.
#[derive(Clone)]
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

    pub(in crate::backend) fn part(self, part: &[u8]) -> Self {
        self.joined(&[part])
    }

    /// A part that is put together from several.
    pub(in crate::backend) fn joined(mut self, parts: &[&[u8]]) -> Self {
        write_part(&mut self.bytes, parts);
        self
    }

    pub(in crate::backend) fn number(self, number: u64) -> Self {
        self.part(&Digits::of(number))
    }

    pub(in crate::backend) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A part of a command, which may be put together from several.
pub(super) fn write_part(bytes: &mut Vec<u8>, parts: &[&[u8]]) {
    write_count(bytes, b'$', parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.extend_from_slice(b"\r\n");
}

pub(super) fn write_count(bytes: &mut Vec<u8>, kind: u8, count: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(&Digits::of(count as u64));
    bytes.extend_from_slice(b"\r\n");
}

/// A number as text. There are thirty in a lock, and the standard way to write one takes longer than all else about it.
pub(in crate::backend) struct Digits {
    text: [u8; 20],
    begins: usize,
}

impl Digits {
    pub(in crate::backend) fn of(mut number: u64) -> Self {
        let mut digits = Self { text: [b'0'; 20], begins: 20 };
        loop {
            digits.begins -= 1;
            digits.text[digits.begins] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return digits;
            }
        }
    }
}

impl std::ops::Deref for Digits {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text[self.begins..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_text() {
        for number in [0, 1, 9, 10, 4711, u64::MAX] {
            assert_eq!(&*Digits::of(number), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_command_is_its_parts_with_their_lengths() {
        let command = Command::of(2).part(b"GET").joined(&[b"a", b"", b"bc"]).and(1).part(b"PING");
        assert_eq!(command.bytes(), b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n*1\r\n$4\r\nPING\r\n");
        assert_eq!(command.count, 2);
    }
}
