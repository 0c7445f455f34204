//! Shared parts of the fuzzers that need a whole NIC: a small world, memory with guards, and hostile programs
//! and peers.
//!
//! An input is a [`play::Play`], a [`prism::Play`], a [`strom::Play`], an [`injections::Play`] or a
//! [`rings::Play`]: the parameters of a world, and actions. Every input gets its own world, so that it always
//! does the same.
//!
//! - [`estate`] has the memory, and knows what may change in it.
//! - [`cast`] has the queue pairs, and checks their results.
//! - [`place`], [`crafted`] and [`flagged`] make up the addresses and packets of a hostile peer.

pub mod cast;
pub mod crafted;
pub mod estate;
pub mod flagged;
pub mod injections;
#[path = "../../program/chain/tests/over_a_connection/install.rs"]
pub mod install;
pub mod place;
pub mod play;
pub mod prism;
pub mod rings;
pub mod strom;

use arbitrary::{Arbitrary, Unstructured};

/// Actions of one input at most.
const MOVES: usize = 32;

/// Actions until the bytes are used up: derived, each would be the last with probability one half.
fn to_the_end<'a, T: Arbitrary<'a>>(rest: &mut Unstructured<'a>) -> arbitrary::Result<Vec<T>> {
    let mut moves = Vec::new();
    while !rest.is_empty() && moves.len() < MOVES {
        moves.push(rest.arbitrary()?);
    }
    Ok(moves)
}

/// Up to 255 bytes, for the same reason.
fn bytes(rest: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    let len = rest.arbitrary::<u8>()?;
    rest.bytes(usize::from(len).min(rest.len())).map(<[u8]>::to_vec)
}
