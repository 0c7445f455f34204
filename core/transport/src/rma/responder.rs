//! The server: the operations that it serves, from an authentic request to their last message.

use std::collections::VecDeque;

use remora_wire::frame::Endpoint;
use remora_wire::rma::{Chain, Class, Kind, Nonce, UNIT};

use super::deadlines::Deadlines;
use super::round_trips::RoundTrips;
use super::{Arrivals, Party, Settings, Solicitation, Waiting};
use crate::Instant;

/// A request whose key, rights and bounds are right.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read, write or rekey.
    pub kind: Kind,
    /// Its class of service.
    pub class: Class,
    /// Bytes of the operation.
    pub size: u32,
    /// Payload bytes that the initiator takes or sends in one message.
    pub max_payload: u32,
    /// The request's nonce.
    pub nonce: Nonce,
    /// Who asks, whose round trip is measured.
    pub initiator: Endpoint,
}

/// Was a request taken?
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is served in this slot.
    Slot(u16),
    /// Too much is owed, or no slot is free: the initiator gets a NACK.
    Nack,
}

/// What leaves next for an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// A piece of a read.
    Data {
        /// First byte in the operation.
        offset: u32,
        /// Bytes of the piece.
        len: u32,
    },
    /// The solicit of a write or rekey.
    Solicit,
    /// The completion of a write or rekey.
    Completion,
    /// It waited too long for the window: nothing was done.
    Nack,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// A read, up to this byte so far.
    Reading(u32),
    /// In line for the window.
    Waiting,
    /// Its bytes are on their way.
    Solicited,
    /// They are all there.
    Completing,
    /// A NACK is due.
    Refused,
}

/// An operation that is served, and what the NIC knows of it beyond its protocol.
#[derive(Copy, Clone, Debug)]
pub struct Served<C> {
    phase: Phase,
    request: Request,
    chain: Chain,
    arrivals: Arrivals,
    /// Exclusive or of the nonces of hop 3.
    received: Nonce,
    /// When its solicit left.
    solicited: Instant,
    /// What the NIC keeps for it.
    pub context: C,
}

impl<C> Served<C> {
    /// What it was asked for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Has it taken effect, or been refused, so that only its last message is due?
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Completing | Phase::Refused)
    }

    /// The nonces with which its next message must be sealed.
    pub fn chain(&self) -> Chain {
        match self.phase {
            Phase::Completing => self.chain.then(self.received),
            _ => self.chain,
        }
    }
}

/// The operations that one engine serves.
#[derive(Debug)]
pub struct Responder<C> {
    slots: Vec<Served<C>>,
    free: VecDeque<u16>,
    /// Operations with something to send, by class; each stands there once.
    due: [VecDeque<u16>; 2],
    deadlines: Deadlines,
    /// Bytes of reads that have not left.
    owed: u64,
    threshold: u64,
    trips: RoundTrips,
}

impl<C: Copy + Default> Responder<C> {
    /// Nothing is served.
    pub fn new(settings: &Settings) -> Responder<C> {
        let slots = usize::from(settings.served);
        let request = Request {
            kind: Kind::Read,
            class: Class::Latency,
            size: 0,
            max_payload: 0,
            nonce: Nonce::default(),
            initiator: Endpoint::default(),
        };
        let free = Served {
            phase: Phase::Free,
            request,
            chain: Chain::EMPTY,
            arrivals: Arrivals::NONE,
            received: Nonce::default(),
            solicited: Instant(0),
            context: C::default(),
        };
        Responder {
            slots: vec![free; slots],
            free: (0..settings.served).collect(),
            due: [VecDeque::with_capacity(slots), VecDeque::with_capacity(slots)],
            deadlines: Deadlines::new(slots),
            owed: 0,
            threshold: settings.nack_threshold(),
            trips: RoundTrips::new(settings),
        }
    }

