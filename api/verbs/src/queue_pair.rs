//! Queue pairs. The state is part of the type, so the compiler rejects a send on a queue pair that is not
//! connected.

use remora_host::connect::{Agreement, Answered, ConnectError, Request, SetupConnection};
use remora_memory::ForkMark;
use remora_nic::{
    AddressVector, Command, Fetching, Modify, QueuePairInit, ReceiveRequest, Receives, Ring, SendQueue,
    Service, Target, WorkRequest, prism, wqe,
};
use remora_transport::state::State;
use remora_wire::Qpn;
use std::marker::PhantomData;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use crate::completion_queue::Shared as Cq;
use crate::qp_handle::QpHandle;
use crate::{CompletionQueue, CreateError, PostError, ProtectionDomain, Srq};

mod chains;
mod incoming;
mod kept;
mod options;
mod requests;
pub(crate) use incoming::Incoming;
pub(crate) use kept::QpNote;
pub(crate) use options::Own;
pub use options::QpOptions;
pub(crate) use requests::with_head;

/// The state of a queue pair that is not connected. It accepts receive work requests only.
#[derive(Debug)]
pub enum Init {}

/// The state of a connected queue pair: RTS, or ERR after a failure, where all posted work is flushed.
#[derive(Debug)]
pub enum Ready {}

/// A queue pair of a connected service: reliable, or unreliable ([`ProtectionDomain::create_unreliable_qp`]).
///
/// A queue pair cannot send before it is connected, because sending is a method of the connected type only:
///
/// ```compile_fail,E0599
/// # use remora_verbs::{Device, QpOptions, work};
/// let context = Device::shm().open().unwrap();
/// let domain = context.alloc_pd().unwrap();
/// let cq = context.create_cq(16).unwrap();
/// let mut pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
/// pair.post_send(&work::nop(1)).unwrap(); // error: not in the Ready state
/// ```
///
/// A queue pair cannot be connected twice:
///
/// ```compile_fail,E0382
/// # use remora_verbs::{Device, QpOptions};
/// # let context = Device::shm().open().unwrap();
/// # let domain = context.alloc_pd().unwrap();
/// # let cq = context.create_cq(16).unwrap();
/// let pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
/// let first = pair.connect("127.0.0.1:7471");
/// let second = pair.connect("127.0.0.1:7472"); // error: moved
/// ```
#[derive(Debug)]
pub struct QueuePair<S = Ready> {
    inner: Inner,
    state: PhantomData<fn() -> S>,
}

#[derive(Debug)]
struct Inner {
    handle: QpHandle,
    fork: ForkMark,
    send: SendQueue,
    receive: Incoming,
    receive_cq: Arc<Cq>,
    send_cq: Arc<Cq>,
    _domain: ProtectionDomain,
}

impl Inner {
    fn new(
        handle: QpHandle,
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        send_ring: Ring,
        receive: Incoming,
    ) -> Inner {
        Inner {
            fork: domain.context().fork(),
            send: handle.options.send_side(send_ring),
            handle,
            receive,
            receive_cq: Arc::clone(receive_cq.shared()),
            send_cq: Arc::clone(send_cq.shared()),
            _domain: domain.clone(),
        }
    }
}

