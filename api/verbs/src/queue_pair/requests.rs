//! StRoM on a queue pair: requests to the kernels of the peer's NIC, and kernels of this NIC on its packets.

use remora_nic::kernel::{Invocation, Place};
use remora_nic::wqe::{MAX_INLINE, SLOT};
use remora_nic::{Command, NicError, Operation, ReceiveRequest, Sge, WorkRequest};
use remora_wire::Qpn;
use remora_wire::strom::HEAD_LEN;

use super::{QueuePair, Ready};
use crate::{CreateError, KernelHandle, PostError, QueueError, work};

/// Calls `then` with the inline bytes of a request: the address for the answer, followed by the parameters.
pub(crate) fn with_head<T>(
    place: &Place,
    params: &[u8],
    then: impl FnOnce(&[u8]) -> Result<T, PostError>,
) -> Result<T, PostError> {
    // Most parameters are short, and clearing a buffer for the longest would take longer than all the rest.
    match HEAD_LEN + params.len() <= SLOT {
        true => with_head_in(&mut [0; SLOT], place, params, then),
        false => with_head_in(&mut [0; MAX_INLINE], place, params, then),
    }
}

#[inline]
fn with_head_in<T>(
    bytes: &mut [u8],
    place: &Place,
    params: &[u8],
    then: impl FnOnce(&[u8]) -> Result<T, PostError>,
) -> Result<T, PostError> {
    let len = HEAD_LEN + params.len();
    let rest = bytes.get_mut(HEAD_LEN..len).ok_or(PostError::Queue(QueueError::TooMuchInline))?;
    rest.copy_from_slice(params);
    bytes[..HEAD_LEN].copy_from_slice(&place.emit());
    then(&bytes[..len])
}

impl QueuePair<Ready> {
    /// Sends a request to the kernel of the peer's NIC that serves `opcode` (the paper's `postRpc`). The
    /// answer is written to `place` by a WRITE with immediate data, which takes a receive work request of
    /// this queue pair. The parameters are copied at once, and must fit the queue pair's `max_inline` with 16
    /// bytes before them. Longer parameters, up to the path MTU, are placed in memory after [`Place::emit`]
    /// and sent by [`work::rpc`].
    ///
    /// The answer carries `tag`, 24 bits. [`AnswerBuffers`](crate::AnswerBuffers) assigns tags.
    ///
    /// # Errors
    /// The errors of [`post_send`](QueuePair::post_send). If the two sides did not agree on StRoM, the
    /// request ends with [`Status::LocalQpOperation`](crate::Status::LocalQpOperation).
    pub fn post_rpc(
        &mut self,
        id: u64,
        opcode: u64,
        tag: u32,
        place: &Place,
        params: &[u8],
    ) -> Result<(), PostError> {
        with_head(place, params, |bytes| {
            self.post_send(&work::inline(id, Operation::Rpc { opcode, tag }, bytes))
        })
    }

    /// Sends bytes to a kernel of the peer's NIC (the paper's `postRpcWrite`). The answer goes to the address
    /// given by the last [`post_rpc`](QueuePair::post_rpc) to that kernel.
    ///
    /// # Errors
    /// The errors of [`post_rpc`](QueuePair::post_rpc).
    pub fn post_rpc_write(&mut self, id: u64, opcode: u64, tag: u32, local: &[Sge]) -> Result<(), PostError> {
        self.post_send(&work::rpc_write(id, opcode, tag, local))
    }

    /// Attaches a kernel to the peer's WRITEs: it sees them packet by packet, each packet once, after the
    /// packet was placed in memory. With `None`, no kernel sees them. Over IRN the packets come in the order
    /// of arrival. The peer need not know of the kernel.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Nic(Unknown)` if the kernel was removed, or belongs to another domain or
    /// engine; `Nic(NotThisService)`.
    pub fn attach(&self, kernel: Option<&KernelHandle>) -> Result<(), CreateError> {
        self.inner._domain.context().refuse_child()?;
        let engine = &self.inner.handle.engine;
        if kernel.is_some_and(|kernel| !kernel.is_on(engine)) {
            return Err(CreateError::Nic(NicError::Unknown));
        }
        let number = kernel.map(KernelHandle::number);
        engine.ask(Command::AttachKernel { qp: Qpn::new(self.number()), kernel: number })
    }

    /// Makes a kernel check the answers to the peer's READs before they are sent; each READ then has one
    /// packet at most. With `None`, no kernel checks them. The peer need not know of the kernel.
    ///
    /// With [`Consistency`](crate::kernel::Consistency), a plain READ returns an object only if it is
    /// consistent with the CRC64 that follows it. If the kernel rejects an answer, or cannot check it because
    /// it was removed, the connection ends, and the peer sees an error of the responder,
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
    /// `Forked` in a forked child; `Nic(Unknown)` if the kernel was removed, or belongs to another domain or
    /// engine; `Nic(NotThisService)` if the queue pair is not RC or speaks PRISM, or if the kernel does not
    /// check answers.
    pub fn check_reads(&self, kernel: Option<&KernelHandle>) -> Result<(), CreateError> {
        self.inner._domain.context().refuse_child()?;
        let engine = &self.inner.handle.engine;
        if kernel.is_some_and(|kernel| !kernel.is_on(engine)) {
            return Err(CreateError::Nic(NicError::Unknown));
        }
        let number = kernel.map(KernelHandle::number);
        engine.ask(Command::CheckReads { qp: Qpn::new(self.number()), kernel: number })
    }

    /// Passes a message, or a piece of one, to a kernel of this NIC, as if the peer had sent it. The kernel's
    /// WRITEs and answers go to the peer. Both sides must have agreed on StRoM.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Nic(Busy)` if no lane is free or four pieces wait for it: try later;
    /// `Nic(Unknown)` if there is no such kernel; `Nic(TooSmall)` if the piece has more bytes than a packet
    /// ([`PACKET`](crate::kernel::PACKET)), or than are left of the message; `Nic(NotThisService)`.
    pub fn invoke(&self, invocation: &Invocation) -> Result<(), CreateError> {
        self.inner._domain.context().refuse_child()?;
        let command = Command::InvokeKernel { qp: Qpn::new(self.number()), invocation: invocation.clone() };
        self.inner.handle.engine.ask(command)
    }

    /// Posts a request and the receive work request for its answer: both, or neither.
    pub(crate) fn post_asking(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        if self.inner.handle.engine.has_caller() {
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
