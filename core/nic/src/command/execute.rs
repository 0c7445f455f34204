//! The execution of commands.

use remora_memory::Mem;
use remora_transport::Instant;

use super::{Command, CommandError, CommandFault, FromReply, Reply};
use crate::nic::Nic;
use crate::part_number::PartNumber;
use crate::parts::HandedPart;

impl Nic {
    /// Hands a part to the NIC and returns its number, which the next command names.
    pub fn hand(&mut self, part: impl Into<HandedPart>) -> PartNumber {
        self.parts.add(part.into())
    }

    /// Executes a command and returns the value that its reply carries.
    ///
    /// # Errors
    /// [`CommandError`]: the limit or rule that refuses the command. Nothing has changed then.
    pub fn ask<T: FromReply>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        command: Command,
    ) -> Result<T, CommandError> {
        let kind = command.kind();
        let reply = self.execute(now, mem, command)?;
        T::from_reply(reply).ok_or(CommandError { kind, fault: CommandFault::Reply })
    }

    /// Executes a command.
    ///
    /// # Errors
    /// [`CommandError`]: the limit or rule that refuses the command. Nothing has changed then.
    pub fn execute(&mut self, now: Instant, mem: Mem<'_>, command: Command) -> Result<Reply, CommandError> {
        let kind = command.kind();
        self.handle(now, mem, command).map_err(|fault| CommandError { kind, fault })
    }

    fn handle(&mut self, now: Instant, mem: Mem<'_>, command: Command) -> Result<Reply, CommandFault> {
        Ok(match command {
            Command::CreateCq { ring, flags } => self.create_cq(ring, flags)?.into(),
            Command::ResizeCq { cq, ring } => self.resize_cq(cq, ring)?.into(),
            Command::NotifyCq { cq, notify } => self.notify_cq(cq, notify)?.into(),
            Command::CountCompletions { cq } => self.count_completions(cq)?.into(),
            Command::DestroyCq { cq } => self.shared.destroy_cq(cq)?.into(),
            Command::CreateQp(init) => self.create_qp(&init)?.into(),
            Command::CreateGsiQp(init) => self.create_gsi_qp(&init)?.into(),
            Command::CreateLoopback(init) => self.create_loopback(&init)?.into(),
            Command::CreateXrcTarget { domain } => self.create_xrc_target(domain)?.into(),
            Command::ModifyQp { qp, change } => self.modify_qp(qp, &change)?.into(),
            Command::QueryQp(qp) => self.query_qp(qp)?.into(),
            Command::SetTenant { qp, tenant } => self.set_tenant(qp, tenant)?.into(),
            Command::Enable { qp, count } => self.enable(qp, count)?.into(),
            Command::DestroyQp(qp) => self.destroy_qp(qp)?.into(),
            Command::Fail => {
                self.fail();
                Reply::Done
            }
            Command::CreateSrq(init) => self.create_srq(&init)?.into(),
            Command::ResizeSrq { srq, ring } => self.resize_srq(srq, ring)?.into(),
            Command::ArmSrq { srq, limit } => self.shared.arm_srq(srq, limit)?.into(),
            Command::QuerySrq(srq) => self.shared.query_srq(srq)?.into(),
            Command::DestroySrq(srq) => self.shared.destroy_srq(srq)?.into(),
            Command::AllocXrcDomain => self.shared.objects_mut().xrc_domains.alloc()?.into(),
            Command::FreeXrcDomain { domain } => self.shared.objects_mut().xrc_domains.free(domain)?.into(),
            Command::AttachMulticast { qp, group } => self.attach_multicast(qp, group)?.into(),
            Command::DetachMulticast { qp, group } => {
                self.shared.objects_mut().groups.detach(group, qp)?.into()
            }
            Command::CreateAddressHandle { pd, address } => {
                self.shared.objects_mut().handles.create(pd, &address)?.into()
            }
            Command::DestroyAddressHandle { handle } => {
                self.shared.objects_mut().handles.destroy(handle)?.into()
            }
            Command::CreateFreeList(init) => self.create_free_list(&init)?.into(),
            Command::QueryFreeList { list } => {
                self.shared.objects_mut().free_lists.settled(list)?.facts().into()
            }
            Command::FindBuffers { list, first, words } => self.find_buffers(list, first, words)?.into(),
            Command::DestroyFreeList { list } => self.shared.objects_mut().free_lists.destroy(list)?.into(),
            Command::DeployKernel(init) => self.deploy_kernel(&init)?.into(),
            Command::ReplaceKernel { kernel, code } => self.replace_kernel(kernel, code)?.into(),
            Command::AttachKernel { qp, kernel } => self.attach_kernel(qp, kernel)?.into(),
            Command::CheckReads { qp, kernel } => self.check_reads(qp, kernel)?.into(),
            Command::InvokeKernel { qp, invocation } => self.invoke_kernel(mem, qp, &invocation)?.into(),
            Command::QueryKernels => self.kernels().into(),
            Command::RemoveKernel { kernel } => self.remove_kernel(kernel)?.into(),
            Command::CreatePortal(init) => self.create_portal(&init)?.into(),
            Command::QueryRma => self.rma_facts().into(),
            Command::DestroyPortal { portal } => self.destroy_portal(now, portal)?.into(),
        })
    }
}
