//! The bytes of a loopback queue pair's work requests: from one place in its protection domain to another, with the checks that both ends
//! of a connection make.

use remora_memory::{Access, Key, Mem, Span};
use remora_transport::{Notice, Outcome, Status};
use remora_wire::NakCode;

use super::calculate::Calculation;
use crate::gather;
use crate::nic::Shared;
use crate::queue_pair::{List, QueuePair, WqeContext};
use crate::receive_queue::Receive;
use crate::wqe::{MAX_INLINE, Wqe};

/// Bytes of a SEND that are moved at once.
const PIECE: usize = 1024;

impl QueuePair {
    pub(super) fn write_here(
        &self,
        mem: Mem<'_>,
        (va, rkey): (u64, u32),
        context: &WqeContext,
        len: u32,
    ) -> Result<u32, Status> {
        let target = self.remote(mem, (va, rkey), len, Access::REMOTE_WRITE)?;
        if context.list == List::Inline {
            let mut bytes = [0; MAX_INLINE];
            let bytes = &mut bytes[..len as usize];
            gather::gather_outlined(mem, self.pd, self.send.ring(), context, 0, bytes);
            target.write(bytes);
            return Ok(len);
        }
        self.with_elements(mem, context, len, Access::NONE, |offset, element| {
            if let Ok(part) = target.part(offset, element.len()) {
                part.copy_from(element);
            }
        })
    }

    pub(super) fn read_here(
        &self,
        mem: Mem<'_>,
        (va, rkey): (u64, u32),
        context: &WqeContext,
        len: u32,
    ) -> Result<u32, Status> {
        let source = self.remote(mem, (va, rkey), len, Access::REMOTE_READ)?;
        self.with_elements(mem, context, len, Access::LOCAL_WRITE, |offset, element| {
            if let Ok(part) = source.part(offset, element.len()) {
                element.copy_from(&part);
            }
        })
    }

    /// What the other end would allow: its rights, then its memory's.
    fn remote<'p>(
        &self,
        mem: Mem<'p>,
        (va, rkey): (u64, u32),
        len: u32,
        right: Access,
    ) -> Result<Span<'p>, Status> {
        mem.check_for(self.pd, self.owner, Key::new(rkey), va, len as usize, right)
            .map_err(|_| Status::RemoteAccess)
    }

    /// Calls `each(offset in the message, element)`; all elements are checked before the first is touched.
    fn with_elements(
        &self,
        mem: Mem<'_>,
        context: &WqeContext,
        len: u32,
        right: Access,
        mut each: impl FnMut(usize, &Span<'_>),
    ) -> Result<u32, Status> {
        if let List::One = context.list {
            let span = mem.check(self.pd, context.lkey, context.local, len as usize, right);
            each(0, &span.map_err(|_| Status::LocalProtection)?);
            return Ok(len);
        }
        let elements = || gather::elements(self.send.ring(), context);
        let span = |sge: crate::request::Sge| {
            mem.check(self.pd, sge.lkey, sge.addr, sge.len as usize, right)
                .map_err(|_| Status::LocalProtection)
        };
        elements().try_for_each(|sge| span(sge).map(|_| ()))?;
        let mut offset = 0;
        for sge in elements() {
            let span = span(sge)?;
            each(offset, &span);
            offset += span.len();
        }
        Ok(len)
    }

    pub(super) fn calculate(&self, mem: Mem<'_>, wqe: &Wqe, calculation: Calculation) -> Result<u32, Status> {
        if wqe.len != 8 {
            return Err(Status::LocalQpOperation);
        }
        if !wqe.remote.is_multiple_of(8) {
            return Err(Status::RemoteInvalidRequest);
        }
        let target = self.remote(mem, (wqe.remote, wqe.rkey()), 8, Access::REMOTE_ATOMIC)?;
        let old = calculation.apply(&target, wqe.swap_add).map_err(|_| Status::RemoteInvalidRequest)?;
        self.bring_back(mem, wqe, old)
    }

    /// The old value of an atomic.
    pub(super) fn bring_back(&self, mem: Mem<'_>, wqe: &Wqe, old: u64) -> Result<u32, Status> {
        let target = mem.check(self.pd, wqe.lkey(), wqe.local, 8, Access::LOCAL_WRITE);
        target.map_err(|_| Status::LocalProtection)?.write(&old.to_ne_bytes());
        Ok(8)
    }

    pub(super) fn send_here(
        &mut self,
        mem: Mem<'_>,
        context: &WqeContext,
        notice: Notice,
        shared: &mut Shared,
    ) -> Result<u32, Status> {
        let receive = self.receive.take().ok_or(Status::RnrRetryExceeded)?;
        let mut bytes = [0; PIECE];
        let (mut offset, mut delivered) = (0, Ok(()));
        while offset < notice.len && delivered.is_ok() {
            let piece = &mut bytes[..PIECE.min((notice.len - offset) as usize)];
            if !gather::gather_outlined(mem, self.pd, self.send.ring(), context, offset, piece) {
                // It never leaves; what it had taken is flushed.
                self.current = Some(receive);
                return Err(Status::LocalProtection);
            }
            delivered = gather::deliver_outlined(mem, self.pd, &self.receive, &receive, offset, piece);
            offset += piece.len() as u32;
        }
        if let Err(too_long) = delivered {
            let outcome = self.undelivered(&receive, too_long, shared);
            return Err(refused(outcome));
        }
        self.notify(mem, &receive, &notice, shared).map(|()| notice.len)
    }

    /// The receive work request that a message took ends.
    pub(super) fn notify(
        &mut self,
        mem: Mem<'_>,
        receive: &Receive,
        notice: &Notice,
        shared: &mut Shared,
    ) -> Result<(), Status> {
        match self.finish(mem, receive, notice, shared) {
            Outcome::Done => Ok(()),
            outcome => Err(refused(outcome)),
        }
    }
}

/// How a work request ends that the other end has answered so.
pub(super) fn refused(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Nak(NakCode::INVALID_REQUEST) => Status::RemoteInvalidRequest,
        Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR) => Status::RemoteAccess,
        Outcome::NotReady => Status::RnrRetryExceeded,
        _ => Status::RemoteOperation,
    }
}
