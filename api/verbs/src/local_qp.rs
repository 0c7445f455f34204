//! The part that queue pairs of all services share: a number on an engine, a state, and the address of the
//! peer.

use remora_host::Engine;
use remora_host::connect::Uplink;
use remora_host::connect::{Agreement, Answered, ConnectError, Request, SetupConnection, Side};
use remora_memory::{Owner, Reentered};
use remora_nic::{
    AddressVector, Command, CommandError, CommandFault, Modify, ModifyFault, PeerFrames, QueuePairFacts,
    Service,
};
use remora_transport::state::State;
use remora_wire::frame::Route;
use remora_wire::{Psn, Qpn};
use std::net::ToSocketAddrs;
use std::sync::Arc;

use crate::{Context, CreateError, QpOptions};

/// A queue pair of a NIC of this process. Dropping it destroys the queue pair.
#[derive(Debug)]
pub(crate) struct LocalQp {
    pub number: Qpn,
    pub service: Service,
    pub engine: Arc<Engine>,
    pub context: Context,
    pub options: QpOptions,
    pub agreement: Option<Agreement>,
    /// The TCP connection of the set-up. It is closed when either queue pair ends, which notifies the other
    /// side.
    pub connection: Option<SetupConnection>,
    bell: u32,
    /// The shared set of the queue pair's doorbell, if another process rings it.
    set: Option<u32>,
    psn: Psn,
}

impl Drop for LocalQp {
    fn drop(&mut self) {
        if self.context.fork().is_child() {
            return;
        }
        self.engine.take_bell(self.set, self.bell);
        let ended = self.engine.ask::<()>(Command::DestroyQp(self.number));
        if let Some(agreement) = &self.agreement {
            self.engine.release_peer(agreement.peer);
        }
        debug_assert!(ended.is_ok(), "only this drop destroys the queue pair");
        if let Some(connection) = &self.connection {
            // Closing would not suffice: a forked child may have the descriptor too.
            connection.end();
        }
        // Windows of type 2 that the queue pair has bound lose their owner.
        let owner = Owner::new(self.engine.number() as u16, self.number.get());
        self.engine.table().unbind_owner(owner);
    }
}

impl LocalQp {
    /// Creates a queue pair by this command and brings it to INIT.
    pub(crate) fn new(
        context: &Context,
        engine: &Arc<Engine>,
        service: Service,
        options: &QpOptions,
        create: Command,
    ) -> Result<LocalQp, CreateError> {
        let datagrams = service == Service::Ud;
        let to_init = Modify {
            state: Some(State::Init),
            access: (!datagrams).then_some(options.access),
            qkey: datagrams.then_some(options.qkey),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        };
        let local = LocalQp::made(context, engine, service, options, create)?;
        local.all(&[to_init])?;
        Ok(local)
    }

    /// Like [`new`](LocalQp::new), but leaves the queue pair in the state in which the NIC creates it.
    pub(crate) fn made(
        context: &Context,
        engine: &Arc<Engine>,
        service: Service,
        options: &QpOptions,
        create: Command,
    ) -> Result<LocalQp, CreateError> {
        let number = engine.ask(create)?;
        let bell = engine.hang_bell(number);
        Ok(LocalQp {
            number,
            service,
            engine: Arc::clone(engine),
            context: context.clone(),
            options: options.clone(),
            agreement: None,
            connection: None,
            bell,
            set: None,
            psn: Psn::new(remora_host::random().map_or(0, |random| random as u32 & 0x00ff_ffff)),
        })
    }

    /// Rings the doorbell, after work was posted.
    #[inline]
    pub(crate) fn ring(&self) -> Result<(), Reentered> {
        self.engine.ring(self.number, self.bell)
    }

    /// Makes the NIC inspect the queues, also if another process rings the doorbell.
    pub(crate) fn look(&self) {
        self.engine.doorbell(self.number);
    }

    /// Lets the NIC fetch the send queue up to slot count `count` (the ENABLE of chains).
    pub(crate) fn enable(&self, count: u64) -> Result<(), CreateError> {
        self.context.refuse_child()?;
        self.engine.ask::<()>(Command::Enable { qp: self.number, count })?;
        self.engine.doorbell(self.number);
        Ok(())
    }

    /// Gives the queue pair a doorbell of the shared set `set`, which another process rings from now on.
    /// Returns the doorbell's index in the set.
    pub(crate) fn share_bell(&mut self, set: u32) -> Result<u32, CreateError> {
        let shared = self.engine.share_bell(set, self.number, self.bell);
        self.bell = shared.ok_or(CreateError::Nic(remora_nic::NicError::Unknown))?;
        self.set = Some(set);
        Ok(self.bell)
    }

    pub(crate) fn side(&self) -> Side<'_> {
        Side {
            uplink: &*self.engine,
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
        self.all(&[to_rtr, to_rts]).map_err(|error| match error.fault {
            CommandFault::Modify(fault) => ConnectError::Modify(fault),
            _ => ConnectError::Modify(ModifyFault::NoQueuePair),
        })?;
        *up = Some(agreement.clone());
        Ok(())
    }

    /// Applies several changes in order.
    pub(crate) fn all(&self, changes: &[Modify]) -> Result<(), CommandError> {
        self.engine.modify(self.number, changes)
    }

    /// Takes a datagram queue pair, which has no peer, from INIT to RTS.
    pub(crate) fn bring_up_alone(&self) -> Result<(), CreateError> {
        let to_rtr = Modify { state: Some(State::Rtr), ..Modify::default() };
        let to_rts = Modify { state: Some(State::Rts), sq_psn: Some(self.psn), ..Modify::default() };
        Ok(self.all(&[to_rtr, to_rts])?)
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

    pub(crate) fn connect_pair(first: &mut LocalQp, second: &mut LocalQp) -> Result<(), ConnectError> {
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
        Ok(self.all(std::slice::from_ref(change))?)
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
            let failed = self.all(&[Modify { state: Some(State::Err), ..Modify::default() }]);
            debug_assert!(failed.is_ok(), "a queue pair may enter ERR from every state");
        }
    }
}