    /// Takes a request, or refuses it. One operation is always taken, however low the threshold.
    pub fn accept(
        &mut self,
        now: Instant,
        request: Request,
        context: C,
        solicitation: &mut Solicitation,
    ) -> Accepted {
        let reads = request.kind == Kind::Read;
        let late = reads && self.owed > 0 && self.owed + u64::from(request.size) > self.threshold;
        if late {
            return Accepted::Nack;
        }
        let Some(slot) = self.free.pop_front() else { return Accepted::Nack };
        let phase = if reads { Phase::Reading(0) } else { Phase::Waiting };
        self.slots[usize::from(slot)] = Served {
            phase,
            request,
            chain: Chain::new(request.nonce),
            arrivals: Arrivals::NONE,
            received: Nonce::default(),
            solicited: now,
            context,
        };
        if reads {
            self.owed += u64::from(request.size);
            self.due[request.class as usize].push_back(slot);
        } else {
            solicitation.join(Waiting {
                party: Party::Served(slot),
                class: request.class,
                debit: request.size,
                until: now.after(self.trips.dispatch_timeout(request.initiator)),
            });
        }
        Accepted::Slot(slot)
    }

    /// An operation in service.
    pub fn served(&self, slot: u16) -> Option<&Served<C>> {
        self.slots.get(usize::from(slot)).filter(|served| served.phase != Phase::Free)
    }

    /// What the NIC keeps for an operation in service, to be changed.
    pub fn context_mut(&mut self, slot: u16) -> Option<&mut C> {
        let served = self.slots.get_mut(usize::from(slot)).filter(|served| served.phase != Phase::Free)?;
        Some(&mut served.context)
    }

    /// The operation that has something to send, and what, in pieces of at most `max_payload` bytes; latency
    /// before bulk.
    pub fn plan(&self, max_payload: u32) -> Option<(u16, Response)> {
        let slot = *self.due.iter().find_map(VecDeque::front)?;
        let Served { phase, request, .. } = &self.slots[usize::from(slot)];
        let response = match phase {
            Phase::Reading(offset) => {
                let most = request.max_payload.min(max_payload) / UNIT * UNIT;
                let len = (request.size - offset).min(most.max(UNIT));
                Response::Data { offset: *offset, len }
            }
            Phase::Refused => Response::Nack,
            _ => Response::Completion,
        };
        Some((slot, response))
    }

    /// What was planned for the operation has left, with this nonce.
    pub fn sent(&mut self, slot: u16, response: Response) {
        let Served { phase, request, .. } = &mut self.slots[usize::from(slot)];
        let line = &mut self.due[request.class as usize];
        debug_assert_eq!(line.front(), Some(&slot), "what was planned leaves first");
        line.pop_front();
        if let Response::Data { offset, len } = response {
            self.owed -= u64::from(len);
            if offset + len < request.size {
                *phase = Phase::Reading(offset + len);
                // Operations take turns, a piece each.
                line.push_back(slot);
                return;
            }
        }
        self.release(slot);
    }

    /// The planned response found its peer full: others of its class have their turns first.
    pub fn defer(&mut self, slot: u16) {
        let class = self.slots[usize::from(slot)].request.class;
        self.due[class as usize].rotate_left(1);
    }

    /// The solicit of an operation has left, with this nonce: its bytes may come until its timeout.
    pub fn solicited(&mut self, now: Instant, slot: u16, nonce: Nonce) {
        let served = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(served.phase, Phase::Waiting, "a solicit leaves once");
        (served.phase, served.chain, served.solicited) = (Phase::Solicited, served.chain.then(nonce), now);
        self.deadlines.set(slot, now.after(self.timeout(slot)));
    }

    /// How long the bytes of an operation may take from its solicit on: hop 2 says it to the initiator, in 32
    /// bits.
    pub fn timeout(&self, slot: u16) -> u64 {
        self.trips.timeout(self.slots[usize::from(slot)].request.initiator).min(u64::from(u32::MAX))
    }

    /// The operation to which data for this slot belongs, if it awaits data.
    pub fn expects(&self, slot: u16) -> Option<&Served<C>> {
        self.slots.get(usize::from(slot)).filter(|served| served.phase == Phase::Solicited)
    }

