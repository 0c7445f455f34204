//! The messages of a queue pair over a grants' connection: what would be a SEND, or a WRITE with immediate
//! data.
//!
//! ```text
//!  0  kind  u8   1 SEND  2 WRITE with immediate data  3 refusal
//!  1  imm   u32  of a WRITE, else 0
//!  5  bytes
//! ```
//! A client's first message is a SEND of its `Hello`; the answer is a SEND of the `Grant`, or a refusal with
//! its reason as text. Where a WRITE's bytes belong follows from the immediate data alone, which the receiver
//! checks: a slot of the client, or a staging piece of the connection.

use remora_memory::Key;
use remora_nic::{CompletionKind, Operation, Payload, Remote, WorkCompletion, WorkRequest};
use remora_store::Registered;
use remora_store::kv::PostError;
use remora_verbs::Status;

/// Bytes before those of the message.
pub const HEADER: usize = 5;

const SEND: u8 = 1;
const WRITE: u8 = 2;
const REFUSAL: u8 = 3;

/// A message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame<'b> {
    /// It takes the next receive buffer.
    Send(&'b [u8]),
    /// It belongs where the immediate data says.
    Write(u32, &'b [u8]),
    /// The server takes no client, or not this one.
    Refusal(&'b str),
}

impl<'b> Frame<'b> {
    /// Reads it. None: no correct peer sends it.
    pub fn parse(message: &'b [u8]) -> Option<Frame<'b>> {
        let (header, bytes) = message.split_first_chunk::<HEADER>()?;
        let [kind, imm @ ..] = *header;
        match (kind, u32::from_le_bytes(imm)) {
            (SEND, 0) => Some(Frame::Send(bytes)),
            (WRITE, imm) => Some(Frame::Write(imm, bytes)),
            (REFUSAL, 0) => std::str::from_utf8(bytes).ok().map(Frame::Refusal),
            _ => None,
        }
    }

    /// Its bytes.
    pub fn emit(&self) -> Vec<u8> {
        let (kind, imm, bytes) = match *self {
            Frame::Send(bytes) => (SEND, 0, bytes),
            Frame::Write(imm, bytes) => (WRITE, imm, bytes),
            Frame::Refusal(words) => (REFUSAL, 0, words.as_bytes()),
        };
        let mut out = header(kind, imm, bytes.len());
        out.extend(bytes);
        out
    }

    /// The message that a machine posts from these blocks.
    ///
    /// # Errors
    /// `BadPayload`: it is none, or lies elsewhere.
    pub fn of(request: &WorkRequest<'_>, blocks: &[Registered]) -> Result<Vec<u8>, PostError> {
        let (kind, imm) = match request.operation {
            Operation::Send => (SEND, 0),
            Operation::WriteImm(_, imm) => (WRITE, imm),
            _ => return Err(PostError::BadPayload),
        };
        let Payload::Sges(sges) = request.payload else {
            let Payload::Inline(bytes) = request.payload else { return Err(PostError::BadPayload) };
            let mut out = header(kind, imm, bytes.len());
            out.extend(bytes);
            return Ok(out);
        };
        let mut out = header(kind, imm, sges.iter().map(|sge| sge.len as usize).sum());
        for sge in sges {
            let block = blocks.iter().find(|block| block.key == sge.lkey).ok_or(PostError::BadPayload)?;
            let at = out.len();
            out.resize(at + sge.len as usize, 0);
            block.bytes.read(sge.addr as usize, &mut out[at..]).map_err(|_| PostError::BadPayload)?;
        }
        Ok(out)
    }
}

fn header(kind: u8, imm: u32, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + len);
    out.push(kind);
    out.extend(imm.to_le_bytes());
    out
}

/// A block that machines name by this key, from address 0 on.
pub fn block(bytes: remora_memory::Bytes, key: u32) -> Registered {
    Registered { bytes, addr: 0, key: Key::new(key) }
}

/// Offset and length of a piece that immediate data names; None: there is no such piece, or it is too short.
pub fn piece(at: Remote, number: u32, count: u32, len: u64, bytes: &[u8]) -> Option<usize> {
    let fits = number < count && bytes.len() as u64 <= len;
    let offset = u64::from(number).checked_mul(len)?.checked_add(at.addr)?;
    fits.then_some(usize::try_from(offset).ok()?)
}

/// How a request ended.
pub fn completion(id: u64, status: Status, kind: CompletionKind, len: usize) -> WorkCompletion {
    WorkCompletion { id, status, kind, byte_len: len as u32, ..remora_verbs::EMPTY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_bytes() {
        let frames = [Frame::Send(b"ab"), Frame::Write(0x0102, b""), Frame::Refusal("full")];
        let bytes = [&b"\x01\0\0\0\0ab"[..], b"\x02\x02\x01\0\0", b"\x03\0\0\0\0full"];
        for (frame, bytes) in frames.into_iter().zip(bytes) {
            assert_eq!(frame.emit(), bytes);
            assert_eq!(Frame::parse(bytes), Some(frame));
            assert_eq!(Frame::parse(&bytes[..4]), None);
        }
        for other in [&b"\x04\0\0\0\0"[..], b"\x01\x01\0\0\0", b"\x03\0\0\0\0\xff"] {
            assert_eq!(Frame::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_piece_is_within_what_was_granted() {
        let at = Remote { addr: 128, rkey: Key::new(4) };
        assert_eq!(piece(at, 1, 2, 64, &[0; 64]), Some(192));
        assert_eq!(piece(at, 2, 2, 64, &[]), None, "there are two");
        assert_eq!(piece(at, 0, 2, 64, &[0; 65]), None, "it is too long");
        assert_eq!(piece(at, 1, 2, u64::MAX, &[]), None, "the offset overflows");
    }
}
