//! Receive work requests that messages have taken. The first packet of a message binds a work request, in the
//! order of the numbers that packets carry. A bound request is held until all earlier packets have arrived
//! (IRN paper, §5).

use remora_transport::Notice;

use crate::receive_queue::Receive;

/// A bound receive work request.
#[derive(Copy, Clone, Debug)]
struct BoundReceive {
    receive: Receive,
    /// Notification of the message, once its last packet has arrived.
    notice: Option<Notice>,
    /// Number of received packets of the message.
    packets: u32,
}

/// The reason why a message receives no work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum BindError {
    /// No work request is posted, or the ring is full.
    NotReady,
    /// The number of the message belongs to a completed message, or is too far ahead.
    Invalid,
}

/// The work requests that are bound and not completed.
pub(crate) struct BoundReceives {
    ring: Box<[Option<BoundReceive>]>,
    head: u64,
    tail: u64,
}

impl BoundReceives {
    /// Creates a table for `capacity` work requests.
    pub(crate) fn new(capacity: u32) -> BoundReceives {
        let capacity = capacity.max(1).next_power_of_two() as usize;
        BoundReceives { ring: vec![None; capacity].into_boxed_slice(), head: 0, tail: 0 }
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Binds the work requests up to number `number`. `take` takes the next work request from the queue; its
    /// argument is the number.
    pub(crate) fn bind(
        &mut self,
        number: u64,
        mut take: impl FnMut(u64) -> Option<Receive>,
    ) -> Result<Receive, BindError> {
        let reach = self.ring.len() as u64;
        if number < self.head || number - self.head >= MOST_AHEAD {
            return Err(BindError::Invalid);
        }
        if number - self.head >= reach {
            return Err(BindError::NotReady);
        }
        while self.tail <= number {
            let receive = take(self.tail).ok_or(BindError::NotReady)?;
            let slot = self.slot(self.tail);
            self.ring[slot] = Some(BoundReceive { receive, notice: None, packets: 0 });
            self.tail += 1;
        }
        self.ring[self.slot(number)].map(|held| held.receive).ok_or(BindError::Invalid)
    }

    /// Records a placed packet of message `number`; the last packet has a notification.
    pub(crate) fn arrived(&mut self, number: u64, notice: Option<Notice>) {
        let slot = self.slot(number);
        if let Some(held) = &mut self.ring[slot] {
            held.packets = held.packets.saturating_add(1);
            held.notice = notice.or(held.notice);
        }
    }

    /// Returns true if `number` is the oldest bound work request.
    pub(crate) fn is_oldest(&self, number: u64) -> bool {
        self.head == number && self.head < self.tail
    }

    /// Removes the oldest work request if its message is complete: `packets(len)` packets of a SEND, or one
    /// of a WRITE.
    pub(crate) fn finish(&mut self, packets: impl FnOnce(u32) -> u32) -> Option<(Receive, Notice)> {
        let held = self.ring[self.slot(self.head)].filter(|_| self.head < self.tail)?;
        let notice = held.notice?;
        let expected = if notice.write { 1 } else { packets(notice.len) };
        if held.packets != expected {
            return None;
        }
        self.head += 1;
        Some((held.receive, notice))
    }

    /// Asserts that `completed` work requests were removed, and that the bound ones fit the table.
    pub(crate) fn check(&self, completed: u64) {
        assert_eq!(self.head, completed, "receives taken out = receives of messages that are complete");
        let bound = self.tail.checked_sub(self.head);
        assert!(
            bound.is_some_and(|bound| bound <= self.ring.len() as u64),
            "0 <= bound receives <= receives of the queue"
        );
        let oldest = self.ring[self.slot(self.head)];
        assert!(self.head == self.tail || oldest.is_some(), "a bound receive has a work request");
    }

    /// Removes the oldest work request, complete or not.
    pub(crate) fn pop(&mut self) -> Option<Receive> {
        let held = self.ring[self.slot(self.head)].filter(|_| self.head < self.tail)?;
        self.head += 1;
        Some(held.receive)
    }
}

/// Maximum distance of a message from the oldest one, the longest bitmap. A number further ahead is an error
/// of the peer.
const MOST_AHEAD: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Sge;
    use remora_memory::Key;

    fn receive(id: u64) -> Receive {
        Receive { id, index: id, elements: 1, first: Sge { addr: 0, len: 0, lkey: Key::new(1) } }
    }

    fn notice(len: u32, write: bool) -> Option<Notice> {
        Some(Notice { len, imm: None, invalidate: None, solicited: false, write })
    }

    fn take(posted: &mut std::ops::Range<u64>) -> impl FnMut(u64) -> Option<Receive> {
        |_| posted.next().map(receive)
    }

    #[test]
    fn a_message_that_comes_early_reserves_what_the_earlier_ones_will_need() {
        let mut posted = 0..3;
        let mut bound = BoundReceives::new(8);
        assert_eq!(bound.bind(2, take(&mut posted)).map(|receive| receive.id), Ok(2));
        assert_eq!(bound.bind(0, take(&mut posted)).map(|receive| receive.id), Ok(0));
        assert_eq!(bound.bind(3, take(&mut posted)).map(|receive| receive.id), Err(BindError::NotReady));
        bound.arrived(2, notice(10, false));
        assert!(bound.finish(|_| 1).is_none(), "the first message is not complete");
        bound.arrived(0, notice(10, true));
        assert_eq!(bound.finish(|_| 9).map(|(receive, _)| receive.id), Some(0));
        assert!(bound.is_oldest(1) && !bound.is_oldest(2));
        assert_eq!(bound.pop().map(|receive| receive.id), Some(1));
        assert_eq!(bound.finish(|len| len / 10).map(|(receive, _)| receive.id), Some(2));
        assert!(bound.pop().is_none() && bound.finish(|_| 1).is_none());
    }

    #[test]
    fn what_was_bound_before_the_queue_ran_dry_stays_bound() {
        let mut posted = 0..2;
        let mut bound = BoundReceives::new(8);
        assert_eq!(bound.bind(4, take(&mut posted)).map(|receive| receive.id), Err(BindError::NotReady));
        let mut posted = 2..9;
        assert_eq!(bound.bind(1, take(&mut posted)).map(|receive| receive.id), Ok(1));
        assert_eq!(bound.bind(4, take(&mut posted)).map(|receive| receive.id), Ok(4));
        assert_eq!(posted, 5..9);
    }

    #[test]
    fn at_most_as_many_are_held_as_there_is_room_for() {
        let mut posted = 0..100;
        let mut bound = BoundReceives::new(4);
        assert_eq!(bound.bind(4, take(&mut posted)).map(|receive| receive.id), Err(BindError::NotReady));
        assert_eq!(posted, 0..100);
        assert_eq!(bound.bind(3, take(&mut posted)).map(|receive| receive.id), Ok(3));
        bound.pop();
        assert_eq!(bound.bind(4, take(&mut posted)).map(|receive| receive.id), Ok(4));
        assert_eq!(bound.bind(0, take(&mut posted)).map(|receive| receive.id), Err(BindError::Invalid));
        let far = bound.bind(1 + MOST_AHEAD, take(&mut posted));
        assert_eq!(far.map(|receive| receive.id), Err(BindError::Invalid));
    }

    #[test]
    fn a_message_that_skipped_packets_does_not_end() {
        let mut posted = 0..1;
        let mut bound = BoundReceives::new(4);
        bound.bind(0, take(&mut posted)).unwrap();
        bound.arrived(0, None);
        bound.arrived(0, notice(1024, false));
        assert!(bound.finish(|len| len / 256).is_none());
    }
}
