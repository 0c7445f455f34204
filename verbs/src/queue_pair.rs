//! Queue pairs. Their state is part of their type: what is not connected cannot send.

use host::connect::{Agreement, ConnectError, Side};
use memory::{Access, Bytes};
use nic::wqe::Bounds;
use nic::{
    AddressVector, MAX_RING_SLOTS, Modify, NicError, QueuePairInit, ReceiveRequest, Receives, Ring, Service,
    WorkRequest, wqe,
};
use std::marker::PhantomData;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;
use transport::state::State;
use wire::frame::Route;
use wire::{Psn, Qpn};

use crate::completion_queue::Shared as Cq;
use crate::{CompletionQueue, CreateError, PostError, ProtectionDomain};

mod queues;
use queues::{ReceiveSide, SendSide};

/// The state of a queue pair that is not connected yet: receives may be posted.
#[derive(Debug)]
pub enum Init {}

/// The state of a connected queue pair (RTS, or ERR after a failure, where everything posted is flushed).
#[derive(Debug)]
pub enum Ready {}

/// What a queue pair shall be like. Values are those of `ibv_qp_init_attr` and `ibv_qp_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Send work requests outstanding, at least, if they have one element and no inline data; others take more places:
    /// one more for each two further elements, or for each 64 inline bytes.
    pub max_send_wr: u32,
    /// Receive work requests outstanding, at least.
    pub max_recv_wr: u32,
    /// Elements of a send work request's list, 1 to 30.
    pub max_send_sge: u32,
    /// Elements of a receive work request's list, 1 to 30.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request, 0 to 960.
    pub max_inline: u32,
    /// Every send work request is signaled.
    pub signal_all: bool,
    /// What the peer may do, where the regions allow it as well.
    pub access: Access,
    /// Path MTU in bytes at most: the smallest of this, the peer's and the ports' is taken. 256 to 4096.
    pub path_mtu: u32,
    /// READs and atomics outstanding, as far as the peer can hold them; 0 to 128.
    pub max_rd_atomic: u8,
    /// READs and atomics held for the peer, 0 to 128.
    pub max_dest_rd_atomic: u8,
    /// Local ACK timeout: 4.096 µs × 2^this; 0 waits for ever.
    pub timeout: u8,
    /// Times that a request is sent again before it fails, 0 to 7.
    pub retry_cnt: u8,
    /// Times that a receiver-not-ready is waited for, 0 to 7; 7 is for ever.
    pub rnr_retry: u8,
    /// Code of the time that the peer is asked to wait when no receive is posted, 0 to 31.
    pub min_rnr_timer: u8,
    /// Up to 256 bytes that the program at the other side gets when the queue pair connects.
    pub private_data: Vec<u8>,
    /// Time that connecting may take.
    pub connect_timeout: Duration,
}

