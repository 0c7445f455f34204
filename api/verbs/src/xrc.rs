//! Extended reliable connections: initiators that send to the shared receive queues of an XRC domain.
//!
//! An initiator receives nothing. Each of its work requests names a shared receive queue of the target's
//! domain by number. A target processes the requests and has no queues of its own.
//!
//! ```
//! use remora_verbs::{Access, Device, EMPTY, QpOptions, ReceiveRequest, SrqOptions, XrcInitiator, work};
//!
//! let context = Device::shm().open()?;
//! let domain = context.alloc_pd()?;
//! let mut cq = context.create_cq(64)?;
//! let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
//!
//! let shared = context.open_xrc_domain(0)?;
//! let mut srq = domain.create_xrc_srq(&shared, &cq, &SrqOptions::default())?;
//! srq.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 100)] })?;
//! let target = shared.create_target(&QpOptions::default())?;
//! let initiator = domain.create_xrc_initiator(&cq, &QpOptions::default())?;
//! let (mut initiator, _target) = XrcInitiator::connect_pair(initiator, target)?;
//!
//! initiator.post_send(&work::send_inline(2, b"for this queue"), srq.number())?;
//! let (mut done, mut came) = ([EMPTY; 2], 0);
//! while came < 2 {
//!     came += cq.wait(&mut done[came..], std::time::Duration::from_secs(1))?;
//! }
//! assert_eq!(memory.get::<[u8; 14]>(0)?, *b"for this queue");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod domain;

pub use domain::XrcDomain;
use remora_host::connect::ConnectError;
use remora_nic::{AddressVector, Command, Service, WorkRequest};
use remora_transport::state::State;
use std::net::ToSocketAddrs;

use crate::qp_handle::QpHandle;
use crate::queue_pair::Own;
use crate::{CreateError, Init, Modify, PostError, QpOptions, QueuePair, Ready};

impl XrcDomain {
    /// Creates a target, ready to be connected with an initiator. The options for queues are ignored.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany`; `Nic(Full)`.
    pub fn create_target(&self, options: &QpOptions) -> Result<XrcTarget<Init>, CreateError> {
        options.check(Own::Neither)?;
        self.context().refuse_child()?;
        let create = Command::CreateXrcTarget { domain: self.number() };
        let handle = QpHandle::new(self.context(), self.engine(), Service::XrcTarget, options, create)?;
        Ok(XrcTarget { handle, _domain: self.clone(), state: std::marker::PhantomData })
    }
}

/// The target of an extended reliable connection. A message completes on the completion queue of the shared
/// receive queue that it names, and accesses memory in that queue's protection domain.
#[derive(Debug)]
pub struct XrcTarget<S = Ready> {
    handle: QpHandle,
    _domain: XrcDomain,
    state: std::marker::PhantomData<fn() -> S>,
}

impl XrcTarget<Init> {
    fn ready(self) -> XrcTarget<Ready> {
        XrcTarget { handle: self.handle, _domain: self._domain, state: std::marker::PhantomData }
    }

    /// Connects to an initiator of the [`Listener`](crate::Listener) at `address`.
    ///
    /// # Errors
    /// [`ConnectError`]. The target is dropped.
    pub fn connect(mut self, address: impl ToSocketAddrs) -> Result<XrcTarget<Ready>, ConnectError> {
        self.handle.connect(address)?;
        Ok(self.ready())
    }

    pub(crate) fn answer(
        mut self,
        request: remora_host::connect::Request,
    ) -> Result<XrcTarget<Ready>, ConnectError> {
        self.handle.connection = self.handle.answer(request)?.go()?;
        Ok(self.ready())
    }
}

impl XrcTarget<Ready> {
    /// Moves the target to the error state.
    pub fn fail(&mut self) {
        self.handle.fail();
    }

    /// Changes attributes, or the state, as `ibv_modify_qp` does.
    ///
    /// # Errors
    /// `Modify` if the transition or a value is not allowed.
    pub fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        self.handle.modify(change)
    }

    /// The address of the peer, for bringing the target up again by [`modify`](XrcTarget::modify).
    pub fn address_vector(&self) -> Option<AddressVector> {
        self.handle.agreement.as_ref().map(|agreement| self.handle.address_vector(agreement))
    }
}

