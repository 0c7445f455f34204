//! What the fuzzers that need a whole NIC share: a small world, memory with guards, and players that misbehave.
//!
//! An input is a [`play::Play`], a [`prism::Play`], a [`strom::Play`], an [`injections::Play`] or a [`rings::Play`]: what the world is like, and moves. Every input gets a world of its own,
//! so that one input alone always does the same. [`estate`] has the memory and says what may change in it, [`cast`] the
//! queue pairs and what must come out of them, [`place`], [`crafted`] and [`flagged`] the addresses and packets that a rude peer makes up.

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

/// Moves of one input at most.
const MOVES: usize = 32;

/// Moves as long as there are bytes for them: derived, each would be the last by the toss of a coin.
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