impl Default for QpOptions {
    fn default() -> Self {
        QpOptions {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 16,
            max_recv_sge: 1,
            max_inline: 256,
            signal_all: false,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: 4096,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            private_data: Vec::new(),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

impl QpOptions {
    fn check(&self) -> Result<(), CreateError> {
        let (sges, ring) = (wqe::MAX_SGE as u32, MAX_RING_SLOTS);
        let bounds = [
            ("max_send_wr", self.max_send_wr, 1, ring),
            ("max_recv_wr", self.max_recv_wr, 1, ring / nic::stride(self.max_recv_sge.min(sges)) as u32),
            ("max_send_sge", self.max_send_sge, 1, sges),
            ("max_recv_sge", self.max_recv_sge, 1, sges),
            ("max_inline", self.max_inline, 0, wqe::MAX_INLINE as u32),
            ("path_mtu", self.path_mtu, 256, 4096),
        ];
        match bounds.into_iter().find(|(_, asked, least, most)| !(least..=most).contains(&asked)) {
            Some((what, asked, _, most)) => Err(CreateError::TooMany(what, asked.into(), most.into())),
            None => Ok(()),
        }
    }
}

/// A queue pair of the reliable connected service.
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
    body: Body,
    state: PhantomData<fn() -> S>,
}

#[derive(Debug)]
struct Body {
    number: Qpn,
    bell: u32,
    send: SendSide,
    receive: ReceiveSide,
    send_cq: Arc<Cq>,
    receive_cq: Arc<Cq>,
    psn: Psn,
    options: QpOptions,
    agreement: Option<Agreement>,
    domain: ProtectionDomain,
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.send_cq.context.fork().is_child() {
            return;
        }
        let ended = self.send_cq.engine.control(|control| {
            control.take_bell(self.bell);
            let ended = control.nic.destroy_qp(self.number);
            if let Some(agreement) = &self.agreement {
                control.release_peer(agreement.peer);
            }
            ended
        });
        debug_assert!(ended.is_ok(), "nobody else destroys it");
    }
}

impl QueuePair<Init> {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        options.check()?;
        let (send_cq, receive_cq) = (send_cq.shared(), receive_cq.shared());
        if !send_cq.context.is(domain.context()) || !receive_cq.context.is(domain.context()) {
            return Err(CreateError::OtherContext);
        }
        if !Arc::ptr_eq(&send_cq.engine, &receive_cq.engine) {
            return Err(CreateError::DifferentEngines);
        }
        let stride = nic::stride(options.max_recv_sge);
        // The longest work request always fits.
        let slots = options.max_send_wr.max(wqe::MAX_SLOTS as u32);
        let rings = [slots, options.max_recv_wr * stride as u32].map(ring);
        let [send_ring, receive_ring] = rings;
        let (send_ring, receive_ring) = (send_ring?, receive_ring?);
        let init = QueuePairInit {
            service: Service::Rc,
            pd: domain.pd(),
            send_ring: send_ring.clone(),
            receives: Receives::Own { ring: receive_ring.clone(), max_sge: options.max_recv_sge },
            send_cq: send_cq.number,
            receive_cq: receive_cq.number,
            signal_all: options.signal_all,
            managed: false,
        };
        let to_init = Modify {
            state: Some(State::Init),
            access: Some(options.access),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        };
        let (number, bell) = send_cq.engine.control(|control| {
            let number = control.nic.create_qp(init)?;
            if let Err(fault) = control.nic.modify_qp(number, &to_init) {
                control.nic.destroy_qp(number)?;
                return Err(CreateError::Modify(fault));
            }
            Ok((number, control.hang_bell(number)))
        })?;
        let psn = Psn::new(host::random().map_or(0, |random| random as u32 & 0x00ff_ffff));
        let body = Body {
            number,
            bell,
            send: SendSide::new(
                send_ring,
                Bounds { max_sge: options.max_send_sge, max_inline: options.max_inline },
            ),
            receive: ReceiveSide::new(receive_ring, stride, options.max_recv_sge),
            send_cq: Arc::clone(send_cq),
            receive_cq: Arc::clone(receive_cq),
            psn,
            options: options.clone(),
            agreement: None,
            domain: domain.clone(),
        };
        Ok(QueuePair { body, state: PhantomData })
    }

    /// Connects it to one that a [`Listener`](crate::Listener) at `address` answers with.
    ///
    /// # Errors
    /// [`ConnectError`] says what to do; the queue pair is gone then.
    pub fn connect(mut self, address: impl ToSocketAddrs) -> Result<QueuePair<Ready>, ConnectError> {
        let (side, timeout, mut up) = (self.body.side(), self.body.options.connect_timeout, None);
        let agreed = host::connect::connect(address, &side, timeout, |agreement| {
            self.body.bring_up(agreement, &mut up)
        });
        // Whatever came after it: a queue pair that is up uses its peer until it is dropped.
        self.body.agreement = up;
        agreed?;
        Ok(self.ready())
    }

    /// Answers a request with it; see [`ConnectRequest::accept`](crate::ConnectRequest::accept).
    pub(crate) fn answer(
        mut self,
        request: host::connect::Request,
    ) -> Result<QueuePair<Ready>, ConnectError> {
        let (side, timeout, mut up) = (self.body.side(), self.body.options.connect_timeout, None);
        let agreed = request.accept(&side, timeout, |agreement| self.body.bring_up(agreement, &mut up));
        self.body.agreement = up;
        agreed?;
        Ok(self.ready())
    }