impl<S> XrcTarget<S> {
    /// The target's number, 24 bits, which the initiator's packets carry.
    pub fn number(&self) -> u32 {
        self.handle.number.get()
    }

    /// The target's state in the NIC.
    pub fn state(&self) -> State {
        self.handle.state()
    }
}

/// The initiator of an extended reliable connection. It sends to shared receive queues of the target's
/// domain.
///
/// An initiator cannot send before it is connected, and each request names a queue:
///
/// ```compile_fail,E0599
/// # use remora_verbs::{Device, QpOptions, work};
/// # let context = Device::shm().open().unwrap();
/// # let domain = context.alloc_pd().unwrap();
/// # let cq = context.create_cq(16).unwrap();
/// let mut initiator = domain.create_xrc_initiator(&cq, &QpOptions::default()).unwrap();
/// initiator.post_send(&work::nop(1), 7).unwrap(); // error: not connected
/// ```
#[derive(Debug)]
pub struct XrcInitiator<S = Ready> {
    pair: QueuePair<S>,
}

impl XrcInitiator<Init> {
    pub(crate) fn new(pair: QueuePair<Init>) -> XrcInitiator<Init> {
        XrcInitiator { pair }
    }

    /// Connects to a target of the [`Listener`](crate::Listener) at `address`.
    ///
    /// # Errors
    /// [`ConnectError`]. The initiator is dropped.
    pub fn connect(self, address: impl ToSocketAddrs) -> Result<XrcInitiator<Ready>, ConnectError> {
        Ok(XrcInitiator { pair: self.pair.connect(address)? })
    }

    pub(crate) fn answer(
        self,
        request: remora_host::connect::Request,
    ) -> Result<XrcInitiator<Ready>, ConnectError> {
        let (mut pair, answered) = self.pair.answer(request)?;
        pair.keep(answered.go()?)?;
        Ok(XrcInitiator { pair })
    }

    /// Connects an initiator and a target of this process.
    ///
    /// # Errors
    /// [`ConnectError`]. Both are dropped.
    pub fn connect_pair(
        mut initiator: XrcInitiator<Init>,
        mut target: XrcTarget<Init>,
    ) -> Result<(XrcInitiator<Ready>, XrcTarget<Ready>), ConnectError> {
        QpHandle::connect_pair(initiator.pair.handle_mut(), &mut target.handle)?;
        Ok((XrcInitiator { pair: initiator.pair.ready() }, target.ready()))
    }
}

impl XrcInitiator<Ready> {
    /// Posts a send work request, for the target's shared receive queue with number `srq`.
    ///
    /// # Errors
    /// The errors of [`QueuePair::post_send`].
    #[inline]
    pub fn post_send(&mut self, request: &WorkRequest<'_>, srq: u32) -> Result<(), PostError> {
        self.pair.post_send_to_srq(request, srq)
    }

    /// Moves the initiator to the error state, where all posted work completes as flushed.
    pub fn fail(&mut self) {
        self.pair.fail();
    }

    /// Changes attributes, or the state, as `ibv_modify_qp` does.
    ///
    /// # Errors
    /// `Modify` if the transition or a value is not allowed.
    pub fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        self.pair.modify(change)
    }

    /// The address of the peer, for bringing the initiator up again by [`modify`](XrcInitiator::modify).
    pub fn address_vector(&self) -> Option<AddressVector> {
        self.pair.address_vector()
    }

    /// The private data that the target's program sent when the two connected, for instance the number of a
    /// shared receive queue.
    pub fn peer_private_data(&self) -> &[u8] {
        self.pair.peer_private_data()
    }
}

impl<S> XrcInitiator<S> {
    /// The initiator's number, 24 bits, which the target's acknowledgements carry.
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// The initiator's state in the NIC.
    pub fn state(&self) -> State {
        self.pair.state()
    }
}
