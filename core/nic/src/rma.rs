//! 1RMA on the NIC: encrypted one-sided operations without connections (1RMA paper, SIGCOMM 2020;
//! `docs/reference/rma.md`).
//!
//! `remora_transport::rma` implements the protocol and sees authentic messages only. This module has the
//! encoded messages and the tables: [`regions`] that peers name by RegionId, [`portal`]s through which
//! programs issue [`command`]s, keys, and the interface to the [`cipher`]. No table grows with the number of
//! peers.
//!
//! An engine holds the state of this file, which knows neither the engine nor a queue pair. Engine and
//! messages call `nic.rs`, `issue.rs`, `egress.rs` and `ingress.rs`.

pub mod cipher;
pub mod command;
mod command_queue;
mod completion;
pub mod delays;
mod egress;
mod ingress;
mod issue;
mod keys;
mod nic;
pub mod portal;
pub mod regions;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use remora_transport::Instant;
use remora_transport::rma::{Requester, Responder, Settings, Solicitation};
use remora_wire::frame::{Endpoint, Origin, Peer};
use remora_wire::rma::{Body, MAX_OPERATION, Nonce, TagSequence, header};

pub use cipher::Cipher;
pub use command::{Command, Operand};
pub use command_queue::CommandQueue;
pub use completion::Completion;
pub use delays::{Delays, Histogram};
pub use keys::{Identity, RESERVED_KEY};
pub use nic::Facts;
pub use portal::{PortalFacts, PortalInit, Portals};
pub use regions::{RegionError, RegionKey, RegionMemory, Regions, Rights};

use cipher::KEY_LEN;
use keys::Keys;

/// Returns the current time, on the clock of the NIC's driver. A server must know the time of each copy, even
/// if its thread was suspended before.
pub type Clock = Box<dyn Fn() -> Instant + Send>;

/// The parameters with which 1RMA is enabled on an engine.
pub struct Init {
    /// Sizes and timeouts.
    pub settings: Settings,
    /// The user of 1RMA on this engine. When the user is gone, another one may take over.
    pub user: Weak<()>,
    /// Region table of the adapter.
    pub regions: Arc<Regions>,
    /// Cipher of this engine.
    pub cipher: Box<dyn Cipher>,
    /// Sender part of the engine's nonces: six bits of engine number, 26 random bits per start.
    pub sender: u32,
    /// First value of the nonce counter: wall-clock time in nanoseconds, so that no later start repeats a
    /// nonce.
    pub first_nonce: u64,
    /// First nonce of authentication failures under the reserved key. Any sender of an invalid request
    /// receives such a failure, so the nonce is random and reveals nothing about the nonces of requests.
    pub failure_nonce: Nonce,
    /// A secret key that no peer has. Requests for nonexistent regions are checked against it, so that they
    /// take the same time.
    pub decoy: RegionKey,
    /// Clock for the time of copies. `None` uses the time that the driver passes, which is exact in a
    /// simulation.
    pub clock: Option<Clock>,
}

/// The destination of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub endpoint: Endpoint,
    /// Origin of the frame to which this message responds.
    pub origin: Option<Origin>,
}

/// State of an operation that the engine serves.
#[derive(Copy, Clone)]
pub(crate) struct ServedContext {
    pub destination: Destination,
    /// Slot of the initiator.
    pub slot: u16,
    pub region: u32,
    pub epoch: u64,
    /// Offset in the region.
    pub offset: u64,
    pub key: [u8; KEY_LEN],
    /// The new key of a rekey.
    pub new_key: [u8; KEY_LEN],
}

impl Default for ServedContext {
    fn default() -> ServedContext {
        ServedContext {
            destination: Destination { endpoint: Endpoint::default(), origin: None },
            slot: 0,
            region: 0,
            epoch: 0,
            offset: 0,
            key: [0; KEY_LEN],
            new_key: [0; KEY_LEN],
        }
    }
}

/// A refusal: a message that belongs to no operation in service.
pub(crate) struct Refusal {
    pub destination: Destination,
    pub header: header::Repr,
    pub body: Body,
    pub tags: TagSequence,
    pub key: [u8; KEY_LEN],
}

/// Maximum number of unsent refusals. Further ones are counted and dropped, and their initiators time out.
const MAX_REFUSALS: usize = 256;

