//! The NIC's commands of a tenant. Each names objects of the tenant only; those that end an object also give
//! back what the tenant's user holds for it.

use remora_host::Engine;
use remora_nic::kernel::KernelFacts;
use remora_nic::{Command, CommandError, ObjectName};
use std::sync::Arc;

use super::super::message::Reply;
use super::{AWAY, ReplyResult, Stage, Tenant, unknown};
use crate::CreateError;

/// The refusal of a command that creates an object with memory of its program.
const BY_ITS_REQUEST: &str = "the daemon has a request of its own for this command";

impl Tenant {
    /// Executes a command that names objects of this tenant.
    pub(super) fn command(&mut self, command: Command) -> ReplyResult {
        let mut refusal = None;
        command.names(|name| refusal = refusal.take().or(self.refusal_of(name)));
        if let Some(words) = refusal {
            return Err(words);
        }
        let done = || Ok((Reply::Executed(remora_nic::Reply::Done), Vec::new()));
        match command {
            Command::DestroyCq { cq } => self.destroy_cq(cq).and_then(|()| done()),
            Command::DestroyQp(qp) => self.destroy_qp(qp.get()).and_then(|()| done()),
            Command::RemoveKernel { kernel } => self.remove_kernel(kernel).and_then(|()| done()),
            Command::DestroyPortal { portal } => self.destroy_portal(portal).and_then(|()| done()),
            Command::DestroyFreeList { list } => self.destroy_free_list(list).and_then(|()| done()),
            Command::CreateFreeList(init) => self.create_free_list(init),
            Command::QueryKernels => self.query_kernels(),
            Command::NotifyCq { .. }
            | Command::CountCompletions { .. }
            | Command::ModifyQp { .. }
            | Command::QueryQp(_)
            | Command::Enable { .. }
            | Command::AttachKernel { .. }
            | Command::CheckReads { .. }
            | Command::InvokeKernel { .. }
            | Command::QueryFreeList { .. }
            | Command::FindBuffers { .. }
            | Command::RestrictToBulk { .. } => self.pass_on(command),
            _ => Err(BY_ITS_REQUEST.to_owned()),
        }
    }

    fn pass_on(&self, command: Command) -> ReplyResult {
        let replied = self.engine()?.execute(command);
        Ok((replied.map_or_else(Reply::RefusedByNic, Reply::Executed), Vec::new()))
    }

    pub(super) fn engine(&self) -> Result<&Arc<Engine>, String> {
        self.context.own_engines().first().ok_or_else(|| CreateError::NotByDaemon.to_string())
    }

    /// Returns the kernels of this tenant.
    fn query_kernels(&self) -> ReplyResult {
        let all: Result<Vec<KernelFacts>, CommandError> = self.engine()?.ask(Command::QueryKernels);
        let mut kernels = all.map_err(super::words)?;
        kernels.retain(|facts| self.kernels.contains_key(&facts.number));
        Ok((Reply::Executed(kernels.into()), Vec::new()))
    }

    /// Returns the reason why this tenant may not name the object; `None` if it may.
    fn refusal_of(&self, name: ObjectName) -> Option<String> {
        let lacks = |has: bool, kind, number| (!has).then(|| unknown(kind, number));
        match name {
            ObjectName::Cq(cq) => lacks(self.queues.contains_key(&cq), "completion queue", cq),
            ObjectName::Kernel(number) => lacks(self.kernels.contains_key(&number), "kernel", number),
            ObjectName::Portal(number) => lacks(self.portals.contains_key(&number), "command portal", number),
            ObjectName::Region(key) => {
                lacks(self.regions.contains_key(&key.get()), "region with key", key.get())
            }
            ObjectName::Qp(qp) => match self.pairs.get(&qp.get()) {
                None => Some(unknown("queue pair", qp.get())),
                Some(pair) => matches!(pair.stage, Stage::Away).then(|| AWAY.to_owned()),
            },
            // The daemon sets up connections itself.
            ObjectName::Peer(peer) => Some(unknown("peer", peer.0)),
            ObjectName::Srq(srq) => Some(unknown("shared receive queue", srq.get())),
            ObjectName::XrcDomain(domain) => Some(unknown("XRC domain", domain)),
            ObjectName::AddressHandle(handle) => Some(unknown("address handle", handle)),
            ObjectName::FreeList(list) => {
                let has = self.free_lists.contains_key(&list);
                (!has).then(|| format!("this program has no free list {list}"))
            }
            ObjectName::Domain(pd) => {
                lacks(self.domains.contains_key(&pd.get()), "protection domain", pd.get())
            }
            ObjectName::Part(part) => lacks(self.handed.has(part), "memory with number", part.0),
        }
    }
}