/// Returns the parts of a queue pair with a send queue: the attributes for the NIC, and the program's rings.
pub(crate) fn parts(
    domain: &ProtectionDomain,
    send_cq: &CompletionQueue,
    receive_cq: &CompletionQueue,
    service: Service,
    srq: Option<&Srq>,
    options: &QpOptions,
) -> Result<(QueuePairInit, Ring, Incoming), CreateError> {
    options.check(Own::of(service, srq.is_some()))?;
    domain.context().refuse_child()?;
    let send_cq = send_cq.shared();
    let receive_cq = receive_cq.shared();
    if !send_cq.context.is(domain.context()) || !receive_cq.context.is(domain.context()) {
        return Err(CreateError::OtherContext);
    }
    let engine = &send_cq.engine;
    let elsewhere = srq.is_some_and(|srq| !srq.shared().engine.is(engine));
    if elsewhere || !engine.is(&receive_cq.engine) {
        return Err(CreateError::DifferentEngines);
    }
    // The longest work request always fits. Only a recycled ring has exactly the slots of its program.
    let least = if options.fetching == Fetching::Recycled { 1 } else { wqe::MAX_SLOTS as u32 };
    let (send_ring, send_part) = engine.queue(options.max_send_wr.max(least))?;
    let (receives, receive) = match (srq, service) {
        (Some(srq), _) => (Receives::Shared(srq.shared().number), Incoming::Shared(Arc::clone(srq.shared()))),
        (None, Service::XrcInitiator) => (Receives::None, Incoming::None),
        (None, _) => {
            let slots = options.max_recv_wr.max(1) * remora_nic::stride(options.max_recv_sge) as u32;
            let (ring, part) = engine.queue(slots)?;
            let own = options.receive_side(ring);
            (Receives::Own { ring: part, max_sge: options.max_recv_sge }, Incoming::Own(own))
        }
    };
    let init = QueuePairInit {
        service,
        pd: domain.pd(),
        send_ring: send_part,
        receives,
        send_cq: send_cq.number,
        receive_cq: receive_cq.number,
        signal_all: options.signal_all,
        fetching: options.fetching,
    };
    Ok((init, send_ring, receive))
}

impl QueuePair<Init> {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        service: Service,
        srq: Option<&Srq>,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        let (init, send_ring, receive) = parts(domain, send_cq, receive_cq, service, srq, options)?;
        let engine = &send_cq.shared().engine;
        if options.prism {
            engine.use_wide()?;
        }
        let handle = QpHandle::new(domain.context(), engine, service, options, Command::CreateQp(init))?;
        let inner = Inner::new(handle, domain, send_cq, receive_cq, send_ring, receive);
        Ok(QueuePair { inner, state: PhantomData })
    }

    /// Connects to a queue pair of the [`Listener`](crate::Listener) at `address`.
    ///
    /// # Errors
    /// [`ConnectError`], whose text names the remedy. The queue pair is dropped.
    pub fn connect(mut self, address: impl ToSocketAddrs) -> Result<QueuePair<Ready>, ConnectError> {
        self.inner.handle.connect(address)?;
        let pair = self.ready();
        pair.leave_note()?;
        Ok(pair)
    }

    /// Answers a connection request with this queue pair; see
    /// [`ConnectRequest::answer`](crate::ConnectRequest::answer).
    pub(crate) fn answer(mut self, request: Request) -> Result<(QueuePair<Ready>, Answered), ConnectError> {
        let answered = self.inner.handle.answer(request)?;
        Ok((self.ready(), answered))
    }

    /// Connects two queue pairs of this process, of one context or of two contexts with the same kind of
    /// port.
    ///
    /// # Errors
    /// [`ConnectError`]. Both queue pairs are dropped.
    pub fn connect_pair(
        mut first: QueuePair<Init>,
        mut second: QueuePair<Init>,
    ) -> Result<(QueuePair<Ready>, QueuePair<Ready>), ConnectError> {
        QpHandle::connect_pair(&mut first.inner.handle, &mut second.inner.handle)?;
        let pair = (first.ready(), second.ready());
        pair.0.leave_note()?;
        pair.1.leave_note()?;
        Ok(pair)
    }

    pub(crate) fn handle_mut(&mut self) -> &mut QpHandle {
        &mut self.inner.handle
    }

    pub(crate) fn ready(self) -> QueuePair<Ready> {
        QueuePair { inner: self.inner, state: PhantomData }
    }
}

impl Inner {
    #[inline]
    fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.refuse_child()?;
        self.receive.post(request, || self.handle.ring())
    }

    #[inline]
    fn refuse_child(&self) -> Result<(), PostError> {
        if self.fork.is_child() { Err(PostError::Forked) } else { Ok(()) }
    }

    #[inline]
    fn push(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.send.push(request).map_err(|error| self.why(error))
    }

    /// Returns the error for a work request that was not posted. A queue may be full because the NIC has
    /// failed and no longer empties it.
    #[cold]
    fn why(&self, error: remora_nic::PostError) -> PostError {
        let failed = error == remora_nic::PostError::QueueFull && self._domain.context().has_failed();
        if failed { PostError::Failed } else { PostError::Queue(error) }
    }

    /// Publishes the filled slots and rings the doorbell. In a signal handler that interrupted a call on the
    /// engine, nothing is posted.
    #[inline]
    fn publish_and_ring(&mut self) -> Result<(), PostError> {
        let before = self.send.published();
        if self.send.publish()
            && let Err(reentered) = self.handle.ring()
        {
            self.send.withdraw(before);
            return Err(reentered.into());
        }
        Ok(())
    }
}

