//! The objects that a command names, creates and destroys. A host that executes the commands of others checks
//! by them that each program names its own objects only, and how much it holds.

use remora_memory::{Key, Pd};
use remora_wire::Qpn;
use remora_wire::frame::Peer;
use serde::{Deserialize, Serialize};

use super::{Command, Reply};
use crate::config::{QueuePairInit, Receives};
use crate::part_number::PartNumber;

/// An object of the NIC or of its port, by its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectName {
    /// A protection domain.
    Domain(Pd),
    /// A memory region or window.
    Region(Key),
    /// A completion queue.
    Cq(u32),
    /// A queue pair.
    Qp(Qpn),
    /// A shared receive queue.
    Srq(Qpn),
    /// An XRC domain.
    XrcDomain(u32),
    /// An address handle.
    AddressHandle(u32),
    /// A free list of PRISM.
    FreeList(u64),
    /// A kernel of StRoM.
    Kernel(u32),
    /// A command portal of 1RMA.
    Portal(u32),
    /// A part that the command takes.
    Part(PartNumber),
    /// A peer of the port.
    Peer(Peer),
}

impl ObjectName {
    /// Returns the command that destroys the object; `None` if it is no object of the NIC.
    pub fn destruction(self) -> Option<Command> {
        Some(match self {
            ObjectName::Cq(cq) => Command::DestroyCq { cq },
            ObjectName::Qp(qp) => Command::DestroyQp(qp),
            ObjectName::Srq(srq) => Command::DestroySrq(srq),
            ObjectName::XrcDomain(domain) => Command::FreeXrcDomain { domain },
            ObjectName::AddressHandle(handle) => Command::DestroyAddressHandle { handle },
            ObjectName::FreeList(list) => Command::DestroyFreeList { list },
            ObjectName::Kernel(kernel) => Command::RemoveKernel { kernel },
            ObjectName::Portal(portal) => Command::DestroyPortal { portal },
            ObjectName::Domain(_) | ObjectName::Region(_) | ObjectName::Part(_) | ObjectName::Peer(_) => {
                return None;
            }
        })
    }
}

impl Command {
    /// Returns the object that the command has created, according to its reply; `None` if it creates none.
    pub fn created(&self, reply: &Reply) -> Option<ObjectName> {
        let number = match reply {
            Reply::Number(number) => *number,
            Reply::Portal(facts) => return Some(ObjectName::Portal(facts.number)),
            _ => return None,
        };
        let short = number as u32;
        let qpn = Qpn::new(short & 0x00ff_ffff);
        match self {
            Command::CreateCq { .. } => Some(ObjectName::Cq(short)),
            Command::CreateQp(_)
            | Command::CreateGsiQp(_)
            | Command::CreateLoopback(_)
            | Command::CreateXrcTarget { .. } => Some(ObjectName::Qp(qpn)),
            Command::CreateSrq(_) => Some(ObjectName::Srq(qpn)),
            Command::AllocXrcDomain => Some(ObjectName::XrcDomain(short)),
            Command::CreateAddressHandle { .. } => Some(ObjectName::AddressHandle(short)),
            Command::CreateFreeList(_) => Some(ObjectName::FreeList(number)),
            Command::DeployKernel(_) => Some(ObjectName::Kernel(short)),
            _ => None,
        }
    }

    /// Returns the object that the command destroys; `None` if it destroys none.
    pub fn destroyed(&self) -> Option<ObjectName> {
        match *self {
            Command::DestroyCq { cq } => Some(ObjectName::Cq(cq)),
            Command::DestroyQp(qp) => Some(ObjectName::Qp(qp)),
            Command::DestroySrq(srq) => Some(ObjectName::Srq(srq)),
            Command::FreeXrcDomain { domain } => Some(ObjectName::XrcDomain(domain)),
            Command::DestroyAddressHandle { handle } => Some(ObjectName::AddressHandle(handle)),
            Command::DestroyFreeList { list } => Some(ObjectName::FreeList(list)),
            Command::RemoveKernel { kernel } => Some(ObjectName::Kernel(kernel)),
            Command::DestroyPortal { portal } => Some(ObjectName::Portal(portal)),
            _ => None,
        }
    }

    /// Passes the number of each part that the command takes to `visit`, which may replace it: a host that
    /// executes the commands of others numbers their parts itself.
    pub fn parts(&mut self, mut visit: impl FnMut(&mut PartNumber)) {
        match self {
            Command::CreateCq { ring, .. }
            | Command::ResizeCq { ring, .. }
            | Command::ResizeSrq { ring, .. } => {
                visit(ring);
            }
            Command::CreateQp(init) | Command::CreateGsiQp(init) => {
                visit(&mut init.send_ring);
                if let Receives::Own { ring, .. } = &mut init.receives {
                    visit(ring);
                }
            }
            Command::CreateLoopback(init) => {
                visit(&mut init.send_ring);
                visit(&mut init.receive_ring);
            }
            Command::CreateSrq(init) => visit(&mut init.ring),
            Command::CreateFreeList(init) => visit(&mut init.ring),
            Command::DeployKernel(init) => visit(&mut init.code),
            Command::ReplaceKernel { code, .. } => visit(code),
            Command::CreatePortal(init) => visit(&mut init.ring),
            _ => {}
        }
    }

