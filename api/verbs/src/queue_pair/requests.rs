//! StRoM on a queue pair: requests to the kernels of the peer's NIC, and own kernels on its packets.

use remora_nic::kernel::{Invocation, Place};
use remora_nic::wqe::{MAX_INLINE, SLOT};
use remora_nic::{NicError, Operation, ReceiveRequest, Sge, WorkRequest};
use remora_wire::strom::HEAD_LEN;

use super::{QueuePair, Ready};
use crate::{CreateError, KernelHandle, PostError, QueueError, work};

/// Calls `then` with a request's inline bytes: the address for the answer, then the parameters.
pub(crate) fn with_head<T>(
    to: &Place,
    params: &[u8],
    then: impl FnOnce(&[u8]) -> Result<T, PostError>,
) -> Result<T, PostError> {
    // Most are short, and clearing a buffer for the longest would take longer than all the rest.
    match HEAD_LEN + params.len() <= SLOT {
        true => with_head_in(&mut [0; SLOT], to, params, then),
        false => with_head_in(&mut [0; MAX_INLINE], to, params, then),
    }
}

#[inline]
fn with_head_in<T>(
    bytes: &mut [u8],
    to: &Place,
    params: &[u8],
    then: impl FnOnce(&[u8]) -> Result<T, PostError>,
) -> Result<T, PostError> {
    let len = HEAD_LEN + params.len();
    let rest = bytes.get_mut(HEAD_LEN..len).ok_or(PostError::Queue(QueueError::TooMuchInline))?;
    rest.copy_from_slice(params);
    bytes[..HEAD_LEN].copy_from_slice(&to.emit());
    then(&bytes[..len])
}

impl QueuePair<Ready> {
    /// Asks the kernel of the peer's NIC that serves `opcode` (the paper's `postRpc`). Its answer goes to
    /// `to`, by a WRITE with immediate data that takes a receive work request here. The parameters are copied
    /// at once, and must fit the queue pair's `max_inline` with 16 bytes before them. Longer ones, up to the
    /// path MTU, stand in memory behind [`Place::emit`] and go by [`work::rpc`].
    ///
    /// `tag`, 24 bits, comes back with the answer; [`AnswerBuffers`](crate::AnswerBuffers) gives tags out.
    ///
    /// # Errors
    /// As [`post_send`](QueuePair::post_send). Where the two sides did not agree on StRoM, the request ends
    /// with [`Status::LocalQpOperation`](crate::Status::LocalQpOperation).
    pub fn post_rpc(
        &mut self,
        id: u64,
        opcode: u64,
        tag: u32,
        to: &Place,
        params: &[u8],
    ) -> Result<(), PostError> {
        with_head(to, params, |bytes| {
            self.post_send(&work::inline(id, Operation::Rpc { opcode, tag }, bytes))
        })
    }

    /// Gives bytes to a kernel of the peer's NIC (the paper's `postRpcWrite`). Its answer goes to the address
    /// of the last [`post_rpc`](QueuePair::post_rpc) to it.
    ///
    /// # Errors
    /// As [`post_rpc`](QueuePair::post_rpc).
    pub fn post_rpc_write(&mut self, id: u64, opcode: u64, tag: u32, local: &[Sge]) -> Result<(), PostError> {
        self.post_send(&work::rpc_write(id, opcode, tag, local))
    }

    /// From now on a kernel sees the peer's WRITEs, packet by packet and each of them once, after it was
    /// placed in memory. With `None`, no kernel sees them. Over IRN they come as they arrive. The peer need
    /// know nothing of it.
    ///
    /// # Errors
    /// `Forked`; `Nic(Unknown)`: the kernel is gone, or of another domain or engine; `Nic(NotThisService)`.
    pub fn attach(&self, kernel: Option<&KernelHandle>) -> Result<(), CreateError> {
        let local = self.inner.backend.own()?;
        local.context.refuse_child()?;
        if kernel.is_some_and(|kernel| !kernel.is_on(&local.engine)) {
            return Err(CreateError::Nic(NicError::Unknown));
        }
        let number = kernel.map(KernelHandle::number);
        Ok(local.engine.control(|control| control.nic.attach_kernel(local.number, number))?)
    }

