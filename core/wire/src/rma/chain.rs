//! What the tag of a message covers beside its text.

use super::header::{self, Nonce};
use super::request;

/// Nonces of earlier hops at most: those of hops 1, 2 and 3 before hop 4.
const HOPS: usize = 3;

/// Bytes of associated data at most: the longest clear part, then the nonces.
pub const MAX_AAD: usize = header::LEN + request::LEN + HOPS * Nonce::LEN;

/// The nonces of an operation's hops so far, in order.
///
/// The pieces of hop 3 may come in any order. They count as one hop, whose nonce is the exclusive or of
/// theirs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    hops: [Nonce; HOPS],
    len: u8,
}

impl Chain {
    /// The chain of an operation whose request has this nonce.
    #[inline]
    pub const fn new(request: Nonce) -> Chain {
        Chain { hops: [request, Nonce { sender: 0, counter: 0 }, Nonce { sender: 0, counter: 0 }], len: 1 }
    }

    /// No hop yet: what a request is sealed with.
    pub const EMPTY: Chain = Chain { hops: [Nonce { sender: 0, counter: 0 }; HOPS], len: 0 };

    /// The same with one more hop; panics after the third.
    #[inline]
    pub fn then(mut self, hop: Nonce) -> Chain {
        self.hops[usize::from(self.len)] = hop;
        self.len += 1;
        self
    }

    /// The chain of the request alone.
    #[inline]
    pub fn request(&self) -> Chain {
        Chain::new(self.hops[0])
    }

    /// Nonces of the hops so far.
    #[inline]
    pub fn hops(&self) -> &[Nonce] {
        &self.hops[..usize::from(self.len)]
    }

    /// Writes the associated data of a message whose clear part is `clear`, and returns its bytes.
    #[inline]
    pub fn aad<'a>(&self, clear: &[u8], out: &'a mut [u8; MAX_AAD]) -> &'a [u8] {
        let mut at = clear.len();
        out[..at].copy_from_slice(clear);
        for hop in self.hops() {
            out[at..at + Nonce::LEN].copy_from_slice(&hop.bytes());
            at += Nonce::LEN;
        }
        &out[..at]
    }
}
