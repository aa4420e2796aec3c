//! The bytes of ZooKeeper's protocol: numbers are big-endian, texts and buffers have their length in front.

/// What was read is not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Writes a record.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.0.push(flag.into());
        self
    }

    pub(super) fn buffer(self, bytes: &[u8]) -> Self {
        // Names, notes and passwords: all of them are bounded far below this.
        let length = i32::try_from(bytes.len()).expect("what we send is short");
        let mut writer = self.int(length);
        writer.0.extend_from_slice(bytes);
        writer
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.buffer(text.as_bytes())
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a record. What is behind its end is of a newer version, and is left alone.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn over(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn flag(&mut self) -> Result<bool, Garbled> {
        Ok(self.take(1)? != [0])
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn int(&mut self) -> Result<i32, Garbled> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes(bytes.try_into().map_err(|_| Garbled)?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Garbled> {
        let bytes = self.take(8)?;
        Ok(i64::from_be_bytes(bytes.try_into().map_err(|_| Garbled)?))
    }

    /// No bytes at all are written as a length of -1.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Garbled> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Garbled)?),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Garbled> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Garbled)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Garbled> {
        // Not reserved at once: the number may be a lie, the texts cannot.
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }

    pub(super) fn stat(&mut self) -> Result<Stat, Garbled> {
        let czxid = self.long()?;
        let _mzxid = self.long()?;
        let ctime = self.long()?;
        let _mtime = self.long()?;
        let version = self.int()?;
        let _cversion = self.int()?;
        let _aversion = self.int()?;
        let ephemeral_owner = self.long()?;
        let _data_length = self.int()?;
        let _children = self.int()?;
        let _pzxid = self.long()?;
        Ok(Stat { czxid, ctime, version, ephemeral_owner })
    }
}

/// What a server knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// The number of the change that created it. All changes of all nodes have one order.
    pub(super) czxid: i64,
    /// When that was, by the leader's wall clock, in ms since 1970.
    pub(super) ctime: i64,
    /// How often its data has changed.
    pub(super) version: i32,
    /// The session with which it goes; 0 if it stays.
    pub(super) ephemeral_owner: i64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let bytes = Writer::default().int(-2).long(1 << 40).flag(true).text("ü").buffer(b"\0\xff").bytes();
        let mut reader = Reader::over(&bytes);
        assert_eq!((reader.int(), reader.long()), (Ok(-2), Ok(1 << 40)));
        assert_eq!(reader.flag(), Ok(true));
        assert_eq!((reader.text(), reader.buffer()), (Ok("ü"), Ok(&b"\0\xff"[..])));
        assert_eq!(reader.rest(), b"");
    }

    #[test]
    fn a_length_that_is_a_lie_is_noticed() {
        assert_eq!(Reader::over(&[0, 0, 0, 9, 1]).buffer(), Err(Garbled));
        assert_eq!(Reader::over(&[0x80, 0, 0, 0]).buffer(), Err(Garbled));
        assert_eq!(Reader::over(&[0x7f, 0xff, 0xff, 0xff]).texts(), Err(Garbled));
        assert_eq!(Reader::over(&[0xff; 4]).buffer(), Ok(&[][..]));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Reader::over(&bytes).texts();
            let _ = Reader::over(&bytes).stat();
            let _ = Reader::over(&bytes).text();
        }
    }
}
