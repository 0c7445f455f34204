//! The initiator: command slots, from issue to completion.

use std::collections::VecDeque;

use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::{Class, Kind, MAX_OPERATION, Nonce, TagSequence};

use super::deadlines::Deadlines;
use super::round_trips::RoundTrips;
use super::{Arrivals, Party, Settings, Solicitation, Status, Waiting, WriteDebit};
use crate::Instant;

/// The operation of a command slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Read, write or rekey.
    pub kind: Kind,
    /// Class of service.
    pub class: Class,
    /// Length in bytes: 1 to 4096 for a read or write, 16 for a rekey.
    pub size: u32,
    /// The server; round-trip times are measured per server.
    pub server: Endpoint,
}

/// The server of a free slot.
const NOWHERE: Endpoint = Endpoint { address: Address([0; 16]), udp_port: 0 };

/// The reason why a command is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// The slot does not exist.
    NoSlot,
    /// The slot's previous operation has not ended.
    Busy,
    /// The kind or size is invalid.
    Malformed,
}

/// An operation that ended, whose slot is free.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OperationEnd {
    /// Command slot of the operation.
    pub slot: u16,
    /// Status of the operation.
    pub status: Status,
    /// Nanoseconds from issue until the operation entered service, or until it ended before that.
    pub issue_delay: u64,
    /// Nanoseconds from issue to end.
    pub total_delay: u64,
}

/// The next piece of the data of a write or rekey (hop 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DataPiece {
    /// Command slot of the operation.
    pub slot: u16,
    /// The server's slot, to which the piece is sent.
    pub server_slot: u16,
    /// Offset of the piece in the operation, in bytes.
    pub offset: u32,
    /// Length of the piece in bytes.
    pub len: u32,
    /// Nonces of hops 1 and 2.
    pub tags: TagSequence,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// Waiting for the solicitation window.
    Waiting,
    /// The request was sent. A read waits for data, a write for its solicit.
    Sent,
    /// Data is being sent; holds the number of bytes sent.
    Answering(u32),
    /// All data was sent.
    Answered,
}

#[derive(Copy, Clone, Debug)]
struct Slot {
    phase: Phase,
    command: Command,
    debit: u32,
    issued: Instant,
    entered: Instant,
    tags: TagSequence,
    arrivals: Arrivals,
    server_slot: u16,
    max_payload: u32,
    /// Exclusive or of the nonces of hop 3.
    answered: Nonce,
    /// Status with which the operation ends at its timeout, if it does not end before.
    failed: Status,
}

const FREE: Slot = Slot {
    phase: Phase::Free,
    command: Command { kind: Kind::Read, class: Class::Latency, size: 0, server: NOWHERE },
    debit: 0,
    issued: Instant(0),
    entered: Instant(0),
    tags: TagSequence::EMPTY,
    arrivals: Arrivals::NONE,
    server_slot: 0,
    max_payload: 0,
    answered: Nonce { sender: 0, counter: 0 },
    failed: Status::Timeout,
};

/// The command slots of one engine.
#[derive(Debug)]
pub struct Requester {
    slots: Vec<Slot>,
    deadlines: Deadlines,
    /// Slots with data to send, each at most once.
    answering: VecDeque<u16>,
    trips: RoundTrips,
    settings: Settings,
}

impl Requester {
    /// Returns a requester whose slots are all free.
    pub fn new(settings: &Settings) -> Requester {
        let slots = usize::from(settings.slots);
        Requester {
            slots: vec![FREE; slots],
            deadlines: Deadlines::new(slots),
            answering: VecDeque::with_capacity(slots),
            trips: RoundTrips::new(settings),
            settings: *settings,
        }
    }

    /// Issues a command, which waits for the solicitation window.
    ///
    /// # Errors
    /// [`IssueError`]; nothing was changed.
    pub fn issue(
        &mut self,
        now: Instant,
        slot: u16,
        command: Command,
        solicitation: &mut Solicitation,
    ) -> Result<(), IssueError> {
        let place = self.slots.get_mut(usize::from(slot)).ok_or(IssueError::NoSlot)?;
        if place.phase != Phase::Free {
            return Err(IssueError::Busy);
        }
        let fits = match command.kind {
            Kind::Read | Kind::Write => (1..=MAX_OPERATION).contains(&command.size),
            Kind::Rekey => command.size as usize == remora_wire::rma::KEY_LEN,
            _ => false,
        };
        if !fits {
            return Err(IssueError::Malformed);
        }
        let incoming = command.kind == Kind::Read || self.settings.write_debit == WriteDebit::Both;
        let debit = if incoming { command.size } else { 0 };
        *place = Slot { phase: Phase::Waiting, command, debit, issued: now, entered: now, ..FREE };
        solicitation.join(Waiting {
            party: Party::Command(slot),
            class: command.class,
            debit,
            until: now.after(self.trips.dispatch_timeout(command.server)),
        });
        Ok(())
    }

