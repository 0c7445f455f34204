//! Streams of random numbers by what they are for, never by the order in which they are asked for.

use remora_fault::Random;

/// What a stream is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Times between flows.
    Gaps = 1,
    /// Sizes of flows.
    Sizes = 2,
    /// Destinations of flows.
    Destinations = 3,
    /// The order of hosts in a permutation.
    Order = 4,
    /// Who sends in an incast.
    Senders = 5,
    /// Who receives in an incast.
    Receiver = 6,
}

/// A seed for one workload of a scenario.
pub fn of_workload(seed: u64, number: u64) -> u64 {
    mixed(mixed(seed, 0x776f_726b), number)
}

/// The stream of a purpose and host; where no host has it, of a round.
pub fn stream(seed: u64, purpose: Purpose, host: u64) -> Random {
    Random::new(mixed(mixed(seed, purpose as u64), host))
}

/// A number that depends on both.
fn mixed(a: u64, b: u64) -> u64 {
    Random::new(Random::new(a).bits() ^ b).bits()
}
