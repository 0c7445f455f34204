//! Queue pairs. Their state is part of their type: one that is not connected cannot send.

use remora_host::connect::{Agreement, Answered, ConnectError, Request, SetupConnection};
use remora_memory::ForkMark;
use remora_nic::{
    AddressVector, Fetching, Modify, QueuePairInit, ReceiveRequest, Receives, Ring, Service, Target,
    WorkRequest, prism, wqe,
};
use remora_transport::state::State;
use remora_wire::Qpn;
use std::marker::PhantomData;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use crate::completion_queue::Shared as Cq;
use crate::local_qp::LocalQp;
use crate::{CompletionQueue, CreateError, PostError, ProtectionDomain, Srq};

mod chains;
mod incoming;
mod lent;
mod options;
mod qp_backend;
mod queues;
mod requests;
pub(crate) use incoming::Incoming;
pub(crate) use options::Own;
pub use options::QpOptions;
use qp_backend::QpBackend;
pub(crate) use queues::{ReceiveSide, SendSide};
pub(crate) use requests::with_head;

/// The state of a queue pair that is not connected yet: receives may be posted.
#[derive(Debug)]
pub enum Init {}

/// The state of a connected queue pair (RTS, or ERR after a failure, where everything posted is flushed).
#[derive(Debug)]
pub enum Ready {}

/// A queue pair of a connected service: reliable, or unreliable ([`ProtectionDomain::create_unreliable_qp`]).
///
/// It cannot send before it is connected, because only connecting gives a queue pair that can:
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
/// Nor can it be connected twice:
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
    backend: QpBackend,
    fork: ForkMark,
    send: SendSide,
    receive: Incoming,
    receive_cq: Arc<Cq>,
    send_cq: Arc<Cq>,
    _domain: ProtectionDomain,
}

impl Inner {
    /// A queue pair of this process's own NIC.
    fn own(
        local: LocalQp,
        domain: &ProtectionDomain,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        send_ring: Ring,
        receive: Incoming,
        options: &QpOptions,
    ) -> Inner {
        Inner {
            backend: QpBackend::Own(local),
            fork: domain.context().fork(),
            send: options.send_side(send_ring),
            receive,
            receive_cq: Arc::clone(receive_cq),
            send_cq: Arc::clone(send_cq),
            _domain: domain.clone(),
        }
    }
}

/// The parts of a queue pair with a send queue: the NIC's attributes, and the rings of the program.
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
    let (send_cq, receive_cq) = (send_cq.shared(), receive_cq.shared());
    if !send_cq.context.is(domain.context()) || !receive_cq.context.is(domain.context()) {
        return Err(CreateError::OtherContext);
    }
    let engine = send_cq.engine()?;
    let elsewhere = srq.is_some_and(|srq| !Arc::ptr_eq(&srq.shared().engine, engine));
    if elsewhere || !Arc::ptr_eq(engine, receive_cq.engine()?) {
        return Err(CreateError::DifferentEngines);
    }
    // The longest work request always fits; only a recycled ring has exactly the slots of its program.
    let least = if options.fetching == Fetching::Recycled { 1 } else { wqe::MAX_SLOTS as u32 };
    let send_ring = domain.context().ring(options.max_send_wr.max(least))?;
    let (receives, receive) = match (srq, service) {
        (Some(srq), _) => (Receives::Shared(srq.shared().number), Incoming::Shared(Arc::clone(srq.shared()))),
        (None, Service::XrcInitiator) => (Receives::None, Incoming::None),
        (None, _) => {
            let slots = options.max_recv_wr.max(1) * remora_nic::stride(options.max_recv_sge) as u32;
            let ring = domain.context().ring(slots)?;
            let own = options.receive_side(ring.clone());
            (Receives::Own { ring, max_sge: options.max_recv_sge }, Incoming::Own(own))
        }
    };
    let init = QueuePairInit {
        service,
        pd: domain.pd()?,
        send_ring: send_ring.clone(),
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
        if let Some(daemon) = domain.context().daemon() {
            let lent = matches!(service, Service::Rc | Service::Uc) && srq.is_none();
            let lent = if lent { Ok(daemon) } else { Err(CreateError::NotByDaemon) };
            return QueuePair::of_daemon(lent?, domain, send_cq, receive_cq, service, options);
        }
        let (init, send_ring, receive) = parts(domain, send_cq, receive_cq, service, srq, options)?;
        if options.prism {
            domain.context().adapter()?.table().use_wide()?;
        }
        let (send_cq, receive_cq) = (send_cq.shared(), receive_cq.shared());
        let local =
            LocalQp::new(domain.context(), send_cq.engine()?, service, options, |nic| nic.create_qp(init))?;
        let inner = Inner::own(local, domain, send_cq, receive_cq, send_ring, receive, options);
        Ok(QueuePair { inner, state: PhantomData })
    }

    /// Connects it to the queue pair of a [`Listener`](crate::Listener) at `address`.
    ///
    /// # Errors
    /// [`ConnectError`], whose text has the mend; the queue pair is gone then.
    pub fn connect(mut self, address: impl ToSocketAddrs) -> Result<QueuePair<Ready>, ConnectError> {
        self.inner.backend.connect(address)?;
        Ok(self.ready())
    }

    /// Answers a request with it; see [`ConnectRequest::answer`](crate::ConnectRequest::answer).
    pub(crate) fn answer(mut self, request: Request) -> Result<(QueuePair<Ready>, Answered), ConnectError> {
        let answered = self.inner.backend.answer(request)?;
        Ok((self.ready(), answered))
    }

    /// Connects two queue pairs of this process, of one context or of two with the same kind of port.
    ///
    /// # Errors
    /// [`ConnectError`]; both are gone then.
    pub fn connect_pair(
        mut first: QueuePair<Init>,
        mut second: QueuePair<Init>,
    ) -> Result<(QueuePair<Ready>, QueuePair<Ready>), ConnectError> {
        QpBackend::connect_pair(&mut first.inner.backend, &mut second.inner.backend)?;
        Ok((first.ready(), second.ready()))
    }

    pub(crate) fn local_mut(&mut self) -> Result<&mut LocalQp, ConnectError> {
        self.inner.backend.own_mut()
    }

    pub(crate) fn ready(self) -> QueuePair<Ready> {
        QueuePair { inner: self.inner, state: PhantomData }
    }
}

