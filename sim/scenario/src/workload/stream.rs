//! Streams of random numbers that are chosen by purpose, so that the order of use does not matter.

use remora_fault::Random;

/// The purpose of a stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Gaps = 1,
    Sizes = 2,
    /// Receivers of flows.
    Destinations = 3,
    /// Order of the hosts in a permutation.
    Order = 4,
    /// Choice of the senders of an incast.
    Senders = 5,
    /// Choice of the receiver of an incast.
    Receiver = 6,
}

/// Returns the seed of a workload, by its number in the scenario.
pub(crate) fn of_workload(seed: u64, number: u64) -> u64 {
    mixed(mixed(seed, 0x776f_726b), number)
}

/// Returns the stream of a purpose and a host. For the receivers of incasts, `host` is the number of the
/// round, and for their senders it holds both.
pub(crate) fn stream(seed: u64, purpose: Purpose, host: u64) -> Random {
    Random::new(mixed(mixed(seed, purpose as u64), host))
}

/// Hashes two numbers to one.
fn mixed(a: u64, b: u64) -> u64 {
    Random::new(Random::new(a).bits() ^ b).bits()
}
