//! The file of a recording, as it is read. The file is not trusted.

use std::io::{self, Read};

use serde::de::DeserializeOwned;

use super::event::{Event, Header};
use super::{MAGIC, MAX_EVENT};

/// The reason why a file cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read the recording: {0}")]
    Io(#[from] io::Error),
    /// The file is another one.
    #[error("not a recording: the file does not begin with `remora recording`")]
    NotARecording,
    /// The file has another version of the format.
    #[error("a recording of another version: this is Remora {} and reads version 1", env!("CARGO_PKG_VERSION"))]
    Version,
    /// The header is incomplete or wrong.
    #[error("the recording is damaged: its header is wrong")]
    Header,
    /// The file ends inside an event.
    #[error("the recording is damaged: it ends inside event {0}")]
    Cut(u64),
    /// The checksum of an event is wrong, or its bytes are no event.
    #[error("the recording is damaged: event {0} is wrong")]
    Damaged(u64),
    /// An event cannot happen on a NIC.
    #[error("the recording is damaged: event {0} is impossible: {1}")]
    Impossible(u64, String),
}

/// The events of a recording, in order.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    header: Header,
    /// Number of events that were read.
    count: u64,
    body: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads the header of a recording.
    ///
    /// # Errors
    /// [`ReplayError`]: the file is no recording, or damaged.
    pub fn new(mut file: R) -> Result<Reader<R>, ReplayError> {
        let mut magic = [0; MAGIC.len()];
        let got = fill(&mut file, &mut magic)?;
        let name = MAGIC.find(':').map_or(0, |colon| colon - 1);
        if !magic[..got].starts_with(&MAGIC.as_bytes()[..name]) {
            return Err(ReplayError::NotARecording);
        }
        if magic[..got].get(name) != MAGIC.as_bytes().get(name) {
            return Err(if got > name { ReplayError::Version } else { ReplayError::Header });
        }
        if magic != MAGIC.as_bytes() {
            return Err(ReplayError::Header);
        }
        let mut body = Vec::new();
        let header = match next(&mut file, &mut body)? {
            Next::Value(header) => header,
            _ => return Err(ReplayError::Header),
        };
        Ok(Reader { file, header, count: 0, body })
    }

    /// Returns the description of the NIC.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of events that were read, which is the number of the last one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the next event; `None` at the end of the file.
    ///
    /// # Errors
    /// [`ReplayError`]: the file is damaged.
    pub fn read(&mut self) -> Result<Option<Event>, ReplayError> {
        let number = self.count + 1;
        let event = match next(&mut self.file, &mut self.body)? {
            Next::Value(event) => event,
            Next::End => return Ok(None),
            Next::Cut => return Err(ReplayError::Cut(number)),
            Next::Wrong => return Err(ReplayError::Damaged(number)),
        };
        self.count = number;
        Ok(Some(event))
    }
}

/// The next value of a file.
enum Next<T> {
    Value(T),
    /// The file has ended.
    End,
    /// The file ends inside a value.
    Cut,
    /// The checksum is wrong, or the bytes are no value.
    Wrong,
}

fn next<T: DeserializeOwned>(file: &mut impl Read, body: &mut Vec<u8>) -> io::Result<Next<T>> {
    let mut head = [0; 8];
    match fill(file, &mut head)? {
        0 => return Ok(Next::End),
        8 => {}
        _ => return Ok(Next::Cut),
    }
    let [len, sum] =
        [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    if len as usize > MAX_EVENT {
        return Ok(Next::Wrong);
    }
    body.clear();
    // A wrong length takes no more memory than the file has bytes.
    if file.take(len.into()).read_to_end(body)? != len as usize {
        return Ok(Next::Cut);
    }
    if crc32fast::hash(body) != sum {
        return Ok(Next::Wrong);
    }
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(Next::Value(value)),
        _ => Ok(Next::Wrong),
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes read.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::event::Limits;
    use super::super::log::append;
    use super::*;
    use crate::port_kind::PortKind;

    #[test]
    fn an_event_with_the_slots_of_a_long_queue_is_read_back() {
        let header = Header {
            version: String::new(),
            port: PortKind::Udp,
            endpoint: remora_port::Endpoint::default(),
            nic: remora_nic::Config::default(),
            memory: Limits { regions: 1, windows: 1, ranges: 1 },
        };
        let posted = Event::Posted { ring: 0, produced: 1 << 15, first: 0, slots: vec![7; 64 << 15] };
        let mut file = MAGIC.as_bytes().to_vec();
        append(&mut file, &header);
        append(&mut file, &posted);
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.header(), &header);
        assert_eq!(reader.read().unwrap(), Some(posted));
        assert_eq!(reader.read().unwrap(), None);
        let cut = file.len() - 1;
        let mut reader = Reader::new(&file[..cut]).unwrap();
        assert!(matches!(reader.read(), Err(ReplayError::Cut(1))));
    }
}
