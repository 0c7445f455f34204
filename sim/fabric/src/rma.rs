//! 1RMA on simulated nodes: regions with keys, command portals, and the experiments of the paper.
//!
//! | module | figure of the paper |
//! |---|---|
//! | [`load`] | 11: offered and accepted load, and operation rates by the number of slots |
//! | [`beside`] | 12: small reads during a long transfer |
//! | [`rotation`] | 14: interruption of a client by a key rotation |
//! | [`convergence`] | 15: two flows under the executor's congestion control |
//! | [`jitter`] | 16a, b: solicitation windows and timers in a network with jitter |
//!
//! The experiments run the code of the NIC and of the executor on the network of [`path`].

pub mod beside;
mod client;
pub mod convergence;
pub mod jitter;
pub mod load;
pub mod path;
pub mod rotation;

use std::sync::{Arc, Weak};

use remora_nic::rma::PortalFacts;
use remora_nic::rma::{
    Cipher, Clock, Command, CommandQueue, Completion, Identity, Init, Operand, PortalInit, RegionError,
    RegionKey, RegionMemory, Regions, Rights,
};
use remora_nic::{NicError, PartNumber, Word, wqe::SLOT};
use remora_transport::rma::Settings;
use remora_wire::frame::Endpoint;
use remora_wire::rma::{Class, Kind, Nonce};

use crate::program::{CompletionQueue, Region, ring};
use crate::world::World;

/// A command portal, as its program sees it.
#[derive(Debug)]
pub struct Portal {
    /// Node that owns the portal.
    pub node: usize,
    /// Number of the portal in the NIC.
    pub number: u32,
    /// First command slot of the portal.
    pub first: u16,
    /// Number of command slots.
    pub slots: u16,
    /// Completion queue of the commands.
    pub cq: CompletionQueue,
    /// Process id that the NIC puts into requests.
    pub pid: u32,
    /// Incarnation of the process.
    pub incarnation: u32,
    commands: CommandQueue,
}

/// A region that peers can access by 1RMA.
#[derive(Clone, Debug)]
pub struct Exposed {
    /// Memory of the region.
    pub memory: Region,
    /// RegionId by which peers name the region.
    pub id: u32,
    /// Region key, from which the keys of clients are derived.
    pub key: RegionKey,
}

/// The initial values of a 1RMA engine, in addition to its settings.
#[derive(Copy, Clone, Debug)]
pub struct Start {
    /// Sender word of the nonces.
    pub sender: u32,
    /// First counter value of the nonces.
    pub first_nonce: u64,
    /// Largest number of regions.
    pub regions: u32,
}

impl Portal {
    /// Returns the ring of commands.
    pub fn ring(&self) -> &remora_nic::Ring {
        self.commands.ring()
    }
}

impl World {
    /// Enables 1RMA on a node, with a new engine that has no region and no portal.
    pub fn enable_rma(&mut self, node: usize, settings: &Settings, start: Start, cipher: Box<dyn Cipher>) {
        self.enable_rma_by(node, settings, start, cipher, None);
    }

    /// Like [`World::enable_rma`], with a clock of its own that may differ from the time of the world.
    pub fn enable_rma_by(
        &mut self,
        node: usize,
        settings: &Settings,
        start: Start,
        cipher: Box<dyn Cipher>,
        clock: Option<Clock>,
    ) {
        let regions = Arc::new(Regions::new(start.regions));
        self.nodes[node].regions = Some(regions.clone());
        let decoy = RegionKey::new([0xdc ^ node as u8 | 1; 16]).expect("a key that is not zero");
        let init = Init {
            settings: *settings,
            user: Weak::new(),
            regions,
            cipher,
            sender: start.sender,
            first_nonce: start.first_nonce,
            failure_nonce: Nonce { sender: !start.sender, counter: start.first_nonce },
            decoy,
            clock,
        };
        self.with_nic(node, |nic, _| nic.enable_rma(init));
    }

    /// Returns the region table of a node.
    ///
    /// # Panics
    /// Panics if 1RMA is not enabled on the node.
    pub fn regions(&self, node: usize) -> &Arc<Regions> {
        self.nodes[node].regions.as_ref().expect("1RMA is enabled on the node")
    }