impl QueuePair<Ready> {
    /// Posts a send work request. Its packets leave at once, as far as the window allows.
    ///
    /// # Errors
    /// `Queue` with the reason why the send queue refuses the request; nothing is posted then. A request that
    /// fails later reports its error by its completion.
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        self.inner.push(request)?;
        self.inner.publish_and_ring()
    }

    /// Posts a PRISM operation. If the two sides did not agree on PRISM ([`QpOptions::prism`]), an operation
    /// other than a plain verb ends with [`Status::LocalQpOperation`](crate::Status::LocalQpOperation).
    ///
    /// If the status of the completion is success, its `outcome` field holds the [`Verdict`](prism::Verdict).
    ///
    /// # Errors
    /// The errors of [`post_send`](QueuePair::post_send).
    pub fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let mut batch = self.batch()?;
        batch.post_prism(request)
    }

    /// Posts a send work request of an XRC initiator, for the peer's shared receive queue with number `srq`.
    #[inline]
    pub(crate) fn post_send_to_srq(&mut self, request: &WorkRequest<'_>, srq: u32) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        let target = Target::Srq(Qpn::new(srq & 0x00ff_ffff));
        self.inner.send.push_to(request, &target).map_err(|error| self.inner.why(error))?;
        self.inner.publish_and_ring()
    }

    /// Begins a batch of work requests, which the NIC sees together, with one doorbell.
    ///
    /// ```
    /// # use remora_verbs::{Device, EMPTY, QpOptions, QueuePair, work};
    /// # let context = Device::shm().open()?;
    /// # let domain = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(64)?;
    /// # let pair = || domain.create_qp(&cq, &cq, &QpOptions::default());
    /// # let (mut a, _b) = QueuePair::connect_pair(pair()?, pair()?)?;
    /// let mut batch = a.batch()?;
    /// for id in 0..8 {
    ///     batch.post_send(&work::nop(id))?;
    /// }
    /// batch.ring();
    /// # let mut done = [EMPTY; 8];
    /// # assert_eq!(cq.wait(&mut done, std::time::Duration::from_secs(1))?, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Forked` in a forked child; `Reentered` in a signal handler that interrupted a call on this NIC.
    #[inline]
    pub fn batch(&mut self) -> Result<Batch<'_>, PostError> {
        self.inner.refuse_child()?;
        if self.inner.handle.engine.has_caller() {
            return Err(PostError::Reentered);
        }
        Ok(Batch { inner: &mut self.inner })
    }

    /// Posts all of `requests` with one doorbell.
    ///
    /// # Errors
    /// The index of the first request that was refused, and the reason. The requests before it are posted (as
    /// by `ibv_post_send`).
    #[inline]
    pub fn post_send_batch(&mut self, requests: &[WorkRequest<'_>]) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch().map_err(|error| (0, error))?;
        for (index, request) in requests.iter().enumerate() {
            batch.post_send(request).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// The private data that the peer's program sent when the two connected.
    pub fn peer_private_data(&self) -> &[u8] {
        self.agreement().map_or(&[], |agreement| &agreement.remote.private_data)
    }

    /// The parameters that the two sides agreed on; `None` for a loopback queue pair.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.inner.handle.agreement.as_ref()
    }

    /// Returns whether the peer's queue pair, or its process, is gone. That is known at once if both sides
    /// keep the connection of the set-up ([`QpOptions::lasting`]). Otherwise, and if a machine or a network
    /// fails, only a request that is not acknowledged shows it.
    pub fn is_peer_gone(&self) -> bool {
        self.connection().is_some_and(SetupConnection::has_ended)
    }

    /// The connection of the set-up, if it is kept. Its descriptor is readable when the peer is gone.
    pub fn connection(&self) -> Option<&SetupConnection> {
        self.inner.handle.connection.as_ref()
    }

    /// Stores the connection of the set-up with the queue pair.
    pub(crate) fn keep(&mut self, connection: Option<SetupConnection>) -> Result<(), ConnectError> {
        self.inner.handle.connection = connection;
        self.leave_note()
    }

    /// The address of the peer, for bringing the queue pair up again by [`modify`](QueuePair::modify).
    pub fn address_vector(&self) -> Option<AddressVector> {
        self.agreement().map(|agreement| self.inner.handle.address_vector(agreement))
    }

    /// Moves the queue pair to the error state: posted work, and work posted later, completes as flushed.
    pub fn fail(&mut self) {
        self.inner.handle.fail();
    }

    /// Changes attributes, or the state (SQD and back), as `ibv_modify_qp` does.
    ///
    /// # Errors
    /// `Modify` if the transition or a value is not allowed; `Daemon` if it is a queue pair of a daemon, and
    /// the change has the address vector of another queue pair.
    pub fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        self.inner.handle.modify(change)
    }

    /// The state and the attributes that were set so far (`ibv_query_qp`).
    pub fn query(&self) -> Modify {
        self.inner.handle.query()
    }
}

