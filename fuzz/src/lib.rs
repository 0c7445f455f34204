//! Shared parts of the fuzzers that need a whole NIC: a small world, memory with guards, and hostile programs
//! and peers.
//!
//! An input is a [`peer::Input`], a [`prism::Input`], a [`strom::Input`], an [`injections::Input`], a
//! [`rings::Input`] or a [`rma::Input`]. It has the parameters of a world, and actions. Every input gets its
//! own world, so that it always does the same. (A [`cm::Input`] has a connection manager, and no NIC.)
//!
//! - [`node_memory`] has the memory, and knows what may change in it.
//! - [`testbed`] has the queue pairs, and checks their results.
//! - [`hostile_address`], [`crafted`] and [`flagged`] make up the addresses and packets of a hostile peer.

pub mod cm;
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

/// Bytes of an input at least. A mutation that spares the last bytes spares what follows from them.
const LEAST: usize = 512;
/// The last bytes of an input, which are the seed of what it lacks.
const SEED: usize = 4;

/// Runs the input that these bytes are, or begin: a short one is continued by random bytes, whose seed its
/// last bytes are. The saved inputs are short, since only what they reach counts; alone they would make two
/// or three actions.
pub fn run<T: for<'a> Arbitrary<'a>>(data: &[u8], run: impl FnOnce(T)) {
    let mut bytes = data.to_vec();
    let seed = data.iter().rev().take(SEED).fold(1, |seed, byte| seed << 8 | u64::from(*byte));
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < LEAST {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bytes.extend_from_slice(&random.to_le_bytes());
    }
    if let Ok(input) = T::arbitrary_take_rest(Unstructured::new(&bytes)) {
        run(input);
    }
}

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
