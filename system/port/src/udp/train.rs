//! The frames that wait to be sent together: of equal length, to one peer, with one traffic class,
//! contiguous in one buffer. No system calls.
//!
//! If the peer's address is shared, all frames of a train are for one QPN range. The range is part of the
//! frame, so it is known only when the frame is committed. A frame of another range then waits behind the
//! train and begins the next one.
//!
//! A train that the kernel refuses is split: its frames are sent one by one, each with identification 0.

use super::range::range_of;
use super::socket::MAX_DATAGRAM;
use crate::staging::reseal;
use remora_wire::frame::{IpFields, Peer};

/// Number of datagrams that every kernel with `UDP_SEGMENT` accepts in one train.
pub(super) const MAX_SEGMENTS: usize = 64;

/// Frames of one length to one peer, in the order in which they were committed. The last frame may be
/// shorter; nothing may follow it then.
#[derive(Debug)]
pub(super) struct Train {
    bytes: Box<[u8]>,
    peer: Peer,
    /// IP header fields of all frames.
    fields: IpFields,
    /// Length of every frame but the last; valid while `count > 0`.
    segment: usize,
    count: usize,
    used: usize,
    /// Length of the frame that was lent and not committed yet; 0 if there is none.
    lent: usize,
    /// Maximum number of frames; 1 if the kernel cannot cut trains.
    limit: usize,
    /// The QPN range of the frames; `None` if the peer does not tell ranges apart.
    range: Option<u8>,
    /// Length of a committed frame of another range behind the train; 0 if there is none.
    apart: usize,
    /// For a train that is sent frame by frame: the number of bytes sent. `None` for others.
    alone: Option<usize>,
}