impl<S> QueuePair<S> {
    /// The queue pair's number, 24 bits, which the peer's packets carry.
    pub fn number(&self) -> u32 {
        self.inner.handle.number.get()
    }

    /// The queue pair's state in the NIC.
    pub fn state(&self) -> State {
        self.inner.handle.state()
    }

    /// The private data that is sent to the peer's program when the two connect
    /// ([`QpOptions::private_data`]).
    pub fn private_data(&self) -> &[u8] {
        &self.inner.handle.options.private_data
    }

    /// The transport service: RC, UC, UD or XRC.
    pub fn service(&self) -> Service {
        self.inner.handle.service
    }

    /// Posts a receive work request. It may be posted before connecting, so that it is ready for the first
    /// message.
    ///
    /// # Errors
    /// `Queue` with the reason why the receive queue refuses the request; `NoReceiveQueue`; `Forked` in a
    /// forked child.
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.inner.post_recv(request)
    }

    /// The engine that serves the queue pair, counted from 0.
    pub fn engine(&self) -> usize {
        self.inner.handle.engine.number()
    }
}

#[cfg(test)]
impl<S> QueuePair<S> {
    /// The memory of both queues.
    pub(crate) fn rings(&self) -> [&Ring; 2] {
        let Incoming::Own(own) = &self.inner.receive else { panic!("the queue pair has a receive queue") };
        [self.inner.send.ring(), own.ring()]
    }

    /// Rings the doorbell without having posted anything.
    pub(crate) fn ring(&self) {
        self.inner.handle.ring().unwrap();
    }
}

/// Send work requests that the NIC will see together, when [`ring`](Batch::ring) is called or the batch is
/// dropped.
#[derive(Debug)]
pub struct Batch<'a> {
    inner: &'a mut Inner,
}

impl Batch<'_> {
    /// Adds a send work request to the batch.
    ///
    /// # Errors
    /// The errors of [`QueuePair::post_send`]. The requests already in the batch stay.
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        // The program may have forked while the batch was open.
        self.inner.refuse_child()?;
        self.inner.push(request)
    }

    /// Adds a PRISM operation to the batch.
    ///
    /// # Errors
    /// The errors of [`QueuePair::post_prism`]. The requests already in the batch stay.
    pub fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        self.inner.send.push_prism(request).map_err(|error| self.inner.why(error))
    }

    /// Posts a receive work request while the batch is open.
    ///
    /// # Errors
    /// The errors of [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.inner.post_recv(request)
    }

    /// Rings the doorbell once for the whole batch.
    #[inline]
    pub fn ring(self) {}
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.inner.fork.is_child() {
            // Beginning the batch checked that the thread is not inside the engine, and that is still so.
            let _ = self.inner.publish_and_ring();
        }
    }
}