impl Inner {
    #[inline]
    fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.refuse_child()?;
        self.receive.post(request, || self.backend.ring())
    }

    #[inline]
    fn refuse_child(&self) -> Result<(), PostError> {
        if self.fork.is_child() { Err(PostError::Forked) } else { Ok(()) }
    }

    #[inline]
    fn push(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.send.push(request).map_err(|error| self.why(error))
    }

    /// A queue may be full because the NIC has failed and empties it no more.
    #[cold]
    fn why(&self, error: remora_nic::PostError) -> PostError {
        let failed = error == remora_nic::PostError::QueueFull && self._domain.context().has_failed();
        if failed { PostError::Failed } else { PostError::Queue(error) }
    }

    /// Publishes the filled slots and rings. If the caller is a signal handler that interrupted a call on the
    /// engine, nothing is posted.
    #[inline]
    fn publish_and_ring(&mut self) -> Result<(), PostError> {
        let before = self.send.published();
        if self.send.publish()
            && let Err(reentered) = self.backend.ring()
        {
            self.send.withdraw(before);
            return Err(reentered.into());
        }
        Ok(())
    }
}

impl QueuePair<Ready> {
    /// Posts a send work request; its packets leave at once, up to the window.
    ///
    /// # Errors
    /// `Queue` is the queue's reason to refuse it; nothing is posted then. A request that fails later has its
    /// error in its completion.
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        self.inner.push(request)?;
        self.inner.publish_and_ring()
    }

    /// Posts an operation of PRISM. Where the two sides did not agree on it ([`QpOptions::prism`]), one that
    /// is not a plain verb ends with [`Status::LocalQpOperation`](crate::Status::LocalQpOperation).
    ///
    /// The [`Outcome`](prism::Outcome) is in the completion's `outcome`, if its status is success.
    ///
    /// # Errors
    /// As [`post_send`](QueuePair::post_send).
    pub fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let mut batch = self.batch()?;
        batch.post_prism(request)
    }

    /// Posts a send work request of an XRC initiator, for the peer's shared receive queue of this number.
    #[inline]
    pub(crate) fn post_send_to_srq(&mut self, request: &WorkRequest<'_>, srq: u32) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        let target = Target::Srq(Qpn::new(srq & 0x00ff_ffff));
        self.inner.send.push_to(request, &target).map_err(|error| self.inner.why(error))?;
        self.inner.publish_and_ring()
    }

    /// Begins a batch: its work requests become visible to the NIC together, with one doorbell.
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
    /// `Forked`, `Reentered`.
    #[inline]
    pub fn batch(&mut self) -> Result<Batch<'_>, PostError> {
        self.inner.refuse_child()?;
        if self.inner.backend.has_caller() {
            return Err(PostError::Reentered);
        }
        Ok(Batch { inner: &mut self.inner })
    }

    /// Posts all of `requests` with one doorbell.
    ///
    /// # Errors
    /// The index of the first that was refused, and why; those before it are posted (as by `ibv_post_send`).
    #[inline]
    pub fn post_send_batch(&mut self, requests: &[WorkRequest<'_>]) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch().map_err(|error| (0, error))?;
        for (index, request) in requests.iter().enumerate() {
            batch.post_send(request).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// The private data that the other side's program sent when they connected.
    pub fn peer_private_data(&self) -> &[u8] {
        self.inner.backend.agreement().map_or(&[], |agreement| &agreement.remote.private_data)
    }

    /// The agreement of the two sides.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.inner.backend.agreement()
    }

    /// Has the other side's queue pair gone, or its process? Known at once where both sides keep the
    /// connection of the set-up ([`QpOptions::lasting`]). Otherwise, and where a machine or a network fails,
    /// only a request that is not acknowledged shows it.
    pub fn is_peer_gone(&self) -> bool {
        self.connection().is_some_and(SetupConnection::has_ended)
    }

    /// The connection of the set-up, if it is kept: its descriptor is readable when the peer is gone.
    pub fn connection(&self) -> Option<&SetupConnection> {
        self.inner.backend.connection()
    }

    /// Keeps the connection of the set-up with the queue pair.
    pub(crate) fn keep(&mut self, connection: Option<SetupConnection>) {
        self.inner.backend.keep(connection);
    }

    /// The address of its peer, for bringing it up again by [`modify`](QueuePair::modify).
    pub fn address_vector(&self) -> Option<AddressVector> {
        self.inner.backend.address_vector()
    }

    /// Takes it to the error state: all posted work, and all work posted later, completes as flushed.
    pub fn fail(&mut self) {
        self.inner.backend.fail();
    }

    /// Changes attributes, or the state (SQD and back), as `ibv_modify_qp` does.
    ///
    /// # Errors
    /// The transition, or a value, is not allowed.
    pub fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        self.inner.backend.modify(change)
    }

    /// The attributes that were set so far, and its state (`ibv_query_qp`).
    pub fn query(&self) -> Modify {
        self.inner.backend.query()
    }
}