    /// Assigns a RegionId to a region, with these rights and this key.
    ///
    /// # Errors
    /// Fails with `Full` if the table of regions is full.
    pub fn expose(
        &mut self,
        memory: &Region,
        rights: Rights,
        key: RegionKey,
    ) -> Result<Exposed, RegionError> {
        let described =
            RegionMemory { key: memory.key, base: memory.address, len: memory.bytes.len() as u64, rights };
        let id = self.regions(memory.node).register(&described, &key)?;
        Ok(Exposed { memory: memory.clone(), id, key })
    }

    /// Creates a portal with `slots` slots whose commands complete into `cq`.
    ///
    /// # Errors
    /// Fails if the NIC rejects the portal.
    pub fn create_portal(
        &mut self,
        cq: CompletionQueue,
        slots: u16,
        pid: u32,
        incarnation: u32,
    ) -> Result<Portal, NicError> {
        let pd = self.pd(cq.node);
        let bulk_only = false;
        let ring = PartNumber::NONE;
        self.create_portal_of(cq, PortalInit { ring, slots, pd, cq: cq.number, pid, incarnation, bulk_only })
    }

    /// Like [`World::create_portal`], with these attributes and memory of its own.
    ///
    /// # Errors
    /// Fails if the NIC rejects the portal.
    pub fn create_portal_of(&mut self, cq: CompletionQueue, init: PortalInit) -> Result<Portal, NicError> {
        let PortalInit { slots, pid, incarnation, .. } = init;
        let ring = ring(u32::from(slots));
        let init = PortalInit { ring: self.hand(cq.node, ring.clone()), ..init };
        let PortalFacts { number, first } = self.ask(cq.node, remora_nic::Command::CreatePortal(init))?;
        let commands = CommandQueue::new(ring);
        Ok(Portal { node: cq.node, number, first, slots, cq, pid, incarnation, commands })
    }

    /// Destroys a portal.
    ///
    /// # Errors
    /// Fails with `Unknown` if the portal does not exist.
    pub fn destroy_portal(&mut self, portal: &Portal) -> Result<(), NicError> {
        self.ask(portal.node, remora_nic::Command::DestroyPortal { portal: portal.number })
    }

    /// Writes a command into a portal's ring and rings the portal.
    pub fn issue(&mut self, portal: &mut Portal, command: &Command) {
        self.issue_bytes(portal, &command.bytes());
    }

    /// Writes arbitrary 64 bytes into a portal's ring and rings the portal.
    pub fn issue_bytes(&mut self, portal: &mut Portal, bytes: &[u8; SLOT]) {
        portal.commands.push_bytes(bytes);
        portal.commands.publish();
        self.with_nic(portal.node, |nic, _| nic.ring_portal(portal.number));
    }

    /// Sets the producer index of a portal's ring to any value and rings the portal.
    pub fn move_producer(&mut self, portal: &Portal, index: u64) {
        portal.ring().set_word(Word::Produced, index);
        self.with_nic(portal.node, |nic, _| nic.ring_portal(portal.number));
    }

    /// Returns the next completion of a command.
    pub fn poll_rma(&mut self, cq: CompletionQueue) -> Option<Completion> {
        Completion::of(&self.poll_entry(cq)?)
    }

    /// Returns the endpoint of a node.
    pub fn endpoint(&self, node: usize) -> Endpoint {
        self.nodes[node].endpoint
    }

    /// Derives K_d, the key of a portal's process for a region and a kind of operation.
    pub fn derive(&self, cipher: &mut dyn Cipher, portal: &Portal, key: &RegionKey, kind: Kind) -> [u8; 16] {
        let identity = Identity {
            address: self.endpoint(portal.node).address,
            pid: portal.pid,
            incarnation: portal.incarnation,
            kind,
        };
        cipher.derive(key.bytes(), &identity.bytes())
    }
}

/// Returns a command for a slot of a portal. `local` and `remote` name the first byte in both regions.
pub fn command(
    portal: &Portal,
    slot: u16,
    kind: Kind,
    size: u32,
    local: Operand,
    remote: Operand,
    server: Endpoint,
    key: [u8; 16],
) -> Command {
    Command {
        kind,
        class: Class::Latency,
        size,
        slot: portal.first + slot,
        cq: portal.cq.number as u16,
        local,
        remote,
        server,
        key,
    }
}
