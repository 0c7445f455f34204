//! The server: the operations that it serves, from an authentic request to their last message.

use std::collections::VecDeque;

use remora_wire::frame::Endpoint;
use remora_wire::rma::{Class, Kind, Nonce, TagSequence, UNIT};

use super::deadlines::Deadlines;
use super::round_trips::RoundTrips;
use super::{Arrivals, Party, Settings, Solicitation, Waiting};
use crate::Instant;

/// A request whose key, rights and bounds have been checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read, write or rekey.
    pub kind: Kind,
    /// Class of service.
    pub class: Class,
    /// Length of the operation in bytes.
    pub size: u32,
    /// Maximum payload bytes per message that the initiator accepts or sends.
    pub max_payload: u32,
    /// Nonce of the request.
    pub nonce: Nonce,
    /// The initiator; round-trip times are measured per initiator.
    pub initiator: Endpoint,
}

/// The decision on a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The request is served in this slot.
    Slot(u16),
    /// Too much data is pending, or no slot is free: the initiator gets a NACK.
    Nack,
}

/// The next message of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// A piece of a read.
    Data {
        /// Offset of the piece in the operation, in bytes.
        offset: u32,
        /// Length of the piece in bytes.
        len: u32,
    },
    /// The solicit of a write or rekey.
    Solicit,
    /// The completion of a write or rekey.
    Completion,
    /// NACK: the operation waited too long for the window, and nothing was changed.
    Nack,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// A read; holds the number of bytes sent.
    Reading(u32),
    /// Waiting for the solicitation window.
    Waiting,
    /// Data was solicited and is arriving.
    Solicited,
    /// All data has arrived.
    Completing,
    /// A NACK must be sent.
    Refused,
}

/// An operation that is served, with a context `C` of the NIC.
#[derive(Copy, Clone, Debug)]
pub struct Served<C> {
    phase: Phase,
    request: Request,
    tags: TagSequence,
    arrivals: Arrivals,
    /// Exclusive or of the nonces of hop 3.
    received: Nonce,
    /// Time at which the solicit was sent.
    solicited: Instant,
    /// Context of the NIC.
    pub context: C,
}

impl<C> Served<C> {
    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns true if the operation was executed or refused, so that only its last message remains to be
    /// sent.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Completing | Phase::Refused)
    }

    /// Returns the nonces that authenticate the next message.
    pub fn tags(&self) -> TagSequence {
        match self.phase {
            Phase::Completing => self.tags.then(self.received),
            _ => self.tags,
        }
    }
}

/// The operations that one engine serves.
#[derive(Debug)]
pub struct Responder<C> {
    slots: Vec<Served<C>>,
    free: VecDeque<u16>,
    /// Operations with a message to send, one queue per class, each operation at most once.
    due: [VecDeque<u16>; 2],
    deadlines: Deadlines,
    /// Bytes of reads that were not sent yet.
    owed: u64,
    threshold: u64,
    trips: RoundTrips,
}

impl<C: Copy + Default> Responder<C> {
    /// Returns a responder that serves nothing.
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
            tags: TagSequence::EMPTY,
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

    /// Accepts or refuses a request. At least one read is always accepted, however low the threshold.
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
            tags: TagSequence::new(request.nonce),
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

    /// Returns the operation in a slot.
    pub fn served(&self, slot: u16) -> Option<&Served<C>> {
        self.slots.get(usize::from(slot)).filter(|served| served.phase != Phase::Free)
    }

    /// Returns the NIC's context of the operation in a slot.
    pub fn context_mut(&mut self, slot: u16) -> Option<&mut C> {
        let served = self.slots.get_mut(usize::from(slot)).filter(|served| served.phase != Phase::Free)?;
        Some(&mut served.context)
    }

    /// Returns the next message to send and its slot, with data in pieces of at most `max_payload` bytes.
    /// The latency class precedes the bulk class.
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

    /// Records that the planned message was sent.
    pub fn sent(&mut self, slot: u16, response: Response) {
        let Served { phase, request, .. } = &mut self.slots[usize::from(slot)];
        let line = &mut self.due[request.class as usize];
        debug_assert_eq!(line.front(), Some(&slot), "the planned response is the first one");
        line.pop_front();
        if let Response::Data { offset, len } = response {
            self.owed -= u64::from(len);
            if offset + len < request.size {
                *phase = Phase::Reading(offset + len);
                // Operations alternate, one piece at a time.
                line.push_back(slot);
                return;
            }
        }
        self.release(slot);
    }

