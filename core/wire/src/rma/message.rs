//! Parsed 1RMA messages.

use super::{Kind, MAX_OPERATION, TAG_LEN, completion, header, request, solicit};
use crate::WireError;

/// The fields that a kind of message adds to the header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Fields of a read, write or rekey request.
    Request(request::Repr),
    /// Fields of a solicit.
    Solicit(solicit::Repr),
    /// Fields of a completion.
    Completion(completion::Repr),
    /// No fields (data, NACK, authentication failure).
    None,
}

impl Body {
    /// Returns the length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Body::Request(_) => request::LEN,
            Body::Solicit(_) => solicit::LEN,
            Body::Completion(_) => completion::LEN,
            Body::None => 0,
        }
    }

    /// Returns true if there are no fields.
    pub const fn is_empty(&self) -> bool {
        matches!(self, Body::None)
    }

    /// Returns true if a message of this kind has these fields.
    pub const fn fits(&self, kind: Kind) -> bool {
        match self {
            Body::Request(_) => kind.is_request(),
            Body::Solicit(_) => matches!(kind, Kind::Solicit),
            Body::Completion(_) => matches!(kind, Kind::Completion),
            Body::None => matches!(kind, Kind::Data | Kind::Nack | Kind::AuthenticationFailure),
        }
    }
}

/// A parsed message, which is not authenticated yet.
#[derive(Copy, Clone, Debug)]
pub struct Message<'a> {
    /// Header of the message.
    pub header: header::Repr,
    /// The fields that the kind adds.
    pub body: Body,
    /// All bytes before the ciphertext, with which the associated data starts.
    pub clear: &'a [u8],
    /// Ciphertext of the payload; empty except in data messages.
    pub sealed: &'a [u8],
    /// The authentication tag.
    pub tag: &'a [u8; TAG_LEN],
}

impl<'a> Message<'a> {
    /// Parses a message.
    ///
    /// Fails with [`WireError::Truncated`], [`WireError::UnknownMessage`], or [`WireError::Length`] if the
    /// ciphertext does not have the length in the header, or if a data message has no data or more than an
    /// operation allows.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, WireError> {
        let header = header::Repr::parse(&header::View::new(bytes)?);
        let rest = &bytes[header::LEN..];
        let body = match header.kind {
            Kind::Read | Kind::Write | Kind::Rekey => {
                Body::Request(request::Repr::parse(&request::View::new(rest)?))
            }
            Kind::Solicit => Body::Solicit(solicit::Repr::parse(&solicit::View::new(rest)?)),
            Kind::Completion => Body::Completion(completion::Repr::parse(&completion::View::new(rest)?)),
            Kind::Data | Kind::Nack | Kind::AuthenticationFailure => Body::None,
        };
        let (clear, rest) = bytes.split_at(header::LEN + body.len());
        let (sealed, tag) = rest.split_last_chunk::<TAG_LEN>().ok_or(WireError::Truncated)?;
        let expected = match header.kind {
            Kind::Data if header.length == 0 || header.length > MAX_OPERATION => {
                return Err(WireError::Length);
            }
            Kind::Data => header.length as usize,
            _ => 0,
        };
        if sealed.len() != expected {
            return Err(WireError::Length);
        }
        Ok(Message { header, body, clear, sealed, tag })
    }

    /// Returns the length of a message with this header and body, in bytes.
    #[inline]
    pub const fn len(header: &header::Repr, body: &Body) -> usize {
        let payload = if matches!(header.kind, Kind::Data) { header.length as usize } else { 0 };
        header::LEN + body.len() + payload + TAG_LEN
    }

    /// Writes the clear part at the start of `out` and returns its length. Panics if `out` is shorter.
    #[inline]
    pub fn emit_clear(header: &header::Repr, body: &Body, out: &mut [u8]) -> usize {
        header.emit(out);
        let rest = &mut out[header::LEN..];
        match body {
            Body::Request(request) => request.emit(rest),
            Body::Solicit(solicit) => solicit.emit(rest),
            Body::Completion(completion) => completion.emit(rest),
            Body::None => {}
        }
        header::LEN + body.len()
    }
}
