//! The objects that a command names, creates and destroys. A host that executes the commands of others checks
//! by them that each program names its own objects only, and how much it holds.

use remora_memory::{Key, Pd};
use remora_wire::Qpn;
use remora_wire::frame::Peer;

use super::Command;
use crate::config::{QueuePairInit, Receives};
use crate::part_number::PartNumber;

/// An object of the NIC or of its port, by its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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

impl Command {
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
            | Command::RestrictToBulk { .. }
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
            Command::RestrictToBulk { portal } | Command::DestroyPortal { portal } => {
                visit(ObjectName::Portal(*portal));
            }
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
