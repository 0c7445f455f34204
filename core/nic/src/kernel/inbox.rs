//! The inbox of a lane: packets that wait for the lane, in order. Short packets have their own buffers, so
//! that many requests can wait at the same time.

use super::base::Piece;
use super::streams::PACKET;

/// Maximum number of waiting packets; `LONG` of them may be longer than [`SHORT`].
const INBOX: usize = 32;
const LONG: usize = 4;
/// Maximum size in bytes of a short packet: 48 bytes of parameters and the destination of the answer.
const SHORT: usize = 64;

/// A waiting packet.
#[derive(Copy, Clone)]
struct Waiting {
    piece: Piece,
    len: usize,
}

/// A queue of waiting packets.
pub(super) struct Inbox {
    waiting: [Option<Waiting>; INBOX],
    short: Box<[u8]>,
    long: Box<[u8]>,
    head: usize,
    count: usize,
    /// Buffer index of the first long packet, and number of waiting long packets.
    first_long: usize,
    longs: usize,
    /// Number of packets, from the first one on, whose memory has been prefetched.
    pub prefetched: usize,
}

fn is_long(len: usize) -> bool {
    len > SHORT
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            waiting: [None; INBOX],
            short: vec![0; INBOX * SHORT].into_boxed_slice(),
            long: vec![0; LONG * PACKET].into_boxed_slice(),
            head: 0,
            count: 0,
            first_long: 0,
            longs: 0,
            prefetched: 0,
        }
    }

    /// Returns true if there is a buffer for another packet of any length.
    pub(crate) fn has_capacity(&self) -> bool {
        self.count < INBOX && self.longs < LONG
    }

    pub(crate) fn is_half_full(&self) -> bool {
        self.count >= INBOX / 2
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the buffer of a packet: of a long packet by the number of long ones `before` it, of a short
    /// packet by its position.
    fn place(&mut self, slot: usize, before: usize, len: usize) -> &mut [u8] {
        if is_long(len) {
            let start = (self.first_long + before) % LONG * PACKET;
            &mut self.long[start..start + len]
        } else {
            &mut self.short[slot * SHORT..slot * SHORT + len]
        }
    }

    /// Asserts that the counts agree with the waiting packets.
    pub(crate) fn check(&self) {
        assert!(self.count <= INBOX && self.longs <= LONG, "packets that wait <= slots of the inbox");
        assert!(self.prefetched <= INBOX && self.first_long < LONG, "positions lie within the inbox");
        let waiting = (0..self.count).map(|number| self.waiting[(self.head + number) % INBOX]);
        let longs = waiting.flatten().filter(|waiting| is_long(waiting.len)).count();
        assert_eq!(self.longs, longs, "long packets = long packets that wait");
    }

    /// Appends a packet. The caller has checked `has_capacity`.
    pub(crate) fn push(&mut self, piece: &Piece, bytes: &[u8]) {
        let slot = (self.head + self.count) % INBOX;
        let len = bytes.len().min(PACKET);
        let before = self.longs;
        self.place(slot, before, len).copy_from_slice(&bytes[..len]);
        self.longs += usize::from(is_long(len));
        self.waiting[slot] = Some(Waiting { piece: *piece, len });
        self.count += 1;
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<(&Piece, &[u8])> {
        if self.count == 0 {
            return None;
        }
        let Waiting { piece, len } = self.waiting[self.head].as_ref()?;
        let len = *len;
        let bytes = if is_long(len) {
            &self.long[self.first_long * PACKET..self.first_long * PACKET + len]
        } else {
            &self.short[self.head * SHORT..self.head * SHORT + len]
        };
        Some((piece, bytes))
    }

    /// Returns the packet after `number` others, if it is short.
    pub(crate) fn short(&self, number: usize) -> Option<(Piece, &[u8])> {
        let slot = (self.head + number) % INBOX;
        let Waiting { piece, len } = self.waiting[slot].filter(|_| number < self.count)?;
        (!is_long(len)).then(|| (piece, &self.short[slot * SHORT..slot * SHORT + len]))
    }

    pub(crate) fn pop(&mut self) {
        if let Some(gone) = self.waiting[self.head].take()
            && is_long(gone.len)
        {
            (self.first_long, self.longs) = ((self.first_long + 1) % LONG, self.longs - 1);
        }
        self.head = (self.head + 1) % INBOX;
        self.count -= 1;
        self.prefetched = self.prefetched.saturating_sub(1);
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.fill(None);
        (self.head, self.count, self.first_long, self.longs, self.prefetched) = (0, 0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use remora_transport::rc::strom::Part;

    use super::*;

    #[test]
    fn short_and_long_packets_leave_as_they_came_and_have_room_apart() {
        let piece = |tag| Piece { part: Part::new(1, tag, 0, true, [true; 2]), passing: None };
        let bytes = |tag: u32| {
            vec![tag as u8; if tag.is_multiple_of(3) { 65 + tag as usize } else { tag as usize % 65 }]
        };
        let mut inbox = Inbox::new();
        let mut next = 0;
        let mut first = 0;
        for turn in 0..200 {
            while inbox.has_capacity() && next - first < 1 + turn % 40 {
                inbox.push(&piece(next), &bytes(next));
                next += 1;
            }
            for number in 0..inbox.len() {
                let wanted = bytes(first + number as u32);
                let short = inbox.short(number).map(|(piece, bytes)| (piece.part.tag(), bytes.to_vec()));
                assert_eq!(short, (wanted.len() <= SHORT).then_some((first + number as u32, wanted)));
            }
            for _ in 0..1 + turn % 5 {
                let Some((piece, there)) = inbox.front() else { break };
                assert_eq!((piece.part.tag(), there), (first, &bytes(first)[..]));
                inbox.pop();
                first += 1;
            }
        }
        assert!(first > 300, "{first}");
        inbox.clear();
        assert!(inbox.is_empty() && inbox.front().is_none());
        (0..INBOX as u32).for_each(|_| inbox.push(&piece(1), &[1]));
        assert!(!inbox.has_capacity());
        inbox.clear();
        (0..LONG as u32).for_each(|_| inbox.push(&piece(1), &[0; SHORT + 1]));
        assert!(!inbox.has_capacity());
    }
}
