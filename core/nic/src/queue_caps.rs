//! The number of slots that a queue needs for its capabilities (`ibv_qp_cap`), and the capabilities that a
//! ring provides.
//!
//! A queue is measured in slots of 64 bytes, and a work request takes one or more slots. `max_wr` work
//! requests of maximum length must fit, so the ring is sized for these. The size is rounded up to a power of
//! two, and the surplus is reported as larger capabilities.

use crate::receive_queue::stride;
use crate::ring::MAX_RING_SLOTS;
use crate::wqe::{MAX_INLINE, MAX_SGE, MAX_SLOTS, SLOT};

/// Maximum number of work requests of a queue (`max_qp_wr`, `max_srq_wr`): the largest ring holds this number
/// of work requests of any length.
pub const MAX_WR: u32 = MAX_RING_SLOTS / MAX_SLOTS as u32;

/// Capabilities of a send queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SendCaps {
    /// Number of work requests, at most [`MAX_WR`], with a list or inline data of maximum length.
    pub max_wr: u32,
    /// Maximum number of elements of a list, at most [`MAX_SGE`].
    pub max_sge: u32,
    /// Maximum number of inline bytes, at most [`MAX_INLINE`].
    pub max_inline: u32,
}

impl SendCaps {
    /// The largest capabilities of a send queue.
    pub const MOST: SendCaps =
        SendCaps { max_wr: MAX_WR, max_sge: MAX_SGE as u32, max_inline: MAX_INLINE as u32 };

    /// Returns the number of slots of the longest work request, 1 to 16.
    fn longest(&self) -> u32 {
        let list = self.max_sge.saturating_sub(1).div_ceil(2);
        1 + list.max(self.max_inline.div_ceil(SLOT as u32))
    }

    /// Returns the number of slots of the ring, a power of two. `None` if a capability exceeds
    /// [`MOST`](SendCaps::MOST) (EINVAL).
    pub fn slots(&self) -> Option<u32> {
        let most = SendCaps::MOST;
        let fits =
            self.max_wr <= most.max_wr && self.max_sge <= most.max_sge && self.max_inline <= most.max_inline;
        fits.then(|| (self.max_wr * self.longest()).max(1).next_power_of_two())
    }

    /// Returns the capabilities that the ring provides, at least the requested ones. `max_wr` 0 remains 0.
    pub fn given(&self) -> Option<SendCaps> {
        let slots = self.slots()?;
        let longest = self.longest();
        Some(SendCaps {
            max_wr: if self.max_wr == 0 { 0 } else { (slots / longest).min(MAX_WR) },
            max_sge: (2 * longest - 1).min(MAX_SGE as u32),
            max_inline: (longest - 1) * SLOT as u32,
        })
    }
}

/// Capabilities of a receive queue, shared or not.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReceiveCaps {
    /// Number of work requests, at most [`MAX_WR`].
    pub max_wr: u32,
    /// Maximum number of elements of a list, at most [`MAX_SGE`].
    pub max_sge: u32,
}

impl ReceiveCaps {
    /// The largest capabilities of a receive queue.
    pub const MOST: ReceiveCaps = ReceiveCaps { max_wr: MAX_WR, max_sge: MAX_SGE as u32 };

    /// Returns the number of slots of the ring, a power of two. `None` if a capability exceeds
    /// [`MOST`](ReceiveCaps::MOST) (EINVAL).
    pub fn slots(&self) -> Option<u32> {
        let fits = self.max_wr <= MAX_WR && self.max_sge <= MAX_SGE as u32;
        fits.then(|| (self.max_wr * self.stride()).max(1).next_power_of_two())
    }

    /// Returns the capabilities that the ring provides, at least the requested ones. `max_wr` 0 remains 0.
    pub fn given(&self) -> Option<ReceiveCaps> {
        let slots = self.slots()?;
        let stride = self.stride();
        Some(ReceiveCaps {
            max_wr: if self.max_wr == 0 { 0 } else { (slots / stride).min(MAX_WR) },
            max_sge: (2 * stride - 1).min(MAX_SGE as u32),
        })
    }

    fn stride(&self) -> u32 {
        stride(self.max_sge) as u32
    }
}

#[cfg(test)]
mod tests {
    use remora_memory::Key;

    use super::*;
    use crate::request::{Flags, Operation, Payload, Remote, Sge, WorkRequest};
    use crate::wqe::{Bounds, PostError, Target, write};

