//! Calls: the messages of PUT and DELETE, and of GET where it is two-sided.
//!
//! A request is 16 bytes, then the key, then the value. One that fits a receive buffer is a SEND. A longer
//! one is a WRITE with immediate data into a piece of the server's memory that was granted to this connection
//! (*staging*). The immediate names the piece.
//!
//! A response is 16 bytes, then the value. Short ones are SENDs. Longer ones are a WRITE with immediate data
//! into the buffer of the slot that asked; the immediate names the slot. So every call is one round trip, and
//! each message takes one receive request of its receiver.
//!
//! ```text
//! request                                       response
//!  0  operation  u8   1 GET 2 PUT 3 DELETE 4 LIST    0  status    u8   0 done, else Refusal
//!  1  0          u8                              1  0         u8
//!  2  slot       u16                             2  slot      u16
//!  4  sequence   u32  of the slot                4  sequence  u32  of the request
//!  8  key len    u32                             8  value len u32
//! 12  value len  u32                            12  0         u32
//! 16  key, value                                16  value
//! ```

use super::cursor::Cursor;
use super::{MAX_KEY, MAX_VALUE, Operation};
use crate::words::{set_u16, set_u32, u16_at, u32_at};

/// The reason for which a server refused a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The key is not in the table.
    #[error("there is no such key")]
    Absent = 1,
    /// The table has no free slot for another key, or none around this key.
    #[error("the table is full (ENOMEM): start the server for more keys")]
    TableFull = 2,
    /// The server has no memory for an object of this length.
    #[error("there is no memory for the value (ENOMEM): delete something, or start the server with more")]
    NoSpace = 3,
    /// The key or value is longer than this server's maximum.
    #[error("key or value is longer than the server takes")]
    TooLong = 4,
    /// The server of this design does not support the call.
    #[error("this server does not answer such calls: clients read for themselves")]
    Unsupported = 5,
    /// The previous page of the connection's listing is still being sent.
    #[error("one page of a listing at a time: wait for the one before")]
    Busy = 6,
}

impl Refusal {
    fn from_byte(byte: u8) -> Option<Refusal> {
        use Refusal::{Absent, Busy, NoSpace, TableFull, TooLong, Unsupported};
        [Absent, TableFull, NoSpace, TooLong, Unsupported, Busy]
            .into_iter()
            .find(|refusal| *refusal as u8 == byte)
    }
}

/// Bytes before the key of a request, or before the value of a response.
pub const HEADER: usize = 16;

/// The fixed part of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub operation: Operation,
    pub slot: u16,
    pub sequence: u32,
    pub key_len: u32,
    pub value_len: u32,
}

impl Request {
    /// Parses a request. Returns `None` if it is malformed, for instance if its lengths exceed the message.
    pub(crate) fn parse(message: &[u8]) -> Option<Request> {
        if message.len() < HEADER {
            return None;
        }
        let operation = match message[0] {
            1 => Operation::Get,
            2 => Operation::Put,
            3 => Operation::Delete,
            4 => Operation::List,
            _ => return None,
        };
        let request = Request {
            operation,
            slot: u16_at(message, 2),
            sequence: u32_at(message, 4),
            key_len: u32_at(message, 8),
            value_len: u32_at(message, 12),
        };
        let key = request.key_len as usize;
        let value = request.value_len as usize;
        let listed = operation != Operation::List || (key, value) == (Cursor::LEN, 0);
        let fits = key <= MAX_KEY && value <= MAX_VALUE && HEADER + key + value <= message.len();
        let possible = listed && fits;
        possible.then_some(request)
    }

    /// Returns the length of the whole message in bytes.
    pub(crate) fn message_len(&self) -> usize {
        HEADER + self.key_len as usize + self.value_len as usize
    }

    pub(crate) fn emit(&self, out: &mut [u8; HEADER]) {
        out[0] = self.operation as u8;
        out[1] = 0;
        set_u16(out, 2, self.slot);
        set_u32(out, 4, self.sequence);
        set_u32(out, 8, self.key_len);
        set_u32(out, 12, self.value_len);
    }
}

/// The fixed part of a response.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub result: Result<(), Refusal>,
    pub slot: u16,
    pub sequence: u32,
    pub value_len: u32,
}

impl Response {
    /// Parses a response. Returns `None` if it is malformed.
    pub(crate) fn parse(message: &[u8]) -> Option<Response> {
        if message.len() < HEADER {
            return None;
        }
        let result = match message[0] {
            0 => Ok(()),
            other => Err(Refusal::from_byte(other)?),
        };
        let response = Response {
            result,
            slot: u16_at(message, 2),
            sequence: u32_at(message, 4),
            value_len: u32_at(message, 8),
        };
        (HEADER + response.value_len as usize <= message.len()).then_some(response)
    }

    pub(crate) fn emit(&self, out: &mut [u8; HEADER]) {
        out[0] = self.result.map_or_else(|refusal| refusal as u8, |()| 0);
        out[1] = 0;
        set_u16(out, 2, self.slot);
        set_u32(out, 4, self.sequence);
        set_u32(out, 8, self.value_len);
        set_u32(out, 12, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_bytes() {
        let request = Request {
            operation: Operation::Put,
            slot: 0x0102,
            sequence: 0x0304_0506,
            key_len: 3,
            value_len: 2,
        };
        let mut message = [0; HEADER + 5];
        request.emit(message.first_chunk_mut().unwrap());
        assert_eq!(message[..HEADER], [2, 0, 2, 1, 6, 5, 4, 3, 3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(Request::parse(&message), Some(request));
        let response = Response { result: Err(Refusal::NoSpace), slot: 7, sequence: 9, value_len: 0 };
        let mut message = [0xff; HEADER];
        response.emit(&mut message);
        assert_eq!(message, [3, 0, 7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Response::parse(&message), Some(response));
    }

    #[test]
    fn lengths_beyond_the_message_are_refused() {
        let mut message = [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 4, 5];
        assert!(Request::parse(&message).is_some());
        assert_eq!(Request::parse(&message[..20]), None);
        assert_eq!(Request::parse(&message[..15]), None);
        message[8..16].fill(0xff);
        assert_eq!(Request::parse(&message), None);
        message[8..16].fill(0);
        message[0] = 5;
        assert_eq!(Request::parse(&message), None);
        assert_eq!(Response::parse(&[7; HEADER]), None);
        assert_eq!(Response::parse(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
