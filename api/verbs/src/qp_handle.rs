//! The part that queue pairs of all services share: a number on an engine, a state, and the address of the
//! peer.

use remora_host::connect::{Agreement, Answered, ConnectError, Request, SetupConnection, Side};
use remora_memory::Reentered;
use remora_nic::{
    AddressVector, BellOwner, Command, Device, Doorbell, Modify, PeerFrames, QueuePairFacts, Service,
};
use remora_transport::state::State;
use remora_wire::frame::Route;
use remora_wire::{Psn, Qpn};
use std::net::ToSocketAddrs;

use crate::engine_handle::EngineHandle;
use crate::{Context, CreateError, QpOptions};

/// A queue pair of a NIC. Dropping it destroys the queue pair.
#[derive(Debug)]
pub(crate) struct QpHandle {
    pub number: Qpn,
    pub service: Service,
    pub engine: EngineHandle,
    pub context: Context,
    pub options: QpOptions,
    pub agreement: Option<Agreement>,
    /// The TCP connection of the set-up. It is closed when either queue pair ends, which notifies the other
    /// side.
    pub connection: Option<SetupConnection>,
    bell: Doorbell,
    psn: Psn,
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        if self.context.fork().is_child() || self.engine.daemon().is_some_and(|daemon| daemon.leaves()) {
            return;
        }
        self.engine.end_qp(self.number, self.bell);
        if let Some(agreement) = &self.agreement {
            self.engine.uplink().release_peer(agreement.peer);
        }
        if let Some(connection) = &self.connection {
            // Closing would not suffice: a forked child may have the descriptor too.
            connection.end();
        }
    }
}

impl QpHandle {
    /// Creates a queue pair by this command and brings it to INIT.
    pub(crate) fn new(
        context: &Context,
        engine: &EngineHandle,
        service: Service,
        options: &QpOptions,
        create: Command,
    ) -> Result<QpHandle, CreateError> {
        let datagrams = service == Service::Ud;
        let to_init = Modify {
            state: Some(State::Init),
            access: (!datagrams).then_some(options.access),
            qkey: datagrams.then_some(options.qkey),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        };
        let local = QpHandle::made(context, engine, service, options, create)?;
        local.all(&[to_init])?;
        Ok(local)
    }

    /// Like [`new`](QpHandle::new), but leaves the queue pair in the state in which the NIC creates it.
    pub(crate) fn made(
        context: &Context,
        engine: &EngineHandle,
        service: Service,
        options: &QpOptions,
        create: Command,
    ) -> Result<QpHandle, CreateError> {
        let number = engine.ask(create)?;
        // The queue pair exists from here on, and is destroyed with this value.
        let bell = Doorbell { owner: BellOwner::QueuePair(number), index: 0 };
        let mut made = QpHandle::over(context, engine, number, service, options, bell);
        made.bell = engine.assign_bell(bell.owner)?;
        Ok(made)
    }

    /// Wraps a queue pair that exists, with its doorbell.
    pub(crate) fn over(
        context: &Context,
        engine: &EngineHandle,
        number: Qpn,
        service: Service,
        options: &QpOptions,
        bell: Doorbell,
    ) -> QpHandle {
        QpHandle {
            number,
            service,
            engine: engine.clone(),
            context: context.clone(),
            options: options.clone(),
            agreement: None,
            connection: None,
            bell,
            psn: Psn::new(remora_host::random().map_or(0, |random| random as u32 & 0x00ff_ffff)),
        }
    }

    /// Rings the doorbell, after work was posted.
    #[inline]
    pub(crate) fn ring(&self) -> Result<(), Reentered> {
        self.engine.ring_qp(self.number, self.bell)
    }

    /// Lets the NIC fetch the send queue up to slot count `count` (the ENABLE of chains).
    pub(crate) fn enable(&self, count: u64) -> Result<(), CreateError> {
        self.context.refuse_child()?;
        self.engine.ask::<()>(Command::Enable { qp: self.number, count })?;
        match &self.engine {
            EngineHandle::Own(engine) => engine.doorbell(self.number),
            EngineHandle::Nicd(daemon) => daemon.ring_bell(self.bell.index),
        }
        Ok(())
    }