    const SEND: [SendCaps; 8] = [
        SendCaps { max_wr: 1, max_sge: 0, max_inline: 0 },
        SendCaps { max_wr: 1, max_sge: 1, max_inline: 1 },
        SendCaps { max_wr: 100, max_sge: 1, max_inline: 0 },
        SendCaps { max_wr: 100, max_sge: 2, max_inline: 220 },
        SendCaps { max_wr: 128, max_sge: 16, max_inline: 256 },
        SendCaps { max_wr: 1000, max_sge: 4, max_inline: 960 },
        SendCaps { max_wr: 3, max_sge: 30, max_inline: 64 },
        SendCaps::MOST,
    ];

    /// Posts work requests with this payload into a queue of `slots` slots until it is full, and returns
    /// their number.
    fn posted(slots: u32, caps: &SendCaps, payload: Payload<'_>) -> u32 {
        let operation = Operation::Write(Remote { addr: 0, rkey: Key::new(0) });
        let request = WorkRequest { id: 0, operation, payload, flags: Flags::default() };
        let bounds = Bounds { max_sge: caps.max_sge, max_inline: caps.max_inline };
        let mut free = slots as usize;
        let mut count = 0;
        loop {
            match write(&request, &Target::Peer, &bounds, free, |_, _| {}) {
                Ok(taken) => (free, count) = (free - taken, count + 1),
                Err(full) => {
                    assert_eq!(full, PostError::QueueFull);
                    return count;
                }
            }
        }
    }

    #[test]
    fn as_many_of_the_longest_work_requests_fit_as_were_asked_for_and_as_are_given() {
        let list = [Sge { addr: 0, len: 1, lkey: Key::new(0) }; MAX_SGE];
        let bytes = [0; MAX_INLINE];
        for asked in SEND {
            let slots = asked.slots().unwrap();
            let given = asked.given().unwrap();
            assert!(slots.is_power_of_two() && slots <= MAX_RING_SLOTS);
            for caps in [asked, given] {
                let long = Payload::Sges(&list[..caps.max_sge as usize]);
                let inline = Payload::Inline(&bytes[..caps.max_inline as usize]);
                assert!(posted(slots, &caps, long) >= caps.max_wr, "{caps:?}");
                assert!(posted(slots, &caps, inline) >= caps.max_wr, "{caps:?}");
            }
            let more = [
                given.max_wr >= asked.max_wr,
                given.max_sge >= asked.max_sge,
                given.max_inline >= asked.max_inline,
            ];
            assert_eq!(more, [true; 3], "{asked:?} gives {given:?}");
            assert_eq!(given.slots(), Some(slots), "to ask for what is given gives the same ring");
        }
    }

    #[test]
    fn a_receive_queue_holds_as_many_of_the_longest_lists_as_it_gives() {
        for (max_wr, max_sge) in [(1, 0), (1, 1), (100, 1), (100, 3), (7, 30), (MAX_WR, 30)] {
            let asked = ReceiveCaps { max_wr, max_sge };
            let slots = asked.slots().unwrap();
            let given = asked.given().unwrap();
            assert!(slots.is_power_of_two() && slots <= MAX_RING_SLOTS);
            assert!(given.max_wr >= max_wr && given.max_sge >= max_sge, "{asked:?} gives {given:?}");
            assert!(u64::from(slots) >= u64::from(given.max_wr) * stride(given.max_sge));
            assert_eq!(given.slots(), Some(slots), "to ask for what is given gives the same ring");
        }
    }

    #[test]
    fn no_work_requests_are_none_and_more_than_the_most_is_refused() {
        let none = SendCaps { max_wr: 0, max_sge: 1, max_inline: 0 };
        assert_eq!((none.slots(), none.given().map(|caps| caps.max_wr)), (Some(1), Some(0)));
        let none = ReceiveCaps { max_wr: 0, max_sge: 1 };
        assert_eq!((none.slots(), none.given().map(|caps| caps.max_wr)), (Some(1), Some(0)));
        let SendCaps { max_wr, max_sge, max_inline } = SendCaps::MOST;
        assert_eq!((max_wr, max_sge, max_inline), (65_536, 30, 960));
        for beyond in [
            SendCaps { max_wr: max_wr + 1, ..SendCaps::MOST },
            SendCaps { max_sge: max_sge + 1, ..SendCaps::MOST },
            SendCaps { max_inline: max_inline + 1, ..SendCaps::MOST },
            SendCaps { max_wr: u32::MAX, max_sge: u32::MAX, max_inline: u32::MAX },
        ] {
            assert_eq!((beyond.slots(), beyond.given()), (None, None), "{beyond:?}");
        }
        for beyond in [
            ReceiveCaps { max_wr: MAX_WR + 1, max_sge: 1 },
            ReceiveCaps { max_wr: 1, max_sge: MAX_SGE as u32 + 1 },
            ReceiveCaps { max_wr: u32::MAX, max_sge: u32::MAX },
        ] {
            assert_eq!((beyond.slots(), beyond.given()), (None, None), "{beyond:?}");
        }
    }
}
