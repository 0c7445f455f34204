//! 1RMA on the NIC: encrypted one-sided operations without connections (1RMA paper, SIGCOMM 2020;
//! `docs/RMA.md`).
//!
//! The protocol is `remora_transport::rma`'s, which sees authentic messages only. Here are its bytes and
//! tables: [`regions`] that peers name by RegionId, [`portal`]s by which programs issue [`command`]s, keys
//! and the seam to the [`cipher`]. Nothing here grows with the number of peers.

pub mod cipher;
pub mod command;
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
use remora_wire::rma::{Body, Chain, MAX_OPERATION, Nonce, header};

pub use cipher::Cipher;
pub use command::{Command, Operand};
pub use completion::Completion;
pub use delays::{Delays, Histogram};
pub use keys::{Identity, RESERVED_KEY};
pub use nic::Facts;
pub use portal::{PortalInit, Portals};
pub use regions::{RegionError, RegionKey, RegionMemory, Regions, Rights};

use cipher::KEY_LEN;
use keys::Keys;

/// Reads the time anew, on the scale of the NIC's driver. A server must know the time of each copy, however
/// long its thread was stopped before.
pub type Clock = Box<dyn Fn() -> Instant + Send>;

/// What an engine needs to speak 1RMA.
pub struct Init {
    /// Sizes and times.
    pub settings: Settings,
    /// Whoever uses it. Once that is gone, another one may.
    pub user: Weak<()>,
    /// The adapter's regions.
    pub regions: Arc<Regions>,
    /// The cipher of this engine.
    pub cipher: Box<dyn Cipher>,
    /// The sender's word of its nonces: six bits of the engine, 26 random ones of this start.
    pub sender: u32,
    /// Where its nonces begin: the wall clock's nanoseconds, so that no later start repeats them.
    pub first_nonce: u64,
    /// The first nonce of failures under the reserved key. These travel to any sender of a bad request, so
    /// both words are random: they reveal nothing of the nonces of requests.
    pub failure_nonce: Nonce,
    /// A key that no peer has: requests for regions that do not exist are checked against it.
    pub decoy: RegionKey,
    /// None: the time that the driver passes is exact, as in a simulation.
    pub clock: Option<Clock>,
}

/// Where a message goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub endpoint: Endpoint,
    /// How its sender's frame came.
    pub origin: Option<Origin>,
}

/// What the engine keeps for an operation that it serves.
#[derive(Copy, Clone)]
pub(crate) struct ServedContext {
    pub to: Destination,
    /// The initiator's slot.
    pub slot: u16,
    pub region: u32,
    pub epoch: u64,
    /// First byte in the region.
    pub offset: u64,
    pub key: [u8; KEY_LEN],
    /// The new key that a rekey brings.
    pub new_key: [u8; KEY_LEN],
}

impl Default for ServedContext {
    fn default() -> ServedContext {
        ServedContext {
            to: Destination { endpoint: Endpoint::default(), origin: None },
            slot: 0,
            region: 0,
            epoch: 0,
            offset: 0,
            key: [0; KEY_LEN],
            new_key: [0; KEY_LEN],
        }
    }
}

/// A message that belongs to no operation in service: a refusal.
pub(crate) struct Refusal {
    pub to: Destination,
    pub header: header::Repr,
    pub body: Body,
    pub chain: Chain,
    pub key: [u8; KEY_LEN],
}

/// Refusals that wait to leave, at most; further ones are counted and dropped, and their initiators time out.
const MAX_REFUSALS: usize = 256;

/// Slots of a responder are told from those of a requester by this bit.
pub(crate) const SERVED: u16 = 1 << 15;

/// Authentication failures that may leave at once after a pause.
const FAILURE_BURST: u64 = 64;

/// 1RMA of one engine.
pub(crate) struct Rma {
    pub settings: Settings,
    pub requester: Requester,
    pub responder: Responder<ServedContext>,
    pub solicitation: Solicitation,
    pub portals: Portals,
    /// The command in each slot in use.
    pub commands: Vec<Option<Command>>,
    user: Weak<()>,
    pub regions: Arc<Regions>,
    pub keys: Keys,
    pub refusals: VecDeque<Refusal>,
    pub delays: Delays,
    /// When the last failure would have left, had all of them been spaced evenly.
    failures_until: Instant,
    nonce: Nonce,
    failure_nonce: Nonce,
    decoy: RegionKey,
    clock: Option<Clock>,
    /// Plaintext and ciphertext of the message at hand. Frames may be shared memory, so neither stands there
    /// before it may be seen.
    pub buffer: Box<[u8; MAX_OPERATION as usize]>,
    /// Which of the sources of messages has its turn.
    turn: u8,
    /// The last peer that was full.
    pub full_peer: Peer,
}

impl Rma {
    pub fn new(init: Init) -> Rma {
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

    /// The nonce of the next message under `key`. None comes twice under a secret key: each is counted, and
    /// the first lies beyond those of earlier starts. Failures under the reserved key have nonces of their
    /// own: a stranger that provokes one cannot extrapolate the nonces of the requests to come, which it
    /// would need to forge their failures.
    fn next_nonce(&mut self, key: &[u8; KEY_LEN]) -> Nonce {
        let next = if *key == RESERVED_KEY { &mut self.failure_nonce } else { &mut self.nonce };
        let nonce = *next;
        next.counter = next.counter.wrapping_add(1);
        nonce
    }

    /// The time of a copy that is about to happen.
    fn time_of_copy(&self, now: Instant) -> Instant {
        self.clock.as_ref().map_or(now, |clock| clock().max(now))
    }

    /// May an authentication failure leave at `now`? So many leave in a second, and a few more after a pause
    /// (the generic cell rate algorithm).
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

    /// When `expire` is due.
    pub fn deadline(&self) -> Instant {
        self.requester.deadline().min(self.responder.deadline()).min(self.solicitation.deadline())
    }

    /// May it have something to send, or commands to fetch?
    pub fn has_work(&self) -> bool {
        !self.refusals.is_empty()
            || self.responder.has_responses()
            || self.requester.has_answers()
            || self.solicitation.next().is_some()
            || self.portals.are_due()
    }
}