    /// Connects two queue pairs of this process, of one context or of two with the same kind of port.
    ///
    /// # Errors
    /// [`ConnectError`]; both are gone then.
    pub fn connect_pair(
        mut first: QueuePair<Init>,
        mut second: QueuePair<Init>,
    ) -> Result<(QueuePair<Ready>, QueuePair<Ready>), ConnectError> {
        let timeout = first.body.options.connect_timeout;
        let (sides, mut ups) = ((first.body.side(), second.body.side()), (None, None));
        host::connect::connect_pair(&sides.0, &sides.1, timeout, |which, agreement| match which {
            0 => first.body.bring_up(agreement, &mut ups.0),
            _ => second.body.bring_up(agreement, &mut ups.1),
        })?;
        (first.body.agreement, second.body.agreement) = ups;
        Ok((first.ready(), second.ready()))
    }

    fn ready(self) -> QueuePair<Ready> {
        QueuePair { body: self.body, state: PhantomData }
    }
}

impl Body {
    #[inline]
    fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.refuse_child()?;
        self.receive.push(request)?;
        self.receive.publish();
        if self.receive.must_ring() {
            self.ring();
        }
        Ok(())
    }

    fn side(&self) -> Side<'_> {
        Side {
            engine: &self.send_cq.engine,
            qp: self.number,
            psn: self.psn,
            path_mtu: 1 << self.options.path_mtu.ilog2(),
            initiator_depth: self.options.max_rd_atomic,
            responder_resources: self.options.max_dest_rd_atomic,
            private_data: &self.options.private_data,
        }
    }

    fn address_vector(&self, agreement: &Agreement) -> AddressVector {
        let (ours, theirs) = (self.send_cq.engine.facts().endpoint, agreement.remote.endpoint);
        AddressVector { peer: agreement.peer, route: Route::new(ours, theirs) }
    }

    /// INIT to RTR to RTS; then `up` holds the agreement.
    fn bring_up(&self, agreement: &Agreement, up: &mut Option<Agreement>) -> Result<(), ConnectError> {
        let (options, engine) = (&self.options, &self.send_cq.engine);
        let to_rtr = Modify {
            state: Some(State::Rtr),
            address: Some(self.address_vector(agreement)),
            path_mtu: Some(agreement.path_mtu),
            dest_qp: Some(agreement.remote.qp),
            rq_psn: Some(agreement.remote.psn),
            max_dest_rd_atomic: Some(options.max_dest_rd_atomic),
            min_rnr_timer: Some(options.min_rnr_timer),
            ..Modify::default()
        };
        let to_rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(self.psn),
            max_rd_atomic: Some(agreement.max_rd_atomic),
            timeout: Some(options.timeout),
            retry_cnt: Some(options.retry_cnt),
            rnr_retry: Some(options.rnr_retry),
            ..Modify::default()
        };
        engine
            .control(|control| {
                control.nic.modify_qp(self.number, &to_rtr)?;
                control.nic.modify_qp(self.number, &to_rts)
            })
            .map_err(ConnectError::Modify)?;
        *up = Some(agreement.clone());
        Ok(())
    }

    #[inline]
    fn refuse_child(&self) -> Result<(), PostError> {
        if self.send_cq.context.fork().is_child() { Err(PostError::Forked) } else { Ok(()) }
    }

    #[inline]
    fn push(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.send.push(request).map_err(|error| self.why(error))
    }

    /// A queue may be full because nobody empties it any more.
    #[cold]
    fn why(&self, error: nic::PostError) -> PostError {
        let failed = error == nic::PostError::QueueFull && self.send_cq.context.adapter().has_failed();
        if failed { PostError::Failed } else { PostError::Queue(error) }
    }

    #[inline]
    fn ring(&self) {
        self.send_cq.engine.ring(self.number, self.bell);
    }
}