impl<S> QueuePair<S> {
    /// Its number, 24 bits: the peer's packets name it.
    pub fn number(&self) -> u32 {
        self.inner.backend.number()
    }

    /// Its state in the NIC.
    pub fn state(&self) -> State {
        self.inner.backend.state()
    }

    /// The private data that it sends to the other side's program when they connect
    /// ([`QpOptions::private_data`]).
    pub fn private_data(&self) -> &[u8] {
        &self.inner.backend.options().private_data
    }

    /// The transport service: RC, UC, UD or XRC.
    pub fn service(&self) -> Service {
        self.inner.backend.service()
    }

    /// Posts a receive work request. It may be posted before connecting, so that the first message finds it.
    ///
    /// # Errors
    /// `Queue` is the queue's reason to refuse it.
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.inner.post_recv(request)
    }

    /// The engine that serves it, counted from 0.
    pub fn engine(&self) -> usize {
        self.inner.backend.engine_number()
    }
}

/// Send work requests that become visible to the NIC together: by [`ring`](Batch::ring), or when this is
/// dropped.
#[derive(Debug)]
pub struct Batch<'a> {
    inner: &'a mut Inner,
}

impl Batch<'_> {
    /// Adds a send work request to the batch.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; the others stay.
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        // The program may have forked while the batch was open.
        self.inner.refuse_child()?;
        self.inner.push(request)
    }

    /// Adds an operation of PRISM to the batch.
    ///
    /// # Errors
    /// As [`QueuePair::post_prism`]; the others stay.
    pub fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.refuse_child()?;
        self.inner.send.push_prism(request).map_err(|error| self.inner.why(error))
    }

    /// Posts a receive work request while the batch is open.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`].
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
            // Whoever began the batch was outside of the engine, and so is whoever ends it.
            let _ = self.inner.publish_and_ring();
        }
    }
}