    pub(crate) fn side(&self) -> Side<'_> {
        Side {
            uplink: self.engine.uplink(),
            service: self.service,
            qkey: if self.service == Service::Ud { self.options.qkey } else { 0 },
            qp: self.number,
            psn: self.psn,
            path_mtu: 1 << self.options.path_mtu.ilog2(),
            initiator_depth: self.options.max_rd_atomic,
            responder_resources: self.options.max_dest_rd_atomic,
            irn: self.options.irn && self.service == Service::Rc,
            prism: self.options.prism && self.service == Service::Rc,
            strom: self.options.strom && self.service == Service::Rc,
            lasting: self.options.lasting && self.service != Service::Ud,
            private_data: &self.options.private_data,
        }
    }

    pub(crate) fn address_vector(&self, agreement: &Agreement) -> AddressVector {
        let ours = self.engine.facts().source;
        let theirs = agreement.remote.endpoint;
        let accepts = agreement.source_port().map_or(PeerFrames::AnyPort, PeerFrames::Port);
        AddressVector { accepts, ..AddressVector::new(agreement.peer, Route::new(ours, theirs)) }
    }

    /// Takes the queue pair from INIT through RTR to RTS. On success, `up` holds the agreement.
    fn bring_up(&self, agreement: &Agreement, up: &mut Option<Agreement>) -> Result<(), ConnectError> {
        let options = &self.options;
        let responds = matches!(self.service, Service::Rc | Service::XrcTarget);
        let requests = matches!(self.service, Service::Rc | Service::XrcInitiator);
        let to_rtr = Modify {
            state: Some(State::Rtr),
            address: Some(self.address_vector(agreement)),
            path_mtu: Some(agreement.path_mtu),
            dest_qp: Some(agreement.remote.qp),
            rq_psn: Some(agreement.remote.psn),
            max_dest_rd_atomic: responds.then_some(options.max_dest_rd_atomic),
            min_rnr_timer: responds.then_some(options.min_rnr_timer),
            irn: agreement.irn,
            prism: Some(agreement.prism),
            strom: Some(agreement.strom),
            ..Modify::default()
        };
        let to_rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(self.psn),
            max_rd_atomic: requests.then_some(agreement.max_rd_atomic),
            timeout: (requests || responds).then_some(options.timeout),
            retry_cnt: requests.then_some(options.retry_cnt),
            rnr_retry: requests.then_some(options.rnr_retry),
            ..Modify::default()
        };
        self.all(&[to_rtr, to_rts]).map_err(|error| match error {
            CreateError::Modify(fault) => ConnectError::Modify(fault),
            error => ConnectError::Daemon(error.to_string()),
        })?;
        *up = Some(agreement.clone());
        Ok(())
    }

    /// Applies several changes in order.
    pub(crate) fn all(&self, changes: &[Modify]) -> Result<(), CreateError> {
        self.engine.modify(self.number, changes)
    }

    /// Takes a datagram queue pair, which has no peer, from INIT to RTS.
    pub(crate) fn bring_up_alone(&self) -> Result<(), CreateError> {
        let to_rtr = Modify { state: Some(State::Rtr), ..Modify::default() };
        let to_rts = Modify { state: Some(State::Rts), sq_psn: Some(self.psn), ..Modify::default() };
        self.all(&[to_rtr, to_rts])
    }

    /// Returns `Forked` in a forked child, which has no NIC.
    pub(crate) fn refuse_to_connect(&self) -> Result<(), ConnectError> {
        if self.context.fork().is_child() { Err(ConnectError::Forked) } else { Ok(()) }
    }

    pub(crate) fn connect(&mut self, address: impl ToSocketAddrs) -> Result<(), ConnectError> {
        self.refuse_to_connect()?;
        let mut up = None;
        let side = self.side();
        let timeout = self.options.connect_timeout;
        let bring_up = |agreement: &Agreement| self.bring_up(agreement, &mut up);
        let agreed = remora_host::connect::connect(address, &side, timeout, bring_up);
        // Kept even on an error: a queue pair that is up uses its peer until it is dropped.
        self.agreement = up;
        self.connection = agreed?.1;
        Ok(())
    }

    /// Answers a connection request, without the last message.
    pub(crate) fn answer(&mut self, request: Request) -> Result<Answered, ConnectError> {
        self.refuse_to_connect()?;
        let mut up = None;
        let side = self.side();
        let timeout = self.options.connect_timeout;
        let agreed = request.answer(&side, timeout, |agreement| self.bring_up(agreement, &mut up));
        self.agreement = up;
        Ok(agreed?.1)
    }

    pub(crate) fn connect_pair(first: &mut QpHandle, second: &mut QpHandle) -> Result<(), ConnectError> {
        first.refuse_to_connect()?;
        second.refuse_to_connect()?;
        let sides = (first.side(), second.side());
        let mut ups = (None, None);
        let timeout = first.options.connect_timeout;
        remora_host::connect::connect_pair(&sides.0, &sides.1, timeout, |side, agreement| match side {
            0 => first.bring_up(agreement, &mut ups.0),
            _ => second.bring_up(agreement, &mut ups.1),
        })?;
        (first.agreement, second.agreement) = ups;
        Ok(())
    }

    pub(crate) fn state(&self) -> State {
        if self.context.fork().is_child() {
            return State::Reset;
        }
        self.query().state.unwrap_or(State::Reset)
    }

    pub(crate) fn modify(&self, change: &Modify) -> Result<(), CreateError> {
        self.context.refuse_child()?;
        self.all(std::slice::from_ref(change))
    }

    /// The queue pair's state and the attributes that were set so far (`ibv_query_qp`). Default values in a
    /// forked child.
    pub(crate) fn query(&self) -> Modify {
        if self.context.fork().is_child() {
            return Modify::default();
        }
        self.engine.ask::<QueuePairFacts>(Command::QueryQp(self.number)).unwrap_or_default().attributes
    }

    pub(crate) fn fail(&self) {
        if !self.context.fork().is_child() {
            // A queue pair may enter ERR from every state, and a daemon that is gone has taken it with it.
            let failed = self.all(&[Modify { state: Some(State::Err), ..Modify::default() }]);
            debug_assert!(failed.is_ok() || self.engine.daemon().is_some(), "{failed:?}");
        }
    }
}
