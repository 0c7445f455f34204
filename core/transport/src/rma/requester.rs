//! The initiator: its command slots, from issue to completion.

use std::collections::VecDeque;

use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::{Chain, Class, Kind, MAX_OPERATION, Nonce};

use super::deadlines::Deadlines;
use super::round_trips::RoundTrips;
use super::{Arrivals, Party, Settings, Solicitation, Status, Waiting, WriteDebit};
use crate::Instant;

/// What a slot is asked to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Read, write or rekey.
    pub kind: Kind,
    /// Its class of service.
    pub class: Class,
    /// Bytes: 1 to 4096; 16 for a rekey.
    pub size: u32,
    /// The server, whose round trip is measured.
    pub server: Endpoint,
}

/// The server of a free slot.
const NOWHERE: Endpoint = Endpoint { address: Address([0; 16]), udp_port: 0 };

/// Why a slot does not take a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// There is no such slot.
    NoSlot,
    /// Its operation has not ended.
    Busy,
    /// No operation has this kind or size.
    Malformed,
}

/// An operation that ended. Its slot is free.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OperationEnd {
    /// Its slot.
    pub slot: u16,
    /// How it ended.
    pub status: Status,
    /// Nanoseconds from its issue until it entered service, or ended before that.
    pub issue_delay: u64,
    /// Nanoseconds from its issue to its end.
    pub total_delay: u64,
}

/// The next piece of a write's or rekey's bytes: hop 3.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DataPiece {
    /// The command's slot.
    pub slot: u16,
    /// The server's slot: the piece goes there.
    pub server_slot: u16,
    /// First byte of the piece in the operation.
    pub offset: u32,
    /// Bytes of the piece.
    pub len: u32,
    /// Nonces of hops 1 and 2.
    pub chain: Chain,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// In line for the window.
    Waiting,
    /// The request has left. A read awaits data, a write its solicit.
    Sent,
    /// Data leaves for the server, up to this byte so far.
    Answering(u32),
    /// All data has left.
    Answered,
}

#[derive(Copy, Clone, Debug)]
struct Slot {
    phase: Phase,
    command: Command,
    debit: u32,
    issued: Instant,
    entered: Instant,
    chain: Chain,
    arrivals: Arrivals,
    server_slot: u16,
    max_payload: u32,
    /// Exclusive or of the nonces of hop 3.
    answered: Nonce,
    /// How the operation ends when its time is over, if it cannot end before.
    failed: Status,
}

const FREE: Slot = Slot {
    phase: Phase::Free,
    command: Command { kind: Kind::Read, class: Class::Latency, size: 0, server: NOWHERE },
    debit: 0,
    issued: Instant(0),
    entered: Instant(0),
    chain: Chain::EMPTY,
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
    /// Slots with data to send, each once.
    answering: VecDeque<u16>,
    trips: RoundTrips,
    settings: Settings,
}

impl Requester {
    /// All slots free.
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

    /// A command stands in line from now on.
    ///
    /// # Errors
    /// [`IssueError`]; nothing has changed then.
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

