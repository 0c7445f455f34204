//! Queue pairs that wait for stopped transmit queues of the port ([`Egress::stopped`]). A queue pair is
//! listed for each queue that it waits for, in order. Meanwhile the scheduler may also run the queue pair,
//! because packets for other transmit queues can be sent.
//!
//! [`Egress::stopped`]: remora_wire::frame::Egress::stopped

use std::collections::VecDeque;

/// Maximum number of transmit queues of a port: the bits of the mask.
const QUEUES: usize = 64;

/// The lists of waiting queue pairs, one per transmit queue. They are allocated when the first queue pair
/// waits.
#[derive(Default)]
pub(crate) struct StoppedQueues {
    lines: Vec<VecDeque<u32>>,
    /// Mask of the transmit queues for which queue pairs wait.
    awaited: u64,
    /// The transmit queue that was served last; queues are served in round robin.
    last: u32,
}

impl StoppedQueues {
    /// Returns the mask of transmit queues for which queue pairs wait, bit n for queue n.
    #[inline(always)]
    pub(crate) fn awaited(&self) -> u64 {
        self.awaited
    }

    /// Appends a queue pair, which must not be listed yet, to the lists of these queues.
    #[cold]
    pub(crate) fn enter(&mut self, index: u32, queues: u64) {
        self.lines.resize_with(QUEUES, VecDeque::new);
        self.awaited |= queues;
        let mut left = queues;
        while left != 0 {
            self.lines[left.trailing_zeros() as usize].push_back(index);
            left &= left - 1;
        }
    }

    /// Removes the first queue pair of a queue that is no longer stopped. Returns the queue pair and the
    /// number of the queue.
    #[cold]
    pub(crate) fn next(&mut self, stopped: u64) -> Option<(u32, u32)> {
        let open = self.awaited & !stopped;
        if open == 0 {
            return None;
        }
        let first = self.last + 1;
        let queue = (first + open.rotate_right(first % 64).trailing_zeros()) % 64;
        self.last = queue;
        let line = &mut self.lines[queue as usize];
        let index = line.pop_front()?;
        if line.is_empty() {
            self.awaited &= !(1 << queue);
        }
        Some((index, queue))
    }

    /// Removes a queue pair from all lists.
    #[cold]
    pub(crate) fn remove(&mut self, index: u32) {
        for (queue, line) in self.lines.iter_mut().enumerate() {
            line.retain(|waiting| *waiting != index);
            if line.is_empty() {
                self.awaited &= !(1 << queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_turns_and_each_keeps_its_order() {
        let mut queues = StoppedQueues::default();
        (0..4).for_each(|index| queues.enter(index, 1 << 3 | 1 << 63));
        assert_eq!((queues.awaited(), queues.next(u64::MAX)), (1 << 3 | 1 << 63, None));
        let all: Vec<_> = (0..4).map(|_| queues.next(0).unwrap()).collect();
        assert_eq!(all, [(0, 3), (0, 63), (1, 3), (1, 63)]);
        assert_eq!(queues.next(1 << 63), Some((2, 3)));
        queues.remove(3);
        assert_eq!((queues.awaited(), queues.next(0), queues.next(0)), (1 << 63, Some((2, 63)), None));
    }
}