    /// From now on a kernel checks the answers of the peer's READs before they leave; each READ has one
    /// packet at most. With `None`, no kernel does. The peer need know nothing of it.
    ///
    /// With [`Consistency`](crate::kernel::Consistency) a plain READ returns an object whole if its CRC64
    /// stands behind it. An answer that the kernel does not let leave, or cannot check because it was
    /// removed, ends the connection. The peer sees an error of the responder's,
    /// [`Status::RemoteOperation`](crate::Status::RemoteOperation).
    /// ```
    /// use remora_verbs::kernel::{Consistency, Kernel, crc64};
    /// use remora_verbs::{Access, Device, EMPTY, KernelOptions, QpOptions, QueuePair, work};
    ///
    /// let context = Device::shm().open()?;
    /// let domain = context.alloc_pd()?;
    /// let mut cq = context.create_cq(16)?;
    /// let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    /// memory.write(0, b"seal")?;
    /// memory.write(4, &crc64(b"seal").to_le_bytes())?;
    ///
    /// let lanes: Vec<Box<dyn Kernel>> = vec![Box::new(Consistency::default())];
    /// let whole = domain.deploy_kernel(lanes, &KernelOptions::default())?;
    /// let options = QpOptions::default();
    /// let (a, b) = (domain.create_qp(&cq, &cq, &options)?, domain.create_qp(&cq, &cq, &options)?);
    /// let (mut client, server) = QueuePair::connect_pair(a, b)?;
    /// server.check_reads(Some(&whole))?;
    ///
    /// client.post_send(&work::read(1, &[memory.sge(64, 4)], memory.remote(0)))?;
    /// let mut done = [EMPTY];
    /// cq.wait(&mut done, std::time::Duration::from_secs(1))?;
    /// assert_eq!(&memory.get::<[u8; 4]>(64)?, b"seal");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Forked`; `Nic(Unknown)`: the kernel is gone, or of another domain or engine; `Nic(NotThisService)`:
    /// the queue pair is not of RC or speaks PRISM, or the kernel does not judge.
    pub fn check_reads(&self, kernel: Option<&KernelHandle>) -> Result<(), CreateError> {
        let local = self.inner.backend.own()?;
        local.context.refuse_child()?;
        if kernel.is_some_and(|kernel| !kernel.is_on(&local.engine)) {
            return Err(CreateError::Nic(NicError::Unknown));
        }
        let number = kernel.map(KernelHandle::number);
        Ok(local.engine.control(|control| control.nic.check_reads(local.number, number))?)
    }

    /// Hands a kernel of this NIC a message, or a piece of one, as if the peer had sent it. Its WRITEs and
    /// answers go to the peer. Both sides have agreed on StRoM.
    ///
    /// # Errors
    /// `Forked`; `Nic(Busy)`: no lane, or four pieces wait for it, try again; `Nic(Unknown)`: no such kernel;
    /// `Nic(TooSmall)`: more bytes than a packet's worth ([`PACKET`](crate::kernel::PACKET)), or than are
    /// left; `Nic(NotThisService)`.
    pub fn invoke(&self, what: &Invocation<'_>) -> Result<(), CreateError> {
        let local = self.inner.backend.own()?;
        local.context.refuse_child()?;
        Ok(local.engine.control(|control| control.nic.invoke_kernel(control.mem, local.number, what))?)
    }

    /// Posts a request and the receive for its answer: both, or neither.
    pub(crate) fn post_asking(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        if self.inner.backend.has_caller() {
            return Err(PostError::Reentered);
        }
        self.inner.push(request)?;
        if let Err(error) = self.inner.post_recv(&ReceiveRequest { id: 0, sges: &[] }) {
            self.inner.send.take_back();
            return Err(error);
        }
        self.inner.publish_and_ring()
    }
}
