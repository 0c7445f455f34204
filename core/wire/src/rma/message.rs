//! Whole messages.

use super::{Kind, MAX_OPERATION, TAG_LEN, completion, header, request, solicit};
use crate::WireError;

/// What the kind of a message adds to its header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Of a read, write or rekey request.
    Request(request::Repr),
    /// Of a solicit.
    Solicit(solicit::Repr),
    /// Of a completion.
    Completion(completion::Repr),
    /// Nothing: data, NACK, authentication failure.
    None,
}

impl Body {
    /// Bytes that it takes.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Body::Request(_) => request::LEN,
            Body::Solicit(_) => solicit::LEN,
            Body::Completion(_) => completion::LEN,
            Body::None => 0,
        }
    }

    /// Does it add nothing?
    pub const fn is_empty(&self) -> bool {
        matches!(self, Body::None)
    }

    /// Does a message of this kind add this?
    pub const fn fits(&self, kind: Kind) -> bool {
        match self {
            Body::Request(_) => kind.is_request(),
            Body::Solicit(_) => matches!(kind, Kind::Solicit),
            Body::Completion(_) => matches!(kind, Kind::Completion),
            Body::None => matches!(kind, Kind::Data | Kind::Nack | Kind::AuthenticationFailure),
        }
    }
}

/// A message, taken apart. It is not authenticated yet.
#[derive(Copy, Clone, Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: header::Repr,
    /// What its kind adds.
    pub body: Body,
    /// All bytes before the ciphertext: what the tag covers first.
    pub clear: &'a [u8],
    /// The ciphertext of the payload; empty in all kinds but data.
    pub sealed: &'a [u8],
    /// The tag.
    pub tag: &'a [u8; TAG_LEN],
}

impl<'a> Message<'a> {
    /// Takes a message apart.
    ///
    /// Errors: [`WireError::Truncated`]; [`WireError::UnknownMessage`]; [`WireError::Length`] if what follows
    /// the clear part is not as long as the header says, or a data message says 0 or more than an operation
    /// has.
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

    /// Bytes of a message of this header and body.
    #[inline]
    pub const fn len(header: &header::Repr, body: &Body) -> usize {
        let payload = if matches!(header.kind, Kind::Data) { header.length as usize } else { 0 };
        header::LEN + body.len() + payload + TAG_LEN
    }

    /// Writes the clear part at the start of `out` and returns its bytes; panics if `out` is shorter.
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
