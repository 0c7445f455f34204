//! The associated data that the tag of a message covers.

use super::header::{self, Nonce};
use super::request;

/// Maximum number of earlier hops: hops 1, 2 and 3 before hop 4.
const HOPS: usize = 3;

/// Maximum length of the associated data in bytes: the longest clear part and the nonces.
pub const MAX_AAD: usize = header::LEN + request::LEN + HOPS * Nonce::LEN;

/// The nonces of the hops of an operation so far, in order.
///
/// The pieces of hop 3 may arrive in any order, so they count as one hop whose nonce is the exclusive or of
/// their nonces.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSequence {
    hops: [Nonce; HOPS],
    len: u8,
}

impl TagSequence {
    /// Returns the tag sequence of an operation whose request has this nonce.
    #[inline]
    pub const fn new(request: Nonce) -> TagSequence {
        TagSequence {
            hops: [request, Nonce { sender: 0, counter: 0 }, Nonce { sender: 0, counter: 0 }],
            len: 1,
        }
    }

    /// The empty tag sequence, with which a request is sealed.
    pub const EMPTY: TagSequence = TagSequence { hops: [Nonce { sender: 0, counter: 0 }; HOPS], len: 0 };

    /// Returns the tag sequence extended by one hop. Panics after the third hop.
    #[inline]
    pub fn then(mut self, hop: Nonce) -> TagSequence {
        self.hops[usize::from(self.len)] = hop;
        self.len += 1;
        self
    }

    /// Returns the tag sequence of the request alone.
    #[inline]
    pub fn request(&self) -> TagSequence {
        TagSequence::new(self.hops[0])
    }

    /// Returns the nonces of the hops so far.
    #[inline]
    pub fn hops(&self) -> &[Nonce] {
        &self.hops[..usize::from(self.len)]
    }

    /// Writes the associated data of a message whose clear part is `clear`, and returns it.
    #[inline]
    pub fn aad<'a>(&self, clear: &[u8], out: &'a mut [u8; MAX_AAD]) -> &'a [u8] {
        let mut len = clear.len();
        out[..len].copy_from_slice(clear);
        for hop in self.hops() {
            out[len..len + Nonce::LEN].copy_from_slice(&hop.bytes());
            len += Nonce::LEN;
        }
        &out[..len]
    }
}
