//! Common parts of the fuzzers that need a whole NIC: a small simulated network, memory with guards, and
//! hostile programs and peers.
//!
//! An input is a [`peer::Input`], a [`prism::Input`], a [`strom::Input`], an [`injections::Input`], a
//! [`rings::Input`] or a [`rma::Input`]. It consists of parameters of the network and a list of actions.
//! Every input gets its own network, so that a run can be repeated exactly. (A [`cm::Input`] has a
//! connection manager and no NIC.)
//!
//! - [`node_memory`] has the memory, and records which bytes may change.
//! - [`testbed`] has the queue pairs, and checks their results.
//! - [`hostile_address`], [`crafted`] and [`flagged`] create the addresses and packets of a hostile peer.

pub mod cm;
pub mod crafted;
pub mod flagged;
pub mod hostile_address;
pub mod injections;
#[allow(dead_code, reason = "the tests of chains use the rest of it")]
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

/// The minimum length of an input in bytes. Mutations that keep the last bytes also keep all bytes that
/// follow from them.
const LEAST: usize = 512;
/// The number of bytes at the end of an input that seed its continuation.
const SEED: usize = 4;

/// Runs an input. A short one is continued with random bytes, seeded by its last bytes. Saved inputs are
/// short, because the fuzzer keeps only bytes that increase coverage; alone they would give only two or
/// three actions.
pub fn run<T: for<'a> Arbitrary<'a>>(data: &[u8], run: impl FnOnce(T)) {
    let mut bytes = data.to_vec();
    let seed = data.iter().rev().take(SEED).fold(1, |seed, byte| seed << 8 | u64::from(*byte));
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < LEAST {
        // The generator is Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bytes.extend_from_slice(&random.to_le_bytes());
    }
    if let Ok(input) = T::arbitrary_take_rest(Unstructured::new(&bytes)) {
        run(input);
    }
}

/// The maximum number of actions of an input.
const ACTIONS: usize = 32;

/// Reads actions until the bytes are used up. With the derived implementation every action would be the last
/// with probability one half.
fn to_the_end<'a, T: Arbitrary<'a>>(rest: &mut Unstructured<'a>) -> arbitrary::Result<Vec<T>> {
    let mut actions = Vec::new();
    while !rest.is_empty() && actions.len() < ACTIONS {
        actions.push(rest.arbitrary()?);
    }
    Ok(actions)
}

/// Reads up to 255 bytes. The derived implementation would end at each byte with probability one half.
fn bytes(rest: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    let len = rest.arbitrary::<u8>()?;
    rest.bytes(usize::from(len).min(rest.len())).map(<[u8]>::to_vec)
}
