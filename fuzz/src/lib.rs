//! Shared parts of the fuzzers that need a whole NIC: a small world, memory with guards, and hostile programs
//! and peers.
//!
//! An input is a [`peer::Input`], a [`prism::Input`], a [`strom::Input`], an [`injections::Input`], a
//! [`rings::Input`] or a [`rma::Input`]. It has the parameters of a world, and actions. Every input gets its own world, so that
//! it always does the same.
//!
//! - [`node_memory`] has the memory, and knows what may change in it.
//! - [`testbed`] has the queue pairs, and checks their results.
//! - [`hostile_address`], [`crafted`] and [`flagged`] make up the addresses and packets of a hostile peer.

pub mod crafted;
pub mod flagged;
pub mod hostile_address;
pub mod injections;
#[path = "../../program/chain/tests/over_a_connection/install.rs"]
pub mod install;
pub mod node_memory;
pub mod peer;
pub mod prism;
pub mod rings;
pub mod rma;
pub mod strom;
pub mod testbed;

use arbitrary::{Arbitrary, Unstructured};

/// Actions of one input at most.
const ACTIONS: usize = 32;

/// Actions until the bytes are used up: derived, each would be the last with probability one half.
fn to_the_end<'a, T: Arbitrary<'a>>(rest: &mut Unstructured<'a>) -> arbitrary::Result<Vec<T>> {
    let mut actions = Vec::new();
    while !rest.is_empty() && actions.len() < ACTIONS {
        actions.push(rest.arbitrary()?);
    }
    Ok(actions)
}

/// Up to 255 bytes, for the same reason.
fn bytes(rest: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    let len = rest.arbitrary::<u8>()?;
    rest.bytes(usize::from(len).min(rest.len())).map(<[u8]>::to_vec)
}