    /// Records that the request of a slot was sent with this nonce, so that its operation is in service.
    pub fn sent(&mut self, now: Instant, slot: u16, nonce: Nonce) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        debug_assert_eq!(place.phase, Phase::Waiting, "a request is sent once");
        (place.phase, place.entered, place.tags) = (Phase::Sent, now, TagSequence::new(nonce));
        self.deadlines.set(slot, now.after(self.trips.timeout(place.command.server)));
    }

    /// Returns the command of a slot and the nonces that authenticate an answer of this kind, or `None` if
    /// no such answer is expected.
    pub fn expects(&self, slot: u16, kind: Kind) -> Option<(Command, TagSequence)> {
        let place = self.slots.get(usize::from(slot))?;
        let read = place.command.kind == Kind::Read;
        let fits = match (place.phase, kind) {
            (Phase::Sent, Kind::Data) => read,
            (Phase::Sent, Kind::Solicit) => !read,
            (Phase::Sent, Kind::Completion | Kind::Nack) | (Phase::Answered, Kind::Completion) => true,
            (Phase::Sent | Phase::Answering(_) | Phase::Answered, Kind::AuthenticationFailure) => true,
            _ => false,
        };
        let tags = match (place.phase, kind) {
            (_, Kind::AuthenticationFailure) => place.tags.request(),
            (Phase::Answered, _) => place.tags.then(place.answered),
            _ => place.tags,
        };
        fits.then_some((place.command, tags))
    }

    /// Returns true if this piece of a read was requested and has not arrived before.
    pub fn awaits(&self, slot: u16, offset: u64, len: u32) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|place| {
            let reads = place.phase == Phase::Sent && place.command.kind == Kind::Read;
            reads && place.arrivals.awaits(place.command.size, offset, len)
        })
    }

    /// Records that a piece of a read was stored. Returns the end of the operation if it was the last piece.
    pub fn placed(
        &mut self,
        now: Instant,
        slot: u16,
        offset: u64,
        len: u32,
        solicitation: &mut Solicitation,
    ) -> Option<OperationEnd> {
        let place = self.slots.get_mut(usize::from(slot))?;
        if place.arrivals == Arrivals::NONE {
            self.trips.measured(place.command.server, now.since(place.entered));
        }
        let complete = place.arrivals.placed(place.command.size, offset, len);
        complete.then(|| self.end(now, slot, Status::Ok, solicitation))
    }

    /// Processes a completion or NACK of the server. Success is accepted only after all data was sent, a
    /// refusal only before. Returns `None` and changes nothing if the message does not match the state of
    /// the slot.
    pub fn completed(
        &mut self,
        now: Instant,
        slot: u16,
        status: Status,
        solicitation: &mut Solicitation,
    ) -> Option<OperationEnd> {
        let phase = self.slots.get(usize::from(slot))?.phase;
        let fits = match status {
            Status::Ok => phase == Phase::Answered,
            Status::RemoteAuthenticationFailure => !matches!(phase, Phase::Free | Phase::Waiting),
            _ => phase == Phase::Sent,
        };
        fits.then(|| self.end(now, slot, status, solicitation))
    }

    /// Makes an operation fail for a reason other than a message of the serving server: local memory is
    /// gone, or a damaged copy of the request was refused while another copy may be served. The operation
    /// ends at once if no data was sent. Otherwise the server may still store that data, so the operation
    /// ends at its timeout or with its completion.
    pub fn fail(
        &mut self,
        now: Instant,
        slot: u16,
        status: Status,
        solicitation: &mut Solicitation,
    ) -> Option<OperationEnd> {
        let place = self.slots.get_mut(usize::from(slot))?;
        match place.phase {
            Phase::Free => None,
            Phase::Answering(1..) | Phase::Answered => {
                place.failed = status;
                None
            }
            _ => Some(self.end(now, slot, status, solicitation)),
        }
    }

    /// Stops sending data of a slot.
    pub fn stop_answering(&mut self, slot: u16) {
        self.answering.retain(|answering| *answering != slot);
    }

    /// Processes a solicit, with which the server requests the data of a write or rekey. Only the first
    /// solicit of a command is answered. The timer restarts, so that it expires after the server's timer
    /// (1RMA paper, §5.1).
    pub fn solicited(
        &mut self,
        now: Instant,
        slot: u16,
        nonce: Nonce,
        server_slot: u16,
        max_payload: u32,
        timeout: u64,
    ) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        if place.phase != Phase::Sent || place.command.kind == Kind::Read {
            return;
        }
        self.trips.measured(place.command.server, now.since(place.entered));
        place.phase = Phase::Answering(0);
        place.tags = place.tags.then(nonce);
        (place.server_slot, place.max_payload) = (server_slot, max_payload.max(remora_wire::rma::UNIT));
        let wait = timeout.min(self.settings.max_server_timeout).saturating_add(self.settings.guard);
        self.deadlines.set(slot, now.after(wait));
        self.answering.push_back(slot);
    }

    /// Returns the next piece of solicited data, of at most `max_payload` bytes.
    pub fn plan(&self, max_payload: u32) -> Option<DataPiece> {
        let slot = *self.answering.front()?;
        let place = self.slots.get(usize::from(slot))?;
        let Phase::Answering(offset) = place.phase else { return None };
        let most = place.max_payload.min(max_payload) / remora_wire::rma::UNIT * remora_wire::rma::UNIT;
        let len = (place.command.size - offset).min(most.max(remora_wire::rma::UNIT));
        Some(DataPiece { slot, server_slot: place.server_slot, offset, len, tags: place.tags })
    }

    /// Records that the planned piece was sent with this nonce.
    pub fn answered(&mut self, answer: &DataPiece, nonce: Nonce) {
        let Some(place) = self.slots.get_mut(usize::from(answer.slot)) else { return };
        place.answered.sender ^= nonce.sender;
        place.answered.counter ^= nonce.counter;
        let end = answer.offset + answer.len;
        place.phase = if end < place.command.size { Phase::Answering(end) } else { Phase::Answered };
        self.answering.pop_front();
        if end < place.command.size {
            // Slots alternate, one piece at a time.
            self.answering.push_back(answer.slot);
        }
    }

    /// Moves the front slot to the back, because its peer has no free buffer.
    pub fn defer(&mut self) {
        self.answering.rotate_left(usize::from(self.has_answers()));
    }

    /// Ends the operation of a slot with `status` and returns its end.
    pub fn end(
        &mut self,
        now: Instant,
        slot: u16,
        status: Status,
        solicitation: &mut Solicitation,
    ) -> OperationEnd {
        if matches!(self.slots[usize::from(slot)].phase, Phase::Answering(_)) {
            self.stop_answering(slot);
        }
        let place = &mut self.slots[usize::from(slot)];
        match place.phase {
            Phase::Free => {}
            Phase::Waiting => {
                place.entered = now;
                solicitation.leave(Party::Command(slot));
            }
            _ => solicitation.refund(place.command.class, place.debit),
        }
        let ended = OperationEnd {
            slot,
            status,
            issue_delay: place.entered.since(place.issued),
            total_delay: now.since(place.issued),
        };
        *place = FREE;
        self.deadlines.clear(slot);
        ended
    }

    /// Ends the operation of a slot that waited too long for the window.
    pub fn not_dispatched(&mut self, now: Instant, slot: u16) -> OperationEnd {
        let place = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(place.phase, Phase::Waiting, "only an operation that waits can be refused");
        let waited = now.since(place.issued);
        *place = FREE;
        OperationEnd { slot, status: Status::DispatchTimeout, issue_delay: waited, total_delay: waited }
    }

    /// Returns the earliest timeout of an operation in service.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadlines.first()
    }

    /// Ends one operation that has timed out at `now`.
    pub fn expire(&mut self, now: Instant, solicitation: &mut Solicitation) -> Option<OperationEnd> {
        let slot = self.deadlines.pop(now)?;
        let place = &self.slots[usize::from(slot)];
        if place.phase == Phase::Sent && place.arrivals == Arrivals::NONE {
            self.trips.expired(place.command.server);
        }
        let status = place.failed;
        Some(self.end(now, slot, status, solicitation))
    }

    /// Returns true if data remains to be sent.
    #[inline]
    pub fn has_answers(&self) -> bool {
        !self.answering.is_empty()
    }

    /// Returns true if the slot is free.
    pub fn is_free(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|place| place.phase == Phase::Free)
    }

    /// Returns the bytes of state, which do not depend on the number of peers.
    pub fn bytes(&self) -> usize {
        let queue = self.answering.capacity() * size_of::<u16>();
        self.slots.capacity() * size_of::<Slot>() + queue + self.trips.bytes()
    }
}
