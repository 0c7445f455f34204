//! The set of QPN ranges to which a port wants a link. The port cannot wait when it sends a datagram, so
//! another thread requests the links.

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::udp::RANGES;

/// Number of bits of a word.
const BITS: usize = u64::BITS as usize;

/// A set of QPN ranges, with a descriptor that is readable while the set may be non-empty.
#[derive(Debug)]
pub struct Wanted {
    ranges: [AtomicU64; RANGES / BITS],
    woken: OwnedFd,
}

impl Wanted {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn new() -> Result<Wanted, Errno> {
        let woken = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wanted { ranges: [const { AtomicU64::new(0) }; RANGES / BITS], woken })
    }

    /// Adds a range, and wakes the other thread if the range was not in the set.
    #[cold]
    pub(super) fn add(&self, range: u8) {
        let word = usize::from(range) / BITS;
        let bit = 1 << (usize::from(range) % BITS);
        let Some(word) = self.ranges.get(word) else { return };
        if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            // Writing fails only if the eventfd is full, and a full eventfd is readable as well.
            let _ = rustix::io::write(&self.woken, &1u64.to_ne_bytes());
        }
    }

    /// Removes all ranges and returns them in order.
    pub fn take(&self) -> Vec<u8> {
        let _ = rustix::io::read(&self.woken, &mut [0u8; 8]);
        let words = self.ranges.iter().map(|word| word.swap(0, Ordering::AcqRel));
        let ranges = words.enumerate().flat_map(|(place, word)| {
            (0..BITS).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (place * BITS + bit) as u8)
        });
        ranges.collect()
    }
}

impl AsFd for Wanted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn ranges_are_taken_once_in_order_and_new_ones_wake() {
        let wanted = Wanted::new().unwrap();
        let readable = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&wanted, PollFlags::IN)], Some(&now)).unwrap() == 1
        };
        assert!(!readable());
        for range in [127, 0, 64, 63, 64] {
            wanted.add(range);
        }
        assert!(readable());
        assert_eq!(wanted.take(), [0, 63, 64, 127]);
        assert!(!readable() && wanted.take().is_empty());
        wanted.add(255);
        assert!(wanted.take().is_empty(), "there is no such range");
    }
}