impl Train {
    /// Creates an empty train of at most `limit` frames.
    pub(super) fn new(limit: usize) -> Self {
        assert!((1..=MAX_SEGMENTS).contains(&limit));
        let bytes = vec![0; MAX_DATAGRAM].into_boxed_slice();
        Train {
            bytes,
            peer: Peer(0),
            fields: IpFields::default(),
            segment: 0,
            count: 0,
            used: 0,
            lent: 0,
            limit,
            range: None,
            apart: 0,
            alone: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a frame of `len` bytes to `peer`, with these IP header fields, can join the train.
    #[inline(always)]
    pub(super) fn takes(&self, peer: Peer, fields: IpFields, len: usize) -> bool {
        if self.count == 0 {
            return len <= self.bytes.len();
        }
        let open = self.used == self.count * self.segment && self.apart == 0 && self.alone.is_none();
        open && peer == self.peer
            && fields == self.fields
            && len <= self.segment
            && self.count < self.limit
            && self.used + len <= self.bytes.len()
    }

    /// Lends a buffer for a frame that can join the train, and returns the frame's position in the train.
    /// An earlier lease that was not committed is discarded. `has_ranges` is called for the first frame of
    /// a train; it tells whether the peer tells QPN ranges apart.
    #[inline(always)]
    pub(super) fn lend(
        &mut self,
        peer: Peer,
        fields: IpFields,
        len: usize,
        has_ranges: impl FnOnce() -> bool,
    ) -> (&mut [u8], u16) {
        debug_assert!(len > 0 && self.takes(peer, fields, len));
        if self.count == 0 {
            self.peer = peer;
            self.fields = fields;
            self.range = has_ranges().then_some(0);
        }
        self.lent = len;
        (&mut self.bytes[self.used..self.used + len], self.count as u16)
    }

    /// Adds the frame of the last lease to the train. Returns its length, or `None` if nothing was lent.
    #[inline(always)]
    pub(super) fn commit(&mut self) -> Option<usize> {
        let len = std::mem::take(&mut self.lent);
        if len == 0 {
            return None;
        }
        if let Some(range) = &mut self.range {
            let own = range_of(&self.bytes[self.used..self.used + len]);
            if self.count == 0 {
                *range = own;
            } else if *range != own {
                self.apart = len;
                return Some(len);
            }
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

    pub(super) fn fields(&self) -> IpFields {
        self.fields
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn segment(&self) -> usize {
        self.segment
    }

    /// Returns the bytes of all frames.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Limits the train to `limit` frames from now on; frames that have already joined stay.
    pub(super) fn limit_to(&mut self, limit: usize) {
        debug_assert!(limit >= 1);
        self.limit = limit;
    }

    /// Returns the maximum number of frames.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Makes the frames be sent one by one from now on. `sealed_by_place` tells whether each ICRC was
    /// computed for the frame's position in the train.
    pub(super) fn take_apart(&mut self, sealed_by_place: bool) {
        self.alone = Some(0);
        let frames = self.bytes[..self.used].chunks_mut(self.segment);
        for (place, frame) in frames.enumerate().filter(|_| sealed_by_place) {
            // The change to an ICRC for another identification is its own inverse, so this restores the
            // ICRC for 0.
            reseal(frame, place as u16);
        }
    }

    /// Returns whether the frames are sent one by one.
    pub(super) fn is_apart(&self) -> bool {
        self.alone.is_some()
    }

    /// Returns the next frame that is to be sent alone.
    pub(super) fn next_alone(&self) -> Option<&[u8]> {
        let start = self.alone?;
        let end = (start + self.segment).min(self.used);
        (start < end).then(|| &self.bytes[start..end])
    }

    /// Skips that frame, because it was sent or given up.
    pub(super) fn one_left(&mut self) {
        self.alone = self.alone.map(|start| (start + self.segment).min(self.used));
    }

    /// Empties the train after it was sent or given up, and discards a lease. A frame that waited behind
    /// the train becomes the first of the next one. `sealed_by_place` tells whether each ICRC was computed
    /// for the frame's position in the train.
    #[inline(always)]
    pub(super) fn left(&mut self, sealed_by_place: bool) {
        if self.apart > 0 {
            return self.begin_apart(sealed_by_place);
        }
        self.clear();
    }

    #[cold]
    fn begin_apart(&mut self, sealed_by_place: bool) {
        let start = self.used;
        let len = self.apart;
        let place = self.count as u16;
        self.clear();
        self.bytes.copy_within(start..start + len, 0);
        if sealed_by_place {
            // The change to an ICRC for another identification is its own inverse, so this restores the
            // ICRC for 0.
            reseal(&mut self.bytes[..len], place);
        }
        self.range = Some(range_of(&self.bytes[..len]));
        (self.segment, self.count, self.used) = (len, 1, len);
    }

    /// Empties the train, and drops a frame that waits behind it.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.count, self.used, self.lent, self.apart, self.alone) = (0, 0, 0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(train: &mut Train, peer: u32, len: usize, byte: u8) -> u16 {
        assert!(train.takes(Peer(peer), IpFields::default(), len));
        let (buffer, place) = train.lend(Peer(peer), IpFields::default(), len, || false);
        buffer.fill(byte);
        assert_eq!(train.commit(), Some(len));
        place
    }

    #[test]
    fn equal_frames_join_and_a_shorter_one_closes_the_train() {
        let mut train = Train::new(64);
        assert_eq!(put(&mut train, 1, 10, 1), 0);
        assert_eq!(put(&mut train, 1, 10, 2), 1);
        assert!(!train.takes(Peer(1), IpFields::default(), 11), "longer than the others");
        assert!(!train.takes(Peer(2), IpFields::default(), 10), "another peer");
        assert_eq!(put(&mut train, 1, 4, 3), 2);
        assert!(
            !train.takes(Peer(1), IpFields::default(), 10) && !train.takes(Peer(1), IpFields::default(), 4),
            "nothing follows a shorter frame"
        );
        assert_eq!(train.bytes(), [[1u8; 10].as_slice(), &[2; 10], &[3; 4]].concat());
    }

    #[test]
    fn the_train_is_full_at_its_limits() {
        let mut train = Train::new(64);
        for place in 0..64 {
            assert_eq!(put(&mut train, 0, 100, 0), place);
        }
        assert!(!train.takes(Peer(0), IpFields::default(), 100), "64 frames");
        train.clear();
        for _ in 0..15 {
            put(&mut train, 0, 4132, 0);
        }
        assert!(!train.takes(Peer(0), IpFields::default(), 4132), "16 x 4132 bytes are more than a datagram");
        assert!(train.takes(Peer(0), IpFields::default(), MAX_DATAGRAM - 15 * 4132));
        train.clear();
        assert!(
            train.takes(Peer(0), IpFields::default(), MAX_DATAGRAM)
                && !train.takes(Peer(0), IpFields::default(), MAX_DATAGRAM + 1)
        );
    }

    #[test]
    fn a_lease_without_commit_is_forgotten() {
        let mut train = Train::new(64);
        train.lend(Peer(3), IpFields::default(), 50, || false).0.fill(9);
        train.lend(Peer(4), IpFields::default(), 20, || false).0.fill(8);
        assert_eq!(train.commit(), Some(20));
        assert_eq!(train.commit(), None, "a lease can be committed once");
        assert_eq!((train.peer(), train.bytes()), (Peer(4), &[8u8; 20][..]));
    }

    #[test]
    fn frames_of_a_train_that_is_taken_apart_come_one_by_one_and_nothing_joins_them() {
        let mut train = Train::new(64);
        for (byte, len) in [(1, 10), (2, 10), (3, 4)] {
            put(&mut train, 1, len, byte);
        }
        let sealed = train.bytes().to_vec();
        train.take_apart(true);
        assert!(train.is_apart() && !train.takes(Peer(1), IpFields::default(), 4));
        let mut frames = Vec::new();
        while let Some(frame) = train.next_alone() {
            frames.push(frame.to_vec());
            train.one_left();
        }
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 4]);
        // The first frame was sealed for 0 anyway; the others differ by what their identification adds.
        assert_eq!(frames[0], sealed[..10]);
        for (place, range) in [(1, 10..20), (2, 20..24)] {
            let mut again = frames[usize::from(place)].clone();
            assert_ne!(again, sealed[range.clone()]);
            reseal(&mut again, place);
            assert_eq!(again, sealed[range]);
        }
        train.clear();
        assert!(
            !train.is_apart() && train.next_alone().is_none() && train.takes(Peer(2), IpFields::default(), 9)
        );
    }

    /// Returns a frame whose ICRC was changed from identification 0 to a position in a train.
    fn framed(range: u8, len: usize, place: u16) -> Vec<u8> {
        let mut frame = vec![range << 1; len];
        frame[0] = 0x0a;
        reseal(&mut frame, place);
        frame
    }

    fn put_framed(train: &mut Train, range: u8, len: usize) {
        let (buffer, place) = train.lend(Peer(1), IpFields::default(), len, || true);
        buffer.copy_from_slice(&framed(range, len, place));
        train.commit();
    }

    #[test]
    fn frames_of_another_qpn_range_begin_a_train_of_their_own() {
        let mut train = Train::new(64);
        for range in [3, 3, 9] {
            assert!(train.takes(Peer(1), IpFields::default(), 40));
            put_framed(&mut train, range, 40);
        }
        assert!(!train.takes(Peer(1), IpFields::default(), 40), "one frame of another range is behind it");
        assert_eq!((train.count(), train.bytes()), (2, &[framed(3, 40, 0), framed(3, 40, 1)].concat()[..]));
        train.left(true);
        assert_eq!((train.count(), train.bytes()), (1, &framed(9, 40, 0)[..]), "sealed as the first again");
        put_framed(&mut train, 9, 40);
        assert_eq!((train.count(), train.bytes()), (2, &[framed(9, 40, 0), framed(9, 40, 1)].concat()[..]));
        // A shorter frame of another range waits behind a train that is split before it is sent.
        put_framed(&mut train, 5, 24);
        train.take_apart(true);
        while train.next_alone().is_some() {
            train.one_left();
        }
        train.left(true);
        assert_eq!((train.count(), train.bytes()), (1, &framed(5, 24, 0)[..]));
        train.left(true);
        assert!(train.is_empty());
    }

    #[test]
    fn a_message_of_1rma_is_for_range_0_and_keeps_its_tag_when_it_begins_a_train() {
        let mut train = Train::new(64);
        put_framed(&mut train, 3, 40);
        let (buffer, _) = train.lend(Peer(1), IpFields::default(), 40, || true);
        buffer.fill(0xe1);
        train.commit();
        train.left(true);
        assert_eq!(train.bytes(), [0xe1; 40]);
    }

    #[test]
    fn a_peer_with_one_nic_gets_trains_of_all_its_queue_pairs() {
        let mut train = Train::new(64);
        for range in [3, 9, 100] {
            let (buffer, _) = train.lend(Peer(1), IpFields::default(), 40, || false);
            buffer.fill(range << 1);
            train.commit();
        }
        assert_eq!(train.count(), 3);
    }

    #[test]
    fn where_trains_cannot_be_cut_each_frame_is_alone() {
        let mut train = Train::new(64);
        train.limit_to(1);
        assert_eq!(put(&mut train, 1, 10, 1), 0);
        assert!(!train.takes(Peer(1), IpFields::default(), 10));
        train.clear();
        assert_eq!(put(&mut train, 1, 10, 2), 0);
    }
}
