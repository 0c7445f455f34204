//! The client's part: buffers that it no longer needs, on their way back.

use std::collections::VecDeque;

use remora_nic::{Flags, Operation, Payload, ReceiveRequest, WorkRequest};

use super::message::{GRACE, LONGEST, MOST, emit_returned, parse_grace};
use crate::{Broken, Post, Registered};

/// The group of an operation: those that a grace number waits for, or those that came later.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase(bool);

/// Buffers that go back to one server. They use the queue pair of the operations, with ids that the owner
/// chooses.
#[derive(Debug)]
pub struct Returns {
    arena: Registered,
    /// Where in the arena its bytes lie.
    at: usize,
    waiting: VecDeque<u64>,
    /// A message is on its way.
    sending: bool,
    /// Operations in flight, of either phase.
    in_flight: [u32; 2],
    phase: Phase,
    /// The grace number that was received last, and the one that was answered last.
    announced: u64,
    answered: u64,
    /// All operations have ended that the number waits for: what goes before the answer.
    ahead: Option<usize>,
}

impl Returns {
    /// Bytes that it needs in an arena: a message out, a message in.
    pub const ARENA: usize = LONGEST + GRACE;

    /// With [`Returns::ARENA`] bytes at `at` of an arena; at most `most` buffers wait.
    pub fn new(arena: Registered, at: usize, most: usize) -> Returns {
        Returns {
            arena,
            at,
            waiting: VecDeque::with_capacity(most),
            sending: false,
            in_flight: [0; 2],
            phase: Phase::default(),
            announced: 0,
            answered: 0,
            ahead: None,
        }
    }

    /// Posts the receive request for the keeper's messages, under this id.
    ///
    /// # Errors
    /// The queue did not take it.
    pub fn listen(&self, id: u64, nic: &mut impl Post) -> Result<(), Broken> {
        let sge = self.arena.sge(self.at + LONGEST, GRACE);
        Ok(nic.post_receive(&ReceiveRequest { id, sges: &[sge] })?)
    }

    /// Buffers that may still be given before some must have gone.
    ///
    /// An operation that may return buffers begins only if they fit, together with those of all operations in
    /// flight.
    pub fn space(&self) -> usize {
        self.waiting.capacity() - self.waiting.len()
    }

    /// An operation begins.
    #[inline]
    pub fn begin(&mut self) -> Phase {
        self.in_flight[usize::from(self.phase.0)] += 1;
        self.phase
    }

    /// An operation has ended, and has given back its buffers.
    #[inline]
    pub fn end(&mut self, phase: Phase) {
        self.in_flight[usize::from(phase.0)] -= 1;
        self.settle();
    }

    /// A buffer goes back. The table does not point to it, and the client will not use it any more.
    #[inline]
    pub fn give(&mut self, address: u64) {
        debug_assert!(self.space() > 0, "an operation begins only if its returns fit");
        self.waiting.push_back(address);
    }

    /// The keeper has asked, and is not answered yet.
    pub fn is_asked(&self) -> bool {
        self.answered != self.announced
    }

    /// Is there a reason to send a message now? Buffers go in groups unless `idle`; an answer to the keeper
    /// goes at once.
    #[inline]
    pub fn is_due(&self, idle: bool) -> bool {
        let few = if idle { 1 } else { MOST / 2 };
        !self.sending && (self.waiting.len() >= few || self.ahead.is_some())
    }

    /// Notes the moment at which all operations have ended that the keeper asks for.
    #[inline]
    fn settle(&mut self) {
        let asked = self.answered != self.announced && self.ahead.is_none();
        if asked && self.in_flight[usize::from(!self.phase.0)] == 0 {
            self.ahead = Some(self.waiting.len());
        }
    }

    /// Sends a message if one is [due](Returns::is_due), under this id, signaled; whether it did.
    ///
    /// # Errors
    /// The queue did not take it; nothing is lost.
    pub fn send(&mut self, id: u64, idle: bool, nic: &mut impl Post) -> Result<bool, Broken> {
        if !self.is_due(idle) {
            return Ok(false);
        }
        let count = self.waiting.len().min(MOST);
        let ahead = self.ahead.map(|ahead| ahead.saturating_sub(count));
        // The answer goes with the last buffer that it waits for.
        let grace = if ahead == Some(0) { self.announced } else { self.answered };
        let mut message = [0; LONGEST];
        let len = emit_returned(&mut message, grace, self.waiting.iter().copied());
        self.arena.write(self.at, &message[..len]);
        nic.post_send(&WorkRequest {
            id,
            operation: Operation::Send,
            payload: Payload::Sges(&[self.arena.sge(self.at, len)]),
            flags: Flags { signaled: true, ..Flags::default() },
        })?;
        self.waiting.drain(..count);
        (self.answered, self.sending) = (grace, true);
        self.ahead = ahead.filter(|ahead| *ahead > 0);
        Ok(true)
    }

    /// The message has gone.
    pub fn sent(&mut self) {
        self.sending = false;
    }

    /// A message of `len` bytes from the keeper has come. Posts the next receive request under this id.
    ///
    /// # Errors
    /// It is no such message, or the queue took no receive request.
    pub fn received(&mut self, len: u32, id: u64, nic: &mut impl Post) -> Result<(), Broken> {
        let mut bytes = [0; GRACE];
        self.arena.read(self.at + LONGEST, &mut bytes);
        let grace = parse_grace(bytes.get(..len as usize).ok_or(Broken::Protocol)?);
        // One number at a time: the keeper waits for the answer to the one before.
        let next = grace.filter(|grace| self.announced == self.answered && *grace > self.announced);
        self.announced = next.ok_or(Broken::Protocol)?;
        self.phase = Phase(!self.phase.0);
        self.settle();
        self.listen(id, nic)
    }
}
