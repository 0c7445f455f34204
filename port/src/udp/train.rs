//! The frames that wait to leave together: equal length, one peer, end to end in one buffer. No system calls.

use super::socket::MAX_DATAGRAM;
use wire::frame::Peer;

/// Datagrams that every kernel with `UDP_SEGMENT` takes in one train.
pub(super) const MAX_SEGMENTS: usize = 64;

/// Frames of one length to one peer, in the order in which they were committed. The last may be shorter, and then
/// nothing may follow it.
#[derive(Debug)]
pub(super) struct Train {
    bytes: Box<[u8]>,
    peer: Peer,
    /// Length of every frame but the last; meaningful when `count > 0`.
    segment: usize,
    count: usize,
    used: usize,
    /// Length of the frame that was lent and not committed yet; 0: none.
    lent: usize,
    /// At most so many frames; 1 where the kernel cannot cut trains.
    limit: usize,
}

impl Train {
    /// An empty train of at most `limit` frames.
    pub(super) fn new(limit: usize) -> Self {
        assert!((1..=MAX_SEGMENTS).contains(&limit));
        let bytes = vec![0; MAX_DATAGRAM].into_boxed_slice();
        Train { bytes, peer: Peer(0), segment: 0, count: 0, used: 0, lent: 0, limit }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// May a frame of `len` bytes to `peer` join what is here?
    #[inline(always)]
    pub(super) fn takes(&self, peer: Peer, len: usize) -> bool {
        if self.count == 0 {
            return len <= self.bytes.len();
        }
        let open = self.used == self.count * self.segment;
        open && peer == self.peer
            && len <= self.segment
            && self.count < self.limit
            && self.used + len <= self.bytes.len()
    }

    /// Room for a frame that the train takes, and its place in the train. An earlier lease that was never committed is
    /// forgotten.
    #[inline(always)]
    pub(super) fn lend(&mut self, peer: Peer, len: usize) -> (&mut [u8], u16) {
        debug_assert!(len > 0 && self.takes(peer, len));
        if self.count == 0 {
            self.peer = peer;
        }
        self.lent = len;
        (&mut self.bytes[self.used..self.used + len], self.count as u16)
    }

    /// The frame of the last lease joins the train; its length, or `None` if nothing was lent.
    #[inline(always)]
    pub(super) fn commit(&mut self) -> Option<usize> {
        let len = std::mem::take(&mut self.lent);
        if len == 0 {
            return None;
        }
        if self.count == 0 {
            self.segment = len;
        }
        self.count += 1;
        self.used += len;
        Some(len)
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn segment(&self) -> usize {
        self.segment
    }

    /// All frames, end to end.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// From now on at most `limit` frames; only for an empty train.
    pub(super) fn limit_to(&mut self, limit: usize) {
        debug_assert!(self.is_empty() && limit >= 1);
        self.limit = limit;
    }

    /// Everything has left, or is given up; so is a lease.
    pub(super) fn clear(&mut self) {
        (self.count, self.used, self.lent) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(train: &mut Train, peer: u32, len: usize, byte: u8) -> u16 {
        assert!(train.takes(Peer(peer), len));
        let (room, place) = train.lend(Peer(peer), len);
        room.fill(byte);
        assert_eq!(train.commit(), Some(len));
        place
    }

    #[test]
    fn equal_frames_join_and_a_shorter_one_closes_the_train() {
        let mut train = Train::new(64);
        assert_eq!(put(&mut train, 1, 10, 1), 0);
        assert_eq!(put(&mut train, 1, 10, 2), 1);
        assert!(!train.takes(Peer(1), 11), "longer than the others");
        assert!(!train.takes(Peer(2), 10), "another peer");
        assert_eq!(put(&mut train, 1, 4, 3), 2);
        assert!(!train.takes(Peer(1), 10) && !train.takes(Peer(1), 4), "nothing follows a shorter frame");
        assert_eq!(train.bytes(), [[1u8; 10].as_slice(), &[2; 10], &[3; 4]].concat());
    }

    #[test]
    fn the_train_is_full_at_its_limits() {
        let mut train = Train::new(64);
        for place in 0..64 {
            assert_eq!(put(&mut train, 0, 100, 0), place);
        }
        assert!(!train.takes(Peer(0), 100), "64 frames");
        train.clear();
        for _ in 0..15 {
            put(&mut train, 0, 4132, 0);
        }
        assert!(!train.takes(Peer(0), 4132), "16 x 4132 bytes are more than a datagram");
        assert!(train.takes(Peer(0), MAX_DATAGRAM - 15 * 4132));
        train.clear();
        assert!(train.takes(Peer(0), MAX_DATAGRAM) && !train.takes(Peer(0), MAX_DATAGRAM + 1));
    }

    #[test]
    fn a_lease_without_commit_is_forgotten() {
        let mut train = Train::new(64);
        train.lend(Peer(3), 50).0.fill(9);
        train.lend(Peer(4), 20).0.fill(8);
        assert_eq!(train.commit(), Some(20));
        assert_eq!(train.commit(), None, "one commit for one lease");
        assert_eq!((train.peer(), train.bytes()), (Peer(4), &[8u8; 20][..]));
    }

    #[test]
    fn where_trains_cannot_be_cut_each_frame_is_alone() {
        let mut train = Train::new(64);
        train.limit_to(1);
        assert_eq!(put(&mut train, 1, 10, 1), 0);
        assert!(!train.takes(Peer(1), 10));
        train.clear();
        assert_eq!(put(&mut train, 1, 10, 2), 0);
    }
}
