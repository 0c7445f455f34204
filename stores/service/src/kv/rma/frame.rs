//! The messages of a queue pair over the connection of a grant server: they replace SENDs and WRITEs with
//! immediate data.
//!
//! ```text
//!  0  kind  u8   1 SEND  2 WRITE with immediate data  3 refusal
//!  1  imm   u32  of a WRITE, else 0
//!  5  bytes
//! ```
//! A client's first message is a SEND of its `Hello`; the answer is a SEND of the `Grant`, or a refusal with
//! its reason as text. The destination of a WRITE's bytes follows from the immediate data alone, which the
//! receiver checks: a slot of the client, or a staging piece of the connection.

use remora_memory::Key;
use remora_nic::{CompletionKind, Operation, Payload, Remote, WorkCompletion, WorkRequest};
use remora_store::Registered;
use remora_store::kv::PostError;
use remora_verbs::Status;

/// Bytes of the header.
pub(crate) const HEADER: usize = 5;

const SEND: u8 = 1;
const WRITE: u8 = 2;
const REFUSAL: u8 = 3;

/// A message between client and server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'b> {
    /// A SEND: the bytes go to the next receive buffer.
    Send(&'b [u8]),
    /// A WRITE: the immediate data determines where the bytes go.
    Write(u32, &'b [u8]),
    /// The server accepts no client, or not this one.
    Refusal(&'b str),
}

impl<'b> Frame<'b> {
    /// Parses a message. Returns `None` if it is malformed.
    pub(crate) fn parse(message: &'b [u8]) -> Option<Frame<'b>> {
        let (header, bytes) = message.split_first_chunk::<HEADER>()?;
        let [kind, imm @ ..] = *header;
        match (kind, u32::from_le_bytes(imm)) {
            (SEND, 0) => Some(Frame::Send(bytes)),
            (WRITE, imm) => Some(Frame::Write(imm, bytes)),
            (REFUSAL, 0) => std::str::from_utf8(bytes).ok().map(Frame::Refusal),
            _ => None,
        }
    }

    /// Encodes the message.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let (kind, imm, bytes) = match *self {
            Frame::Send(bytes) => (SEND, 0, bytes),
            Frame::Write(imm, bytes) => (WRITE, imm, bytes),
            Frame::Refusal(words) => (REFUSAL, 0, words.as_bytes()),
        };
        let mut out = header(kind, imm, bytes.len());
        out.extend(bytes);
        out
    }

    /// Returns the message of a request whose payload lies in these blocks.
    ///
    /// # Errors
    /// `BadPayload`: the request is neither a SEND nor a WRITE with immediate data, or its payload lies
    /// elsewhere.
    pub(crate) fn of(request: &WorkRequest<'_>, blocks: &[Registered]) -> Result<Vec<u8>, PostError> {
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
            let start = out.len();
            out.resize(start + sge.len as usize, 0);
            block.bytes.read(sge.addr as usize, &mut out[start..]).map_err(|_| PostError::BadPayload)?;
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

/// Returns a block that machines access under this key, from address 0 on.
pub(crate) fn block(bytes: remora_memory::Bytes, key: u32) -> Registered {
    Registered { bytes, addr: 0, key: Key::new(key) }
}

/// Returns the offset of the piece that immediate data names. Returns `None` if there is no such piece or it
/// is too short for `bytes`.
pub(crate) fn piece(base: Remote, number: u32, count: u32, len: u64, bytes: &[u8]) -> Option<usize> {
    let fits = number < count && bytes.len() as u64 <= len;
    let offset = u64::from(number).checked_mul(len)?.checked_add(base.addr)?;
    fits.then_some(usize::try_from(offset).ok()?)
}

/// Returns the completion of a request.
pub(crate) fn completion(id: u64, status: Status, kind: CompletionKind, len: usize) -> WorkCompletion {
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
        let base = Remote { addr: 128, rkey: Key::new(4) };
        assert_eq!(piece(base, 1, 2, 64, &[0; 64]), Some(192));
        assert_eq!(piece(base, 2, 2, 64, &[]), None, "there are two");
        assert_eq!(piece(base, 0, 2, 64, &[0; 65]), None, "it is too long");
        assert_eq!(piece(base, 1, 2, u64::MAX, &[]), None, "the offset overflows");
    }
}
