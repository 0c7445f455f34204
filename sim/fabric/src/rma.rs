//! 1RMA on a simulated node: regions with keys, command portals, and what a program does with them; and the
//! experiments of its paper.
//!
//! | module | figure |
//! |---|---|
//! | [`load`] | 11: load offered and accepted, and rates by slots |
//! | [`beside`] | 12: small reads beside a long transfer |
//! | [`rotation`] | 14: a client's gap while a key changes |
//! | [`convergence`] | 15: two flows under the executor's congestion control |
//! | [`jitter`] | 16a, b: windows and timers in a network with jitter |
//!
//! All of them run the code of the NIC and of the executor, on the network of [`path`].

pub mod beside;
mod client;
pub mod convergence;
pub mod jitter;
pub mod load;
pub mod path;
pub mod rotation;

use std::sync::{Arc, Weak};

use remora_memory::Pd;
use remora_nic::rma::{
    Cipher, Clock, Command, Completion, Identity, Init, Operand, PortalInit, RegionError, RegionKey,
    RegionMemory, Regions, Rights,
};
use remora_nic::{NicError, Word, wqe::SLOT};
use remora_transport::rma::Settings;
use remora_wire::frame::Endpoint;
use remora_wire::rma::{Class, Kind, Nonce};

use crate::program::{CompletionQueue, Region, ring};
use crate::world::World;

/// A command portal of a node, as its program sees it.
#[derive(Debug)]
pub struct Portal {
    /// Node that owns it.
    pub node: usize,
    /// Its number in the NIC.
    pub number: u32,
    /// The first of its slots.
    pub first: u16,
    /// How many slots it has.
    pub slots: u16,
    /// Its completion queue.
    pub cq: CompletionQueue,
    /// The process that its NIC names in requests.
    pub pid: u32,
    /// The incarnation of that process.
    pub incarnation: u32,
    ring: remora_nic::Ring,
    produced: u64,
}

/// A region that peers reach by 1RMA.
#[derive(Clone, Debug)]
pub struct Exposed {
    /// Its memory.
    pub memory: Region,
    /// Its RegionId.
    pub id: u32,
    /// Its key.
    pub key: RegionKey,
}

/// What an engine starts with, beyond its settings.
#[derive(Copy, Clone, Debug)]
pub struct Start {
    /// The sender's word of its nonces.
    pub sender: u32,
    /// Where its nonces begin.
    pub first_nonce: u64,
    /// Regions at most.
    pub regions: u32,
}

impl Portal {
    /// The ring of its commands.
    pub fn ring(&self) -> &remora_nic::Ring {
        &self.ring
    }
}

impl World {
    /// A node speaks 1RMA from now on. Its engine starts anew with no region and no portal.
    pub fn enable_rma(&mut self, node: usize, settings: &Settings, start: Start, cipher: Box<dyn Cipher>) {
        self.enable_rma_by(node, settings, start, cipher, None);
    }

    /// The same with a clock of its own, which need not agree with the time of the world.
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

    /// The table of a node's regions.
    ///
    /// # Panics
    /// If the node does not speak 1RMA.
    pub fn regions(&self, node: usize) -> &Arc<Regions> {
        self.nodes[node].regions.as_ref().expect("a node that speaks 1RMA")
    }

    /// Gives a region a RegionId, with these rights and this key.
    ///
    /// # Errors
    /// `Full`.
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

    /// Makes a portal with `slots` slots that completes into `cq`.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn create_portal(
        &mut self,
        cq: CompletionQueue,
        slots: u16,
        pid: u32,
        incarnation: u32,
    ) -> Result<Portal, NicError> {
        let pd = self.pd(cq.node);
        self.create_portal_of(cq, slots, pid, incarnation, pd)
    }

    /// The same in another protection domain.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn create_portal_of(
        &mut self,
        cq: CompletionQueue,
        slots: u16,
        pid: u32,
        incarnation: u32,
        pd: Pd,
    ) -> Result<Portal, NicError> {
        let ring = ring(u64::from(slots));
        let init = PortalInit { ring: ring.clone(), slots, pd, cq: cq.number, pid, incarnation };
        let (number, first) = self.with_nic(cq.node, |nic, _| nic.create_portal(init))?;
        Ok(Portal { node: cq.node, number, first, slots, cq, pid, incarnation, ring, produced: 0 })
    }

    /// Removes a portal.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn destroy_portal(&mut self, portal: &Portal) -> Result<(), NicError> {
        let now = self.now();
        self.with_nic(portal.node, |nic, _| nic.destroy_portal(now, portal.number))
    }

    /// Writes a command into a portal's ring and tells the NIC.
    pub fn issue(&mut self, portal: &mut Portal, command: &Command) {
        self.issue_bytes(portal, &command.bytes());
    }

    /// Writes any 64 bytes into a portal's ring and tells the NIC.
    pub fn issue_bytes(&mut self, portal: &mut Portal, bytes: &[u8; SLOT]) {
        portal.ring.store(portal.produced, bytes);
        portal.produced += 1;
        portal.ring.set_word(Word::Produced, portal.produced);
        self.with_nic(portal.node, |nic, _| nic.ring_portal(portal.number));
    }

    /// Moves the producer index of a portal's ring to any value and tells the NIC.
    pub fn move_producer(&mut self, portal: &Portal, index: u64) {
        portal.ring.set_word(Word::Produced, index);
        self.with_nic(portal.node, |nic, _| nic.ring_portal(portal.number));
    }

    /// The next completion of a command.
    pub fn poll_rma(&mut self, cq: CompletionQueue) -> Option<Completion> {
        Completion::of(&self.poll_entry(cq)?)
    }

    /// The endpoint of a node.
    pub fn endpoint(&self, node: usize) -> Endpoint {
        self.nodes[node].endpoint
    }

    /// K_d of a portal's process for a region and a kind of operation.
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

/// A command of a portal's slot. Its local and remote bytes begin where the operands say.
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
