//! The pause before a client retries a lock that another client holds.

use crate::random::Random;

/// Upper bound of the first pause, in nanoseconds.
const FIRST: u64 = 8_000;
/// Number of times that the bound doubles: the longest pause is 2^8 times the first.
const DOUBLINGS: u32 = 8;

/// Returns the pause after `tries` failed attempts, in nanoseconds. The bound doubles with each attempt. A
/// random part keeps two clients from colliding again.
pub(crate) fn pause(tries: u32, random: &mut Random) -> u64 {
    let most = FIRST << tries.min(DOUBLINGS);
    most / 4 + random.below(most - most / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let mut random = Random::new(1);
        for tries in 0..40 {
            let most = FIRST << tries.min(DOUBLINGS);
            let all: Vec<u64> = (0..100).map(|_| pause(tries, &mut random)).collect();
            assert!(all.iter().all(|pause| (most / 4..most).contains(pause)), "{tries}: {all:?}");
            assert!(all.iter().min() < all.iter().max());
        }
    }
}
