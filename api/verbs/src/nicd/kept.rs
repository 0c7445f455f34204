//! The objects that a daemon has kept for a program that was restarted.

use remora_host::codec::decode;
use remora_host::connect::SetupConnection;
use remora_memory::{Bytes, Range};
use remora_nic::{ObjectName, Ring};
use remora_wire::Qpn;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::message::{KeptObject, Reply, Request, SentRange};
use crate::completion_queue::CqNote;
use crate::kernels::KernelNote;
use crate::queue_pair::QpNote;
use crate::{
    CompletionQueue, Context, CreateError, KernelHandle, MemoryRegion, ProtectionDomain, QueuePair, Ready,
};

/// The objects that earlier programs of this tenant left. Dropping one of them gives it back to the daemon.
#[derive(Debug, Default)]
pub struct Kept {
    /// Connected queue pairs. Their posted work is under way or done; its completions are in the completion
    /// queues.
    pub pairs: Vec<QueuePair<Ready>>,
    /// Completion queues, with the tags that they had.
    pub queues: Vec<CompletionQueue>,
    /// Regions with their names, at the addresses that they had.
    pub regions: Vec<(String, MemoryRegion)>,
    /// Protection domains of the earlier programs.
    pub domains: Vec<ProtectionDomain>,
    /// Kernels that the earlier programs deployed.
    pub kernels: Vec<KernelHandle>,
}

impl Kept {
    /// Takes the region of this name out of `regions`.
    pub fn region(&mut self, name: &str) -> Option<MemoryRegion> {
        let place = self.regions.iter().position(|(named, _)| named == name)?;
        Some(self.regions.remove(place).1)
    }

    /// Returns whether no object was kept.
    pub fn is_empty(&self) -> bool {
        let Kept { pairs, queues, regions, domains, kernels } = self;
        let rest = queues.is_empty() && regions.is_empty() && domains.is_empty();
        rest && pairs.is_empty() && kernels.is_empty()
    }
}

/// A queue pair that was kept, whose completion queues may not be known yet.
struct KeptPair {
    number: Qpn,
    bell: u32,
    note: QpNote,
    rings: [Ring; 2],
    connection: Option<SetupConnection>,
}

/// The objects that were taken over so far.
struct Taking<'c> {
    context: &'c Context,
    kept: Kept,
    domains: BTreeMap<u32, ProtectionDomain>,
    pairs: Vec<KeptPair>,
    kernels: Vec<(u32, KernelNote)>,
}

fn nonsense() -> CreateError {
    CreateError::Daemon("the NIC daemon has kept an object of another version: end the tenant".to_owned())
}

/// Maps the memory of a queue.
fn ring(descriptor: Option<OwnedFd>) -> Result<Ring, CreateError> {
    Ring::new(Bytes::from_memfd(descriptor.ok_or_else(nonsense)?)?).ok_or_else(nonsense)
}

impl Taking<'_> {
    fn take(&mut self, object: KeptObject, descriptors: Vec<OwnedFd>) -> Result<(), CreateError> {
        let mut descriptors = descriptors.into_iter();
        match object {
            KeptObject::Domain(pd) => {
                self.domains.insert(pd.get(), ProtectionDomain::over(self.context, pd)?);
            }
            KeptObject::Region { key, pd, first, name } => {
                let Some(domain) = self.domains.get(&pd.get()) else { return Ok(()) };
                let bytes = Bytes::from_memfd(descriptors.next().ok_or_else(nonsense)?)?;
                let SentRange { offset, len, iova, .. } = first;
                let range = Range { bytes, offset: offset as usize, len: len as usize, iova };
                self.kept.regions.push((name, MemoryRegion::take_over(domain, key, range)));
            }
            KeptObject::Object { object: ObjectName::Cq(number), note, .. } => {
                let note: CqNote = decode(&note).ok_or_else(nonsense)?;
                self.context.skip_tags(note.tag);
                let engine = self.context.engine_handle(0)?;
                let queue = ring(descriptors.next())?;
                self.kept.queues.push(CompletionQueue::take_over(self.context, engine, number, &note, queue));
            }
            KeptObject::Object { object: ObjectName::Kernel(number), note, .. } => {
                self.kernels.push((number, decode(&note).ok_or_else(nonsense)?));
            }
            KeptObject::Object { object: ObjectName::Qp(number), bell, note } => {
                let note = decode(&note).ok_or_else(nonsense)?;
                let rings = [ring(descriptors.next())?, ring(descriptors.next())?];
                let connection = descriptors.next().map(SetupConnection::from);
                self.pairs.push(KeptPair { number, bell, note, rings, connection });
            }
            KeptObject::Object { .. } => {}
        }
        Ok(())
    }

    /// Puts the objects together that others need.
    fn finish(mut self) -> Result<Kept, CreateError> {
        for pair in self.pairs {
            let KeptPair { number, bell, note, rings, connection } = pair;
            let queue = |number| self.kept.queues.iter().find(|queue| queue.number() == number);
            let (Some(domain), Some(send_cq), Some(receive_cq)) =
                (self.domains.get(&note.domain), queue(note.send_cq), queue(note.receive_cq))
            else {
                continue;
            };
            let taken =
                QueuePair::take_over(domain, send_cq, receive_cq, number, bell, note, rings, connection);
            self.kept.pairs.push(taken);
        }
        for (number, note) in self.kernels {
            if let Some(domain) = self.domains.get(&note.domain) {
                let engine = self.context.engine_handle(0)?;
                self.kept.kernels.push(KernelHandle::over(domain, engine, number));
            }
        }
        self.kept.domains = self.domains.into_values().collect();
        Ok(self.kept)
    }
}

impl Context {
    /// The objects that the daemon has kept from earlier programs of this tenant
    /// ([`Attachment::keep`](crate::nicd::Attachment::keep)). To be called once, before the program creates
    /// an object.
    ///
    /// # Errors
    /// `NotByDaemon` if the NIC is the program's own; `Daemon` if the daemon refuses.
    pub fn kept(&self) -> Result<Kept, CreateError> {
        let daemon = self.daemon().ok_or(CreateError::NotByDaemon)?;
        let mut taking = Taking {
            context: self,
            kept: Kept::default(),
            domains: BTreeMap::new(),
            pairs: Vec::new(),
            kernels: Vec::new(),
        };
        for place in 0.. {
            match daemon.ask(&Request::Kept(place), &[])? {
                (Reply::Kept(object), descriptors) => taking.take(*object, descriptors)?,
                _ => break,
            }
        }
        taking.finish()
    }

    /// Leaves all objects to the daemon, as if the program were killed now: objects dropped from now on are
    /// not given back. No effect if the NIC is the program's own.
    pub fn leave(&self) {
        if let Some(daemon) = self.daemon() {
            daemon.leave(true);
        }
    }

    /// Reverts [`leave`](Context::leave): objects dropped from now on are given back.
    pub fn stay(&self) {
        if let Some(daemon) = self.daemon() {
            daemon.leave(false);
        }
    }
}