/// Bit that distinguishes slots of the responder from those of the requester.
pub(crate) const SERVED: u16 = 1 << 15;

/// Maximum number of authentication failures sent in a burst.
const FAILURE_BURST: u64 = 64;

/// The 1RMA state of one engine.
pub(crate) struct Rma {
    pub settings: Settings,
    pub requester: Requester,
    pub responder: Responder<ServedContext>,
    pub solicitation: Solicitation,
    pub portals: Portals,
    /// Command of each slot in use.
    pub commands: Vec<Option<Command>>,
    user: Weak<()>,
    pub regions: Arc<Regions>,
    pub keys: Keys,
    pub refusals: VecDeque<Refusal>,
    pub delays: Delays,
    /// Time until which the rate of authentication failures is used up (generic cell rate algorithm).
    failures_until: Instant,
    nonce: Nonce,
    failure_nonce: Nonce,
    decoy: RegionKey,
    clock: Option<Clock>,
    /// Buffer for the plaintext and ciphertext of the current message. Frames may be shared memory, so
    /// unauthenticated plaintext and unsealed text must not be stored there.
    pub buffer: Box<[u8; MAX_OPERATION as usize]>,
    /// Index of the message source whose turn is next.
    turn: u8,
    /// The last peer whose buffers were full.
    pub full_peer: Peer,
}

impl Rma {
    pub(crate) fn new(init: Init) -> Rma {
        let settings = Settings {
            slots: init.settings.slots.min(SERVED - 1),
            served: init.settings.served.min(SERVED - 1),
            ..init.settings
        };
        Rma {
            requester: Requester::new(&settings),
            responder: Responder::new(&settings),
            solicitation: Solicitation::new(&settings),
            portals: Portals::new(settings.slots),
            commands: vec![None; usize::from(settings.slots)],
            user: init.user,
            regions: init.regions,
            keys: Keys::new(init.cipher),
            refusals: VecDeque::with_capacity(MAX_REFUSALS),
            delays: Delays::new(init.clock.as_ref().map_or(Instant(0), |clock| clock())),
            failures_until: Instant(0),
            nonce: Nonce { sender: init.sender, counter: init.first_nonce },
            failure_nonce: init.failure_nonce,
            decoy: init.decoy,
            clock: init.clock,
            buffer: Box::new([0; MAX_OPERATION as usize]),
            turn: 0,
            full_peer: Peer(0),
            settings,
        }
    }

    /// Returns the nonce of the next message under `key`. No nonce is used twice under a secret key: nonces
    /// are counted, and each start begins above all earlier ones. Authentication failures under the reserved
    /// key have a counter of their own. So a stranger who provokes a failure cannot predict the nonces of
    /// requests, which are needed to forge their failures.
    fn next_nonce(&mut self, key: &[u8; KEY_LEN]) -> Nonce {
        let next = if *key == RESERVED_KEY { &mut self.failure_nonce } else { &mut self.nonce };
        let nonce = *next;
        next.counter = next.counter.wrapping_add(1);
        nonce
    }

    /// Returns the time of a copy that is about to happen.
    fn time_of_copy(&self, now: Instant) -> Instant {
        self.clock.as_ref().map_or(now, |clock| clock().max(now))
    }

    /// Returns true if an authentication failure may be sent at `now`. The rate is limited, with a small
    /// burst (generic cell rate algorithm).
    fn may_fail(&mut self, now: Instant) -> bool {
        let Some(spacing) = 1_000_000_000_u64.checked_div(u64::from(self.settings.failures_per_second))
        else {
            return false;
        };
        if self.failures_until > now.after(FAILURE_BURST * spacing) {
            return false;
        }
        self.failures_until = self.failures_until.max(now).after(spacing);
        true
    }

    /// Returns the time at which `expire` is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.requester.deadline().min(self.responder.deadline()).min(self.solicitation.deadline())
    }

    /// Returns true if there may be messages to send or commands to fetch.
    pub(crate) fn has_work(&self) -> bool {
        !self.refusals.is_empty()
            || self.responder.has_responses()
            || self.requester.has_answers()
            || self.solicitation.next().is_some()
            || self.portals.are_due()
    }
}
