//! The state of a tenant: its objects, and the program that is attached.

use remora_host::packet::PacketSocket;
use remora_host::{Channel, Engine};
use remora_memory::{Bytes, Pd};
use remora_nic::ObjectName;
use remora_wire::frame::{Endpoint, Peer};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::limits::Limits;
use super::super::rma::RmaService;
use super::super::users::{Claim, User};
use super::events::EventOwner;
use super::exposed::Exposed;
use super::held_peers::{HeldPeers, Offer};
use super::lent_memory::Outliving;
use super::lent_memory::{LentMemories, LentMemory};
use super::place::Place;
use super::regions::{Domain, Region, RetiredRegions};
use super::waiting_parts::Parts;
use crate::KernelLoader;

/// An object of the NIC that belongs to the tenant.
pub(super) struct Held {
    pub(super) name: ObjectName,
    /// The memory of its queues.
    pub(super) memory: Vec<LentMemory>,
    pub(super) claims: Vec<Claim>,
    /// The protection domain, which the object uses.
    pub(super) domain: Option<Pd>,
    /// The index of its doorbell among those of the tenant.
    pub(super) bell: Option<u32>,
    /// The peer in its address vector.
    pub(super) peer: Option<Peer>,
    /// The multicast groups that it is attached to.
    pub(super) groups: Vec<(Endpoint, Claim)>,
    /// The facts that the program has stored with the object. An object without facts ends with the program.
    pub(super) note: Option<Vec<u8>>,
    /// The TCP connection of a queue pair's set-up.
    pub(super) connection: Option<OwnedFd>,
}

/// The attached program, as the daemon knows it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Program {
    /// The process id, as reported by the kernel.
    pub pid: u32,
    /// A random number of this attachment.
    pub incarnation: u32,
}

impl Program {
    /// Returns the program at the other end of a socket, with a new incarnation.
    pub(crate) fn at(socket: &PacketSocket) -> Result<Program, remora_host::OpenError> {
        Ok(Program { pid: socket.peer_pid()?, incarnation: remora_host::random()? as u32 })
    }
}

/// A completion channel with its claim.
pub(super) struct LentChannel {
    pub(super) socket: Channel,
    pub(super) _claim: Claim,
}

/// The objects of one tenant.
pub(crate) struct Tenant {
    pub(super) engine: Arc<Engine>,
    pub(super) limits: Limits,
    pub(super) user: User,
    pub(super) rma: Arc<RmaService>,
    pub(super) loader: Option<KernelLoader>,
    pub(super) program: Program,
    /// The attached process; `None` if the daemon cannot see it.
    pub(super) process: Option<Arc<OwnedFd>>,
    pub(super) outliving: Arc<Outliving>,
    pub(super) set: u32,
    pub(super) doorbells: Bytes,
    pub(super) wake: OwnedFd,
    pub(super) events: Arc<EventOwner>,
    pub(super) channels: BTreeMap<u32, LentChannel>,
    pub(super) next_channel: u32,
    pub(super) memories: LentMemories,
    pub(super) parts: Parts,
    pub(super) offers: BTreeMap<u32, Offer>,
    pub(super) peers: HeldPeers,
    // The fields from here on are ordered as objects must end.
    pub(super) exposed: BTreeMap<u32, Exposed>,
    pub(super) objects: BTreeMap<Place, Held>,
    pub(super) windows: BTreeMap<u32, Claim>,
    pub(super) regions: BTreeMap<u32, Region>,
    pub(super) retired: RetiredRegions,
    pub(super) domains: BTreeMap<u32, Domain>,
}

/// A tenant that several threads access.
pub(crate) type Shared = Arc<std::sync::Mutex<Tenant>>;