    /// May this piece be placed at `now`? It was asked for, is in time, and has not come before. `now` must
    /// have been read after the piece arrived: the initiator counts on it.
    pub fn awaits(&self, now: Instant, slot: u16, offset: u64, len: u32) -> bool {
        self.expects(slot).is_some_and(|served| {
            self.deadlines.of(slot).is_some_and(|until| now < until)
                && served.arrivals.awaits(served.request.size, offset, len)
        })
    }

    /// A piece has been placed at `now`. Returns whether it was the last one: its completion is due then.
    pub fn placed(
        &mut self,
        now: Instant,
        slot: u16,
        nonce: Nonce,
        offset: u64,
        len: u32,
        solicitation: &mut Solicitation,
    ) -> bool {
        let served = &mut self.slots[usize::from(slot)];
        if served.arrivals == Arrivals::NONE {
            self.trips.measured(served.request.initiator, now.since(served.solicited));
        }
        served.received.sender ^= nonce.sender;
        served.received.counter ^= nonce.counter;
        if !served.arrivals.placed(served.request.size, offset, len) {
            return false;
        }
        served.phase = Phase::Completing;
        let (class, size) = (served.request.class, served.request.size);
        self.deadlines.clear(slot);
        solicitation.refund(class, size);
        self.due[class as usize].push_back(slot);
        true
    }

    /// An operation left its line: it waited for too long. A NACK is due.
    pub fn not_dispatched(&mut self, slot: u16) {
        let served = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(served.phase, Phase::Waiting, "only who waits leaves the line");
        served.phase = Phase::Refused;
        self.due[served.request.class as usize].push_back(slot);
    }

    /// Ends an operation without another message of its own: its region has another key or is gone.
    pub fn abort(&mut self, slot: u16, solicitation: &mut Solicitation) {
        let Served { phase, request, .. } = self.slots[usize::from(slot)];
        match phase {
            Phase::Free => return,
            Phase::Waiting => solicitation.leave(Party::Served(slot)),
            Phase::Solicited => solicitation.refund(request.class, request.size),
            Phase::Reading(offset) => self.owed -= u64::from(request.size - offset),
            Phase::Completing | Phase::Refused => {}
        }
        if matches!(phase, Phase::Reading(_) | Phase::Completing | Phase::Refused) {
            self.due[request.class as usize].retain(|due| *due != slot);
        }
        self.deadlines.clear(slot);
        self.release(slot);
    }

    fn release(&mut self, slot: u16) {
        let served = &mut self.slots[usize::from(slot)];
        (served.phase, served.context) = (Phase::Free, C::default());
        self.free.push_back(slot);
    }

    /// When the first operation's bytes are too late.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadlines.first()
    }

    /// Ends an operation whose bytes are too late at `now`; its slot. Nothing is sent: its initiator expires
    /// by itself.
    pub fn expire(&mut self, now: Instant, solicitation: &mut Solicitation) -> Option<u16> {
        let slot = self.deadlines.pop(now)?;
        let Served { arrivals, request, .. } = &self.slots[usize::from(slot)];
        if *arrivals == Arrivals::NONE {
            self.trips.expired(request.initiator);
        }
        self.abort(slot, solicitation);
        Some(slot)
    }

    /// Has it something to send?
    #[inline]
    pub fn has_responses(&self) -> bool {
        self.due.iter().any(|line| !line.is_empty())
    }

    /// Operations in service.
    pub fn serving(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of its state: it does not depend on the number of peers.
    pub fn bytes(&self) -> usize {
        let queues = self.free.capacity() + self.due[0].capacity() + self.due[1].capacity();
        self.slots.capacity() * size_of::<Served<C>>() + queues * size_of::<u16>() + self.trips.bytes()
    }

    /// What is owed is what the reads in service have not sent, and each slot is free or served.
    ///
    /// # Panics
    /// In debug builds, if it is not.
    pub fn check(&self) {
        let owed = |served: &Served<C>| match served.phase {
            Phase::Reading(offset) => u64::from(served.request.size - offset),
            _ => 0,
        };
        debug_assert_eq!(self.slots.iter().map(owed).sum::<u64>(), self.owed, "bytes owed");
    }
}
