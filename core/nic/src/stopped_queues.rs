//! Queue pairs that wait for transmit queues of the port that are stopped ([`Egress::stopped`]). A queue pair
//! stands in the line of each queue that it waits for, and keeps its order there. Meanwhile it may also stand
//! in the scheduler's line: what it sends by other queues goes on.
//!
//! [`Egress::stopped`]: remora_wire::frame::Egress::stopped

use std::collections::VecDeque;

/// Transmit queues of a port at most: the bits of their set.
const QUEUES: usize = 64;

/// The lines of all transmit queues. Ports that stop none make none of them; the first that waits allocates.
#[derive(Default)]
pub(crate) struct StoppedQueues {
    lines: Vec<VecDeque<u32>>,
    /// Queues in whose lines somebody stands, by bit.
    awaited: u64,
    /// The queue that was served last: queues take turns.
    last: u32,
}

impl StoppedQueues {
    /// The queues that somebody waits for, bit n for queue n.
    #[inline(always)]
    pub fn awaited(&self) -> u64 {
        self.awaited
    }

    /// Puts a queue pair, which stands in none of these lines, at their ends.
    #[cold]
    pub fn enter(&mut self, index: u32, queues: u64) {
        self.lines.resize_with(QUEUES, VecDeque::new);
        self.awaited |= queues;
        let mut left = queues;
        while left != 0 {
            self.lines[left.trailing_zeros() as usize].push_back(index);
            left &= left - 1;
        }
    }

    /// Takes out the first queue pair of a queue that goes on, and the number of that queue.
    #[cold]
    pub fn next(&mut self, stopped: u64) -> Option<(u32, u32)> {
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

    /// Forgets a queue pair.
    #[cold]
    pub fn remove(&mut self, index: u32) {
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