impl QueuePair<Ready> {
    /// Posts a send work request; its packets leave at once, as far as the window allows.
    ///
    /// # Errors
    /// `Queue` says what the queue does not take; nothing is posted then. A request that is taken and fails later says so
    /// in its completion.
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.body.refuse_child()?;
        self.body.push(request)?;
        self.body.send.publish();
        self.body.ring();
        Ok(())
    }

    /// Begins a batch: what is posted to it becomes visible to the NIC together, with one doorbell.
    ///
    /// ```
    /// # use remora_verbs::{Device, EMPTY, QpOptions, QueuePair, work};
    /// # let context = Device::shm().open()?;
    /// # let domain = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(64)?;
    /// # let (a, b) = (domain.create_qp(&cq, &cq, &QpOptions::default())?, domain.create_qp(&cq, &cq, &QpOptions::default())?);
    /// # let (mut a, _b) = QueuePair::connect_pair(a, b)?;
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
    /// `Forked`.
    #[inline]
    pub fn batch(&mut self) -> Result<Batch<'_>, PostError> {
        self.body.refuse_child()?;
        Ok(Batch { body: &mut self.body })
    }

    /// Posts all of `requests` with one doorbell.
    ///
    /// # Errors
    /// The index of the first that was not taken, and why; those before it are posted (as by `ibv_post_send`).
    #[inline]
    pub fn post_send_batch(&mut self, requests: &[WorkRequest<'_>]) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch().map_err(|error| (0, error))?;
        for (index, request) in requests.iter().enumerate() {
            batch.post_send(request).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// What the other side's program gave for this one when they connected.
    pub fn peer_private_data(&self) -> &[u8] {
        self.body.agreement.as_ref().map_or(&[], |agreement| &agreement.remote.private_data)
    }

    /// What the two sides agreed on.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.body.agreement.as_ref()
    }

    /// Where its packets go, for bringing it up again by [`modify`](QueuePair::modify).
    pub fn address_vector(&self) -> Option<AddressVector> {
        self.body.agreement.as_ref().map(|agreement| self.body.address_vector(agreement))
    }

    /// Takes it to the error state: all work that is posted, and whatever is posted later, completes as flushed.
    pub fn fail(&mut self) {
        let to_err = Modify { state: Some(State::Err), ..Modify::default() };
        if self.body.refuse_child().is_ok() {
            let failed =
                self.body.send_cq.engine.control(|control| control.nic.modify_qp(self.body.number, &to_err));
            debug_assert!(failed.is_ok(), "every state goes to ERR");
        }
    }

    /// Changes attributes, or the state (SQD and back), as `ibv_modify_qp` does.
    ///
    /// # Errors
    /// The transition, or a value, is not allowed.
    pub fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        self.body.domain.context().refuse_child()?;
        let engine = &self.body.send_cq.engine;
        engine.control(|control| control.nic.modify_qp(self.body.number, change)).map_err(CreateError::Modify)
    }
}

impl<S> QueuePair<S> {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.body.number.get()
    }

    /// The state that the NIC has it in.
    pub fn state(&self) -> State {
        if self.body.refuse_child().is_err() {
            return State::Reset;
        }
        let number = self.body.number;
        self.body.send_cq.engine.control(|control| control.nic.qp_state(number)).unwrap_or(State::Reset)
    }

    /// Posts a receive work request. It may be posted before connecting, so that the first message finds it.
    ///
    /// # Errors
    /// `Queue` says what the queue does not take.
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.body.post_recv(request)
    }

    /// The completion queue of its receives is on this engine.
    pub fn engine(&self) -> usize {
        self.body.receive_cq.engine.number()
    }
}

/// Send work requests that are told to the NIC together: by [`ring`](Batch::ring), or when this is dropped.
#[derive(Debug)]
pub struct Batch<'a> {
    body: &'a mut Body,
}

impl Batch<'_> {
    /// Adds one.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; the others stay.
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.body.push(request)
    }

    /// Posts a receive work request meanwhile.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.body.post_recv(request)
    }

    /// Tells the NIC.
    #[inline]
    pub fn ring(self) {}
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.body.send.publish() {
            self.body.ring();
        }
    }
}

fn ring(slots: u32) -> Result<Ring, CreateError> {
    Ring::new(Bytes::heap(Ring::size(slots))?).ok_or(CreateError::Nic(NicError::TooSmall))
}
