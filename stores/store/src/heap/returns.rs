//! The client's part of the heap: buffers that the client no longer needs and returns to the server.

use std::collections::VecDeque;

use remora_nic::{Flags, Operation, Payload, ReceiveRequest, WorkRequest};

use super::message::{GRACE, LONGEST, MOST, emit_returned, parse_grace};
use crate::{Broken, Post, Registered};

/// The group of an operation: those that were in flight when the keeper's last grace number arrived, or
/// those that began later. The bit flips with each grace number.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase(bool);

/// The buffers that a client returns to one server. The messages use the queue pair of the operations, with
/// ids that the owner chooses.
#[derive(Debug)]
pub struct Returns {
    arena: Registered,
    /// Offset in the arena of the [`Returns::ARENA`] bytes.
    offset: usize,
    waiting: VecDeque<u64>,
    /// True while a message is in the send queue.
    sending: bool,
    /// Operations in flight, per phase.
    in_flight: [u32; 2],
    phase: Phase,
    /// The grace number that was received last, and the one that was answered last.
    announced: u64,
    answered: u64,
    /// The number of waiting buffers that must be sent before the answer to the keeper. `None` while
    /// operations are in flight that the grace number waits for, or when nothing is to be answered.
    ahead: Option<usize>,
}

impl Returns {
    /// Bytes of the arena that `Returns` needs: one message to the keeper, and one from it.
    pub const ARENA: usize = LONGEST + GRACE;

    /// Creates the state for the [`Returns::ARENA`] bytes at this offset of an arena. At most `most` buffers
    /// wait to be sent.
    pub fn new(arena: Registered, offset: usize, most: usize) -> Returns {
        Returns {
            arena,
            offset,
            waiting: VecDeque::with_capacity(most),
            sending: false,
            in_flight: [0; 2],
            phase: Phase::default(),
            announced: 0,
            answered: 0,
            ahead: None,
        }
    }

    /// Posts the receive request for the keeper's next message, with this work request id.
    ///
    /// # Errors
    /// The queue did not take the request.
    pub fn listen(&self, id: u64, nic: &mut impl Post) -> Result<(), Broken> {
        let sge = self.arena.sge(self.offset + LONGEST, GRACE);
        Ok(nic.post_receive(&ReceiveRequest { id, sges: &[sge] })?)
    }

    /// Returns the number of buffers that can still be added before a message must be sent.
    ///
    /// An operation that may return buffers begins only if they fit, together with those of all operations
    /// in flight.
    pub fn space(&self) -> usize {
        self.waiting.capacity() - self.waiting.len()
    }

    /// Notes that an operation begins, and returns its phase.
    #[inline]
    pub fn begin(&mut self) -> Phase {
        self.in_flight[usize::from(self.phase.0)] += 1;
        self.phase
    }

    /// Notes that an operation has ended and has returned its buffers.
    #[inline]
    pub fn end(&mut self, phase: Phase) {
        self.in_flight[usize::from(phase.0)] -= 1;
        self.settle();
    }

    /// Adds a buffer to return. The table must not point to it, and the client must not use it any more.
    #[inline]
    pub fn give(&mut self, address: u64) {
        debug_assert!(self.space() > 0, "an operation begins only if its returns fit");
        self.waiting.push_back(address);
    }

    /// Returns true if the keeper announced a grace number that is not answered yet.
    pub fn is_asked(&self) -> bool {
        self.answered != self.announced
    }

    /// Returns true if a message should be sent now. Buffers are sent in groups unless `idle` is true; an
    /// answer to the keeper is sent at once.
    #[inline]
    pub fn is_due(&self, idle: bool) -> bool {
        let few = if idle { 1 } else { MOST / 2 };
        !self.sending && (self.waiting.len() >= few || self.ahead.is_some())
    }

    /// Notes, once all operations that the grace number waits for have ended, which buffers go before the
    /// answer.
    #[inline]
    fn settle(&mut self) {
        let asked = self.answered != self.announced && self.ahead.is_none();
        if asked && self.in_flight[usize::from(!self.phase.0)] == 0 {
            self.ahead = Some(self.waiting.len());
        }
    }

    /// Sends a signaled message with this id if one is [due](Returns::is_due). Returns true if a message was
    /// sent.
    ///
    /// # Errors
    /// The queue did not take the message; no buffer is lost.
    pub fn send(&mut self, id: u64, idle: bool, nic: &mut impl Post) -> Result<bool, Broken> {
        if !self.is_due(idle) {
            return Ok(false);
        }
        let count = self.waiting.len().min(MOST);
        let ahead = self.ahead.map(|ahead| ahead.saturating_sub(count));
        // The last buffer that must precede the answer is in this message, so the message carries the
        // answer.
        let grace = if ahead == Some(0) { self.announced } else { self.answered };
        let mut message = [0; LONGEST];
        let len = emit_returned(&mut message, grace, self.waiting.iter().copied());
        self.arena.write(self.offset, &message[..len]);
        nic.post_send(&WorkRequest {
            id,
            operation: Operation::Send,
            payload: Payload::Sges(&[self.arena.sge(self.offset, len)]),
            flags: Flags { signaled: true, ..Flags::default() },
        })?;
        self.waiting.drain(..count);
        (self.answered, self.sending) = (grace, true);
        self.ahead = ahead.filter(|ahead| *ahead > 0);
        Ok(true)
    }

    /// Notes that the message has left the send queue.
    pub fn sent(&mut self) {
        self.sending = false;
    }

    /// Processes a message of `len` bytes from the keeper, and posts the next receive request with this id.
    ///
    /// # Errors
    /// The message is malformed, or the queue took no receive request.
    pub fn received(&mut self, len: u32, id: u64, nic: &mut impl Post) -> Result<(), Broken> {
        let mut bytes = [0; GRACE];
        self.arena.read(self.offset + LONGEST, &mut bytes);
        let grace = parse_grace(bytes.get(..len as usize).ok_or(Broken::Protocol)?);
        // The keeper announces a number only after the previous one was answered.
        let next = grace.filter(|grace| self.announced == self.answered && *grace > self.announced);
        self.announced = next.ok_or(Broken::Protocol)?;
        self.phase = Phase(!self.phase.0);
        self.settle();
        self.listen(id, nic)
    }
}
