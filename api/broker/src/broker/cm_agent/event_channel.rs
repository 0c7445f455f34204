//! The broker's end of an event channel: a socket, and the events that do not fit into it yet.

use remora_host::packet::PacketSocket;
use remora_host::users::Claim;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum number of events that wait for a program in addition to those in the socket.
const WAITING: usize = 4096;

/// The error that too many events wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The broker's end of an event channel.
#[derive(Debug)]
pub(crate) struct EventChannel {
    /// The number of the program's connection to the broker.
    pub client: u32,
    socket: PacketSocket,
    waiting: VecDeque<Vec<u8>>,
    _claims: Vec<Claim>,
}

impl EventChannel {
    /// Creates the broker's end of a channel, with the claims of the channel and its descriptor. The socket
    /// must be non-blocking.
    pub(crate) fn new(client: u32, socket: PacketSocket, claims: Vec<Claim>) -> EventChannel {
        EventChannel { client, socket, waiting: VecDeque::new(), _claims: claims }
    }

    /// Sends an event, or keeps it until there is space.
    pub(crate) fn put(&mut self, event: Vec<u8>) -> Result<(), Full> {
        if self.waiting.len() >= WAITING {
            return Err(Full);
        }
        self.waiting.push_back(event);
        self.flush();
        Ok(())
    }

    /// Sends as many events as the socket has space for.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.waiting.front() {
            match self.socket.send(event, &[]) {
                Err(error) if error.kind() == ErrorKind::TimedOut => return,
                // After any other result the event is dropped: it was sent, or the program has closed the
                // channel.
                _ => drop(self.waiting.pop_front()),
            }
        }
    }

    /// Removes and returns the waiting events of an id, in order. Events in the socket stay there.
    pub(crate) fn take_waiting(&mut self, id: u64) -> Vec<Vec<u8>> {
        let is_meant = |event: &Vec<u8>| event.get(1..9) == Some(&id.to_le_bytes());
        let (taken, kept): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(is_meant);
        self.waiting = kept.into();
        taken
    }

    /// Returns whether the program has closed its end, or has sent something, which is not allowed.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.socket.receive(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::TimedOut)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_sockets_space_wait_in_order_and_no_more_than_may() {
        let (ours, theirs) = PacketSocket::pair().unwrap();
        ours.wait_for_nothing().unwrap();
        let mut channel = EventChannel::new(1, ours, Vec::new());
        let mut put = 0_u32;
        while channel.put(put.to_le_bytes().repeat(64)).is_ok() {
            put += 1;
            assert!(put < 1_000_000, "events are stored without end");
        }
        assert!(put as usize > WAITING && !channel.waiting.is_empty() && !channel.is_over());
        let mut buffer = [0; 512];
        for number in 0..put {
            let len = theirs.receive(&mut buffer).unwrap().len;
            assert_eq!((len, &buffer[..4]), (256, &number.to_le_bytes()[..]));
            channel.flush();
        }
        assert!(channel.waiting.is_empty());
        drop(theirs);
        assert!(channel.is_over());
        assert_eq!(channel.put(vec![1]), Ok(()), "an event without a receiver is dropped");
        assert!(channel.waiting.is_empty());
    }

    #[test]
    fn waiting_events_of_one_id_leave_and_the_others_keep_their_order() {
        let (ours, _theirs) = PacketSocket::pair().unwrap();
        ours.wait_for_nothing().unwrap();
        let mut channel = EventChannel::new(1, ours, Vec::new());
        let event = |id: u64, number: u8| [&[3][..], &id.to_le_bytes(), &[number; 200]].concat();
        while channel.waiting.is_empty() {
            channel.put(event(9, 0)).unwrap();
        }
        for number in 1..5 {
            channel.put(event(u64::from(number % 2), number)).unwrap();
        }
        assert_eq!(channel.take_waiting(1), [event(1, 1), event(1, 3)]);
        assert_eq!(channel.waiting, [event(9, 0), event(0, 2), event(0, 4)]);
        assert!(channel.take_waiting(1).is_empty());
    }
}