    /// Passes each object that the command names to `visit`. A host passes on only those commands that it
    /// knows, so that a new command does not pass for one that names nothing.
    pub fn names(&self, mut visit: impl FnMut(ObjectName)) {
        let visit: &mut dyn FnMut(ObjectName) = &mut visit;
        match self {
            Command::CreateFreeList(_)
            | Command::QueryFreeList { .. }
            | Command::FindBuffers { .. }
            | Command::DestroyFreeList { .. }
            | Command::DeployKernel(_)
            | Command::ReplaceKernel { .. }
            | Command::AttachKernel { .. }
            | Command::CheckReads { .. }
            | Command::RemoveKernel { .. }
            | Command::CreatePortal(_)
            | Command::DestroyPortal { .. } => self.names_of_offloads(visit),
            _ => self.names_of_verbs(visit),
        }
    }

    fn names_of_verbs(&self, visit: &mut dyn FnMut(ObjectName)) {
        match self {
            Command::CreateCq { ring, .. } => visit(ObjectName::Part(*ring)),
            Command::ResizeCq { cq, ring } => {
                visit(ObjectName::Cq(*cq));
                visit(ObjectName::Part(*ring));
            }
            Command::NotifyCq { cq, .. } | Command::CountCompletions { cq } | Command::DestroyCq { cq } => {
                visit(ObjectName::Cq(*cq));
            }
            Command::CreateQp(init) | Command::CreateGsiQp(init) => names_of_queue_pair(init, visit),
            Command::CreateLoopback(init) => {
                visit(ObjectName::Domain(init.pd));
                [init.send_cq, init.receive_cq].into_iter().for_each(|cq| visit(ObjectName::Cq(cq)));
                [init.send_ring, init.receive_ring]
                    .into_iter()
                    .for_each(|ring| visit(ObjectName::Part(ring)));
            }
            Command::CreateXrcTarget { domain } | Command::FreeXrcDomain { domain } => {
                visit(ObjectName::XrcDomain(*domain));
            }
            Command::ModifyQp { qp, change } => {
                visit(ObjectName::Qp(*qp));
                change.address.iter().for_each(|address| visit(ObjectName::Peer(address.peer)));
            }
            Command::QueryQp(qp)
            | Command::SetTenant { qp, .. }
            | Command::Enable { qp, .. }
            | Command::DestroyQp(qp)
            | Command::InvokeKernel { qp, .. }
            | Command::AttachMulticast { qp, .. }
            | Command::DetachMulticast { qp, .. } => visit(ObjectName::Qp(*qp)),
            Command::CreateSrq(init) => {
                visit(ObjectName::Domain(init.pd));
                visit(ObjectName::Part(init.ring));
                if let Some(xrc) = init.xrc {
                    visit(ObjectName::XrcDomain(xrc.domain));
                    visit(ObjectName::Cq(xrc.cq));
                }
            }
            Command::ResizeSrq { srq, ring } => {
                visit(ObjectName::Srq(*srq));
                visit(ObjectName::Part(*ring));
            }
            Command::ArmSrq { srq, .. } | Command::QuerySrq(srq) | Command::DestroySrq(srq) => {
                visit(ObjectName::Srq(*srq));
            }
            Command::CreateAddressHandle { pd, address } => {
                visit(ObjectName::Domain(*pd));
                visit(ObjectName::Peer(address.peer));
            }
            Command::DestroyAddressHandle { handle } => visit(ObjectName::AddressHandle(*handle)),
            _ => {}
        }
    }

    fn names_of_offloads(&self, visit: &mut dyn FnMut(ObjectName)) {
        match self {
            Command::AttachKernel { qp, kernel } | Command::CheckReads { qp, kernel } => {
                visit(ObjectName::Qp(*qp));
                kernel.iter().for_each(|kernel| visit(ObjectName::Kernel(*kernel)));
            }
            Command::CreateFreeList(init) => {
                visit(ObjectName::Domain(init.pd));
                visit(ObjectName::Part(init.ring));
            }
            Command::QueryFreeList { list }
            | Command::FindBuffers { list, .. }
            | Command::DestroyFreeList { list } => visit(ObjectName::FreeList(*list)),
            Command::DeployKernel(init) => {
                visit(ObjectName::Domain(init.pd));
                visit(ObjectName::Part(init.code));
                init.grants.iter().for_each(|key| visit(ObjectName::Region(*key)));
            }
            Command::ReplaceKernel { kernel, code } => {
                visit(ObjectName::Kernel(*kernel));
                visit(ObjectName::Part(*code));
            }
            Command::RemoveKernel { kernel } => visit(ObjectName::Kernel(*kernel)),
            Command::CreatePortal(init) => {
                visit(ObjectName::Domain(init.pd));
                visit(ObjectName::Cq(init.cq));
                visit(ObjectName::Part(init.ring));
            }
            Command::DestroyPortal { portal } => visit(ObjectName::Portal(*portal)),
            _ => {}
        }
    }
}

fn names_of_queue_pair(init: &QueuePairInit, visit: &mut dyn FnMut(ObjectName)) {
    visit(ObjectName::Domain(init.pd));
    [init.send_cq, init.receive_cq].into_iter().for_each(|cq| visit(ObjectName::Cq(cq)));
    visit(ObjectName::Part(init.send_ring));
    match init.receives {
        Receives::Own { ring, .. } => visit(ObjectName::Part(ring)),
        Receives::Shared(srq) => visit(ObjectName::Srq(srq)),
        Receives::None => {}
    }
}
