//! Timers of queue pairs: a binary heap that contains each queue pair at most once, so its size is fixed.
//!
//! A deadline that moves later is not updated in the heap. When the old deadline expires, the queue pair is
//! scheduled for its current one. So progress, which moves deadlines with every packet, costs nothing.

use remora_transport::Instant;

/// A heap of deadlines, with each queue pair's position in it.
pub(crate) struct Timers {
    heap: Vec<(Instant, u32)>,
    place: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Timers {
    /// Asserts that the queue pair at `index` is called by `deadline`, in debug builds only.
    #[inline(always)]
    pub(crate) fn checked(&self, index: u32, deadline: impl FnOnce() -> Instant) {
        if cfg!(debug_assertions) {
            self.check(index, deadline());
        }
    }

    /// Creates timers for queue pairs `0..capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Timers { heap: Vec::with_capacity(capacity), place: vec![NOWHERE; capacity] }
    }

    /// Returns the earliest deadline.
    #[inline]
    pub(crate) fn first(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |(time, _)| *time)
    }

    /// Schedules queue pair `index` for `time`, unless it is scheduled earlier.
    #[inline]
    pub(crate) fn schedule(&mut self, index: u32, time: Instant) {
        if time == Instant::NEVER {
            return;
        }
        let place = self.place[index as usize];
        if place == NOWHERE {
            self.heap.push((time, index));
            self.rise(self.heap.len() - 1);
        } else if time < self.heap[place as usize].0 {
            self.heap[place as usize].0 = time;
            self.rise(place as usize);
        }
    }

    /// Removes one queue pair whose deadline is not after `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let (time, index) = *self.heap.first()?;
        if time > now {
            return None;
        }
        self.remove(index);
        Some(index)
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&mut self, index: u32) {
        let place = self.place[index as usize];
        if place == NOWHERE {
            return;
        }
        self.place[index as usize] = NOWHERE;
        let last = self.heap.len() - 1;
        self.heap.swap(place as usize, last);
        self.heap.pop();
        if (place as usize) < self.heap.len() {
            self.place[self.heap[place as usize].1 as usize] = place;
            self.sink(place as usize);
            self.rise(place as usize);
        }
    }

    /// Asserts that the queue pair's position is correct, and that its scheduled time is not after
    /// `deadline`.
    pub(crate) fn check(&self, index: u32, deadline: Instant) {
        let place = self.place[index as usize];
        if place == NOWHERE {
            assert_eq!(deadline, Instant::NEVER, "a queue pair with a deadline has a timer");
            return;
        }
        let (time, owner) = self.heap[place as usize];
        assert_eq!(owner, index, "a queue pair's place in the heap is its own");
        assert!(time <= deadline, "a timer expires no later than the deadline");
        let parent = (place as usize).checked_sub(1).map(|before| self.heap[before / 2].0);
        assert!(parent.is_none_or(|parent| parent <= time), "no timer is earlier than the one above it");
    }

    fn rise(&mut self, mut position: usize) {
        while position > 0 && self.heap[position].0 < self.heap[(position - 1) / 2].0 {
            self.heap.swap(position, (position - 1) / 2);
            self.place[self.heap[position].1 as usize] = position as u32;
            position = (position - 1) / 2;
        }
        self.place[self.heap[position].1 as usize] = position as u32;
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let smaller = (2 * position + 1..=2 * position + 2)
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| self.heap[*child].0);
            let Some(child) = smaller.filter(|child| self.heap[*child].0 < self.heap[position].0) else {
                break;
            };
            self.heap.swap(position, child);
            self.place[self.heap[position].1 as usize] = position as u32;
            position = child;
        }
        self.place[self.heap[position].1 as usize] = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a timer expires no later than the deadline")]
    fn the_check_sees_a_timer_that_is_late() {
        let mut timers = Timers::new(2);
        timers.schedule(1, Instant(20));
        timers.check(1, Instant(20));
        timers.check(1, Instant(19));
    }

    #[test]
    fn deadlines_come_in_order_and_each_queue_pair_once() {
        let mut timers = Timers::new(64);
        let mut model = [Instant::NEVER; 64];
        let mut random = 12345u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (random >> 33) as u32 % 64;
            let time = Instant((random >> 40) % 1000 + 1);
            match random >> 61 {
                0 => {
                    timers.remove(index);
                    model[index as usize] = Instant::NEVER;
                }
                1 => {
                    let first = *model.iter().min().unwrap();
                    assert_eq!(timers.first(), first);
                    if let Some(popped) = timers.pop(time) {
                        assert_eq!(model[popped as usize], first);
                        assert!(first <= time);
                        model[popped as usize] = Instant::NEVER;
                    } else {
                        assert!(first > time);
                    }
                }
                _ => {
                    timers.schedule(index, time);
                    model[index as usize] = model[index as usize].min(time);
                }
            }
        }
        assert!(timers.heap.capacity() == 64, "the heap never grows");
    }
}
