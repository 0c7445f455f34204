//! The datagrams of one receive call, which are handed on frame by frame. No system calls.

use super::datagram::Arrival;
use remora_wire::frame::{Endpoint, Ingress, Origin, Start};

/// A buffer for one datagram or train, and the position up to which it was handed on. A train with more
/// frames than the caller's budget stays for the next call.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    next: usize,
    end: usize,
    segment: usize,
    source: Endpoint,
    origin: Option<Origin>,
}

impl Inbox {
    /// Creates a buffer of 65535 bytes: the longest train or datagram.
    pub(super) fn new() -> Self {
        let source = Endpoint::default();
        Inbox {
            buffer: vec![0; 65_535].into_boxed_slice(),
            next: 0,
            end: 0,
            segment: 0,
            source,
            origin: None,
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns the buffer for the next arrival. Must be called only while the inbox is empty.
    #[inline(always)]
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        debug_assert!(self.is_empty());
        &mut self.buffer
    }

    /// Records that `arrival` was written to [`Inbox::buffer`]. After an empty datagram the inbox is still
    /// empty.
    #[inline(always)]
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        debug_assert!(arrival.len <= self.buffer.len());
        self.next = 0;
        self.end = arrival.len.min(self.buffer.len());
        self.segment = arrival.segment.max(1);
        self.source = arrival.source;
        self.origin = arrival.fields.map(Origin::Ip);
    }

    /// Hands at most `budget` frames to `take`, and returns the number of frames and of their bytes.
    #[inline(always)]
    pub(super) fn hand_on(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> (usize, usize) {
        let first = self.next;
        let mut frames = 0;
        while self.next < self.end && frames < budget {
            let end = (self.next + self.segment).min(self.end);
            // The position is advanced before `take` is called, so that a frame that makes `take` panic is
            // not handed on twice.
            let bytes = &self.buffer[self.next..end];
            self.next = end;
            take(Ingress {
                bytes,
                start: Start::Bth,
                sealed: true,
                source: self.source,
                destination: None,
                origin: self.origin,
            });
            frames += 1;
        }
        (frames, self.next - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::frame::Address;

    fn filled(len: usize, segment: usize) -> Inbox {
        let mut inbox = Inbox::new();
        for (index, byte) in inbox.buffer().iter_mut().enumerate() {
            *byte = index as u8;
        }
        let source = Endpoint { address: Address([7; 16]), udp_port: 9 };
        inbox.arrived(Arrival { len, segment, source, fields: None, truncated: false });
        inbox
    }

    fn lengths(inbox: &mut Inbox, budget: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        inbox.hand_on(budget, &mut |frame| lengths.push(frame.bytes.len()));
        lengths
    }

    #[test]
    fn a_train_is_handed_on_by_segments_and_waits_at_the_budget() {
        let mut inbox = filled(25, 10);
        assert_eq!(lengths(&mut inbox, 2), [10, 10]);
        assert!(!inbox.is_empty());
        let mut last = Vec::new();
        assert_eq!(inbox.hand_on(9, &mut |frame| last.extend_from_slice(frame.bytes)), (1, 5));
        assert_eq!(last, [20, 21, 22, 23, 24]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_single_datagram_is_one_frame_and_an_empty_one_is_none() {
        assert_eq!(lengths(&mut filled(7, 7), 9), [7]);
        assert_eq!(lengths(&mut filled(0, 0), 9), [0usize; 0]);
        assert!(filled(0, 0).is_empty());
    }
}