    /// The request of a slot has left, with this nonce: its operation is in service.
    pub fn sent(&mut self, now: Instant, slot: u16, nonce: Nonce) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        debug_assert_eq!(place.phase, Phase::Waiting, "a request leaves once");
        (place.phase, place.entered, place.chain) = (Phase::Sent, now, Chain::new(nonce));
        self.deadlines.set(slot, now.after(self.trips.timeout(place.command.server)));
    }

    /// The command of a slot in service, and the nonces with which an answer of this kind must be sealed.
    /// None: no such answer is awaited.
    pub fn expects(&self, slot: u16, kind: Kind) -> Option<(Command, Chain)> {
        let place = self.slots.get(usize::from(slot))?;
        let read = place.command.kind == Kind::Read;
        let fits = match (place.phase, kind) {
            (Phase::Sent, Kind::Data) => read,
            (Phase::Sent, Kind::Solicit) => !read,
            (Phase::Sent, Kind::Completion | Kind::Nack) | (Phase::Answered, Kind::Completion) => true,
            (Phase::Sent | Phase::Answering(_) | Phase::Answered, Kind::AuthenticationFailure) => true,
            _ => false,
        };
        let chain = match (place.phase, kind) {
            (_, Kind::AuthenticationFailure) => place.chain.request(),
            (Phase::Answered, _) => place.chain.then(place.answered),
            _ => place.chain,
        };
        fits.then_some((place.command, chain))
    }

    /// May this piece of a read be placed? It was asked for, and has not come before.
    pub fn awaits(&self, slot: u16, offset: u64, len: u32) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|place| {
            let reads = place.phase == Phase::Sent && place.command.kind == Kind::Read;
            reads && place.arrivals.awaits(place.command.size, offset, len)
        })
    }

    /// A piece of a read has been placed. Returns the end of the operation, if it was the last one.
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

    /// The server says how the operation ended. It took effect only if all its bytes were sent; before that,
    /// a server can only refuse it. None: the message fits no state of the slot, and changes nothing.
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

    /// An operation fails, and not because the server that has its data says so: local memory is gone, or a
    /// copy of its request came damaged while another copy may be served. It ends at once if no data has
    /// left. Otherwise the server may place that data until its time is over: the operation ends then, or
    /// when its completion comes.
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

    /// No further data of a slot leaves.
    pub fn stop_answering(&mut self, slot: u16) {
        self.answering.retain(|answering| *answering != slot);
    }

    /// The server asks for the bytes of a write or rekey. Only the first solicit of a command is answered.
    /// The timer starts anew, so that it expires after the server's (1RMA paper, §5.1).
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
        place.chain = place.chain.then(nonce);
        (place.server_slot, place.max_payload) = (server_slot, max_payload.max(remora_wire::rma::UNIT));
        let wait = timeout.min(self.settings.max_server_timeout).saturating_add(self.settings.guard);
        self.deadlines.set(slot, now.after(wait));
        self.answering.push_back(slot);
    }

    /// The next piece that a server has asked for; it leaves in at most `max_payload` bytes.
    pub fn plan(&self, max_payload: u32) -> Option<DataPiece> {
        let slot = *self.answering.front()?;
        let place = self.slots.get(usize::from(slot))?;
        let Phase::Answering(offset) = place.phase else { return None };
        let most = place.max_payload.min(max_payload) / remora_wire::rma::UNIT * remora_wire::rma::UNIT;
        let len = (place.command.size - offset).min(most.max(remora_wire::rma::UNIT));
        Some(DataPiece { slot, server_slot: place.server_slot, offset, len, chain: place.chain })
    }

    /// The planned piece has left, with this nonce.
    pub fn answered(&mut self, answer: &DataPiece, nonce: Nonce) {
        let Some(place) = self.slots.get_mut(usize::from(answer.slot)) else { return };
        place.answered.sender ^= nonce.sender;
        place.answered.counter ^= nonce.counter;
        let end = answer.offset + answer.len;
        place.phase = if end < place.command.size { Phase::Answering(end) } else { Phase::Answered };
        self.answering.pop_front();
        if end < place.command.size {
            // Slots take turns, a piece each.
            self.answering.push_back(answer.slot);
        }
    }

    /// The planned piece found its peer full: those of other slots have their turns first.
    pub fn defer(&mut self) {
        self.answering.rotate_left(usize::from(self.has_answers()));
    }

    /// Ends the operation of a slot: the server said how, or the program's local memory is gone.
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

    /// The command of a slot left its line: it waited for too long.
    pub fn not_dispatched(&mut self, now: Instant, slot: u16) -> OperationEnd {
        let place = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(place.phase, Phase::Waiting, "only who waits leaves the line");
        let waited = now.since(place.issued);
        *place = FREE;
        OperationEnd { slot, status: Status::DispatchTimeout, issue_delay: waited, total_delay: waited }
    }

    /// When the first operation in service has taken too long.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadlines.first()
    }

    /// Ends an operation that has taken too long at `now`.
    pub fn expire(&mut self, now: Instant, solicitation: &mut Solicitation) -> Option<OperationEnd> {
        let slot = self.deadlines.pop(now)?;
        let place = &self.slots[usize::from(slot)];
        if place.phase == Phase::Sent && place.arrivals == Arrivals::NONE {
            self.trips.expired(place.command.server);
        }
        let status = place.failed;
        Some(self.end(now, slot, status, solicitation))
    }

    /// Has it data to send?
    #[inline]
    pub fn has_answers(&self) -> bool {
        !self.answering.is_empty()
    }

    /// Is the slot free?
    pub fn is_free(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|place| place.phase == Phase::Free)
    }

    /// Bytes of its state: it does not depend on the number of peers.
    pub fn bytes(&self) -> usize {
        let queue = self.answering.capacity() * size_of::<u16>();
        self.slots.capacity() * size_of::<Slot>() + queue + self.trips.bytes()
    }
}
