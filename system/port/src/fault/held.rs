//! Frames that were held back and will be sent or handed on later, in the order in which they become due.

/// Nanoseconds after which a reordered frame is released even if no other frames have passed it.
const REORDER_PATIENCE_NS: u64 = 1_000_000;

/// The condition on which a held frame becomes due.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// As soon as there is space.
    Now,
    /// At this time, in nanoseconds.
    Time(u64),
    /// After this number of further frames has passed.
    Passed(u32),
}

#[derive(Debug)]
struct Frame<T> {
    due_ns: u64,
    /// Number of frames that must still pass; 0 if only the time counts or the frame is due.
    to_pass: u32,
    tag: T,
    bytes: Vec<u8>,
}

/// Held frames of one direction, each with the data needed to release it. The number of frames is bounded,
/// and buffers are reused.
#[derive(Debug)]
pub(super) struct Held<T> {
    frames: Vec<Frame<T>>,
    spare: Vec<Vec<u8>>,
    max: usize,
}

impl<T: Copy> Held<T> {
    pub(super) fn new(max: usize) -> Self {
        Held { frames: Vec::new(), spare: Vec::new(), max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= self.max
    }

    /// Holds a copy of `bytes`. A caller that has a choice checks [`Held::is_full`] first.
    pub(super) fn hold(&mut self, until: Until, now_ns: u64, tag: T, bytes: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        let (due_ns, to_pass) = match until {
            Until::Now => (0, 0),
            Until::Time(time) => (time, 0),
            Until::Passed(frames) => (now_ns.saturating_add(REORDER_PATIENCE_NS), frames),
        };
        self.frames.push(Frame { due_ns, to_pass, tag, bytes: copy });
    }

    /// Counts a frame of this direction that has passed.
    pub(super) fn passed(&mut self) {
        for frame in self.frames.iter_mut().filter(|frame| frame.to_pass > 0) {
            frame.to_pass -= 1;
            if frame.to_pass == 0 {
                frame.due_ns = 0;
            }
        }
    }

    /// Offers the frame that has been due for longest to `put`, and removes it if `put` returns true.
    /// Returns what `put` returned, or `None` if no frame is due.
    pub(super) fn put_back(&mut self, now_ns: u64, put: impl FnOnce(T, &[u8]) -> bool) -> Option<bool> {
        // `min_by_key` returns the first of equals: frames due at one moment leave in the order of their
        // arrival.
        let due = self.frames.iter().enumerate().filter(|(_, frame)| frame.due_ns <= now_ns);
        let (index, _) = due.min_by_key(|(_, frame)| frame.due_ns)?;
        let gone = put(self.frames[index].tag, &self.frames[index].bytes);
        if gone {
            self.spare.push(self.frames.remove(index).bytes);
        }
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(held: &mut Held<u8>, now: u64) -> Option<u8> {
        let mut frame = None;
        held.put_back(now, |tag, bytes| {
            assert_eq!(bytes, [tag; 3]);
            frame = Some(tag);
            true
        });
        frame
    }

    #[test]
    fn frames_come_back_by_time_and_in_order_among_equals() {
        let mut held = Held::new(9);
        for (tag, until) in
            [(1, Until::Time(50)), (2, Until::Time(20)), (3, Until::Time(50)), (4, Until::Now)]
        {
            held.hold(until, 0, tag, &[tag; 3]);
        }
        assert_eq!([next(&mut held, 10), next(&mut held, 10)], [Some(4), None]);
        assert_eq!(
            [next(&mut held, 99), next(&mut held, 99), next(&mut held, 99)],
            [Some(2), Some(1), Some(3)]
        );
        assert!(held.is_empty());
    }

    #[test]
    fn a_reordered_frame_waits_for_others_or_for_a_millisecond() {
        let mut held = Held::new(9);
        held.hold(Until::Passed(2), 100, 1, &[1; 3]);
        held.hold(Until::Passed(5), 100, 2, &[2; 3]);
        held.passed();
        assert_eq!(next(&mut held, 200), None);
        held.passed();
        assert_eq!(next(&mut held, 200), Some(1));
        assert_eq!(next(&mut held, 99 + REORDER_PATIENCE_NS), None);
        assert_eq!(next(&mut held, 100 + REORDER_PATIENCE_NS), Some(2));
    }

    #[test]
    fn what_found_no_room_stays_first() {
        let mut held = Held::new(2);
        held.hold(Until::Now, 0, 1, &[1; 3]);
        held.hold(Until::Now, 0, 2, &[2; 3]);
        assert!(held.is_full());
        assert_eq!(held.put_back(0, |tag, _| tag != 1), Some(false));
        assert_eq!([next(&mut held, 0), next(&mut held, 0)], [Some(1), Some(2)]);
    }
}