    /// Moves the front operation of a class to the back, because its peer has no free buffer.
    pub fn defer(&mut self, slot: u16) {
        let class = self.slots[usize::from(slot)].request.class;
        self.due[class as usize].rotate_left(1);
    }

    /// Records that the solicit of an operation was sent with this nonce. Its data may arrive until the
    /// timeout.
    pub fn solicited(&mut self, now: Instant, slot: u16, nonce: Nonce) {
        let served = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(served.phase, Phase::Waiting, "a solicit is sent once");
        (served.phase, served.tags, served.solicited) = (Phase::Solicited, served.tags.then(nonce), now);
        self.deadlines.set(slot, now.after(self.timeout(slot)));
    }

    /// Returns the time in nanoseconds that the data of an operation may take from its solicit on. The
    /// solicit carries this value to the initiator in 32 bits.
    pub fn timeout(&self, slot: u16) -> u64 {
        self.trips.timeout(self.slots[usize::from(slot)].request.initiator).min(u64::from(u32::MAX))
    }

    /// Returns the operation in a slot if it waits for data.
    pub fn expects(&self, slot: u16) -> Option<&Served<C>> {
        self.slots.get(usize::from(slot)).filter(|served| served.phase == Phase::Solicited)
    }

    /// Returns true if this piece was solicited, is in time at `now` and has not arrived before. `now` must
    /// have been read after the piece arrived, because the initiator relies on the timeout.
    pub fn awaits(&self, now: Instant, slot: u16, offset: u64, len: u32) -> bool {
        self.expects(slot).is_some_and(|served| {
            self.deadlines.of(slot).is_some_and(|until| now < until)
                && served.arrivals.awaits(served.request.size, offset, len)
        })
    }

    /// Records that a piece was stored at `now`. Returns true if it was the last one, so that the completion
    /// must be sent.
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
        let class = served.request.class;
        let size = served.request.size;
        self.deadlines.clear(slot);
        solicitation.refund(class, size);
        self.due[class as usize].push_back(slot);
        true
    }

    /// Refuses an operation that waited too long for the window. A NACK must be sent.
    pub fn not_dispatched(&mut self, slot: u16) {
        let served = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(served.phase, Phase::Waiting, "only an operation that waits can be refused");
        served.phase = Phase::Refused;
        self.due[served.request.class as usize].push_back(slot);
    }

    /// Ends an operation without a message, because its region was rekeyed or removed.
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

    /// Returns the earliest timeout of solicited data.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadlines.first()
    }

    /// Ends one operation whose data is late at `now`, and returns its slot. No message is sent, because the
    /// initiator times out too.
    pub fn expire(&mut self, now: Instant, solicitation: &mut Solicitation) -> Option<u16> {
        let slot = self.deadlines.pop(now)?;
        let Served { arrivals, request, .. } = &self.slots[usize::from(slot)];
        if *arrivals == Arrivals::NONE {
            self.trips.expired(request.initiator);
        }
        self.abort(slot, solicitation);
        Some(slot)
    }

    /// Returns true if a message remains to be sent.
    #[inline]
    pub fn has_responses(&self) -> bool {
        self.due.iter().any(|line| !line.is_empty())
    }

    /// Returns the number of operations in service.
    pub fn serving(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the bytes of state, which do not depend on the number of peers.
    pub fn bytes(&self) -> usize {
        let queues = self.free.capacity() + self.due[0].capacity() + self.due[1].capacity();
        self.slots.capacity() * size_of::<Served<C>>() + queues * size_of::<u16>() + self.trips.bytes()
    }

    /// Asserts that `owed` equals the unsent bytes of the reads in service.
    ///
    /// # Panics
    /// In debug builds, if the numbers differ.
    pub fn check(&self) {
        let owed = |served: &Served<C>| match served.phase {
            Phase::Reading(offset) => u64::from(served.request.size - offset),
            _ => 0,
        };
        debug_assert_eq!(self.slots.iter().map(owed).sum::<u64>(), self.owed, "bytes owed");
    }
}
