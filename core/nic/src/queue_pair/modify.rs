//! The operation `modify`: the effect of each state transition on a queue pair.

use remora_transport::rc::{FOR_EVER, Requester, Responder, irn};
use remora_transport::state::{Attributes, Service, State, modify};
use remora_transport::{timers, uc, ud};
use remora_wire::Psn;

use super::{GSI, GSI_QKEY, QueuePair};
use crate::attributes::{Modify, ModifyFault, Settings};
use crate::config::MAX_WINDOW;
use crate::datagram::Datagrams;
use crate::kernel::enable_strom;
use crate::machine::{Connection, Machine};
use crate::path::PeerPath;
use crate::service_bits;
use crate::shared::Shared;
use crate::unreliable::{Connected, Unreliable};

impl QueuePair {
    /// Applies a modification completely, or not at all on an error.
    pub(crate) fn modify(&mut self, change: &Modify, shared: &mut Shared) -> Result<(), ModifyFault> {
        let target = change.state.unwrap_or(self.state);
        modify(self.state, target, self.id.service, change.given()).map_err(ModifyFault::Transition)?;
        change.check_values(self.state, shared.defaults().any_path_mtu)?;
        if self.id.number.get() == GSI && change.qkey.is_some_and(|qkey| qkey != GSI_QKEY) {
            return Err(ModifyFault::Value(Attributes::QKEY));
        }
        self.remember(change, shared);
        match (self.state, target) {
            (_, State::Reset) => {
                self.offloads.end(self.id.number, shared);
                if self.schedule.waiting {
                    shared.release_all_waiting();
                }
                self.remove_completions(shared);
                self.reset();
            }
            (State::Init, State::Rtr) => self.connect(shared),
            (State::Rtr, State::Rts) => self.start(shared),
            (State::Sqe, State::Rts) => {
                self.queues.send.go_on();
                self.retune(change);
            }
            (_, State::Err) => self.enter_error(shared),
            _ => self.retune(change),
        }
        if change.congestion.is_some() || (self.state, target) == (State::Init, State::Rtr) {
            self.control_congestion(&shared.defaults().congestion);
        } else if change.rate_limit.is_some() {
            self.limit_rate(&shared.defaults().congestion);
        }
        self.choose_machine();
        if target == State::Sqd && self.state != State::Sqd {
            self.raised.drained = false;
        }
        self.state = target;
        if target == State::Rts && self.offloads.strom.is_some() {
            shared.kernels_mut().wake(self.id.number);
        }
        if target == State::Sqd {
            // Without messages in flight, the send queue is drained immediately.
            self.drain(shared);
        }
        Ok(())
    }

    fn remember(&mut self, change: &Modify, shared: &Shared) {
        let Settings { parameters, given } = &mut self.attributes;
        *given = given.followed_by(change);
        set(&mut parameters.mtu, change.path_mtu);
        set(&mut parameters.max_rd_atomic, change.max_rd_atomic);
        set(&mut parameters.max_dest_rd_atomic, change.max_dest_rd_atomic);
        set(&mut parameters.min_rnr_timer, change.min_rnr_timer);
        set(&mut parameters.timeout_ns, change.timeout.map(timers::ack_timeout_ns));
        set(&mut parameters.retry_cnt, change.retry_cnt);
        set(&mut parameters.rnr_retry, change.rnr_retry);
        if shared.defaults().retries_forever {
            parameters.retry_cnt = FOR_EVER;
        }
        if given.irn.is_none() {
            set(&mut parameters.timeout_ns, shared.defaults().rto_ns);
            parameters.backoff = shared.defaults().rto_ns.is_none();
        }
    }

    /// Transition INIT to RTR: starts the responder. The requester starts at RTS.
    fn connect(&mut self, shared: &Shared) {
        let settings = &mut self.attributes;
        let window = settings.given.window.unwrap_or(shared.defaults().window).clamp(1, MAX_WINDOW);
        settings.parameters.window = window;
        settings.parameters.ack_every = shared.defaults().ack_every;
        settings.parameters.read_piece = shared.defaults().read_piece.clamp(1, window);
        let given = &settings.given;
        let rq_psn = given.rq_psn.unwrap_or_default();
        if self.id.service == Service::Ud {
            let sender = ud::Sender::new(Psn::new(0), self.id.number, given.qkey.unwrap_or(0));
            self.machine = Machine::Unreliable(Unreliable::Datagrams(Box::new(Datagrams::new(sender))));
            return;
        }
        let (Some(address), Some(remote)) = (given.address, given.dest_qp) else { return };
        let mtu = settings.parameters.mtu;
        let capacity = self.queues.send.messages();
        if self.id.service == Service::Uc {
            self.machine = Machine::Unreliable(Unreliable::Connected(Box::new(Connected {
                path: PeerPath::new(&address, remote, service_bits::UC, shared.defaults().classes),
                requester: uc::Requester::new(Psn::new(0), mtu),
                responder: uc::Responder::new(rq_psn, mtu, given.allowed().write),
            })));
            return;
        }
        let bits = if self.id.service == Service::Rc { 0 } else { service_bits::XRC };
        let prism = given.prism == Some(true) && self.id.service == Service::Rc;
        let path = PeerPath::new(&address, remote, bits, shared.defaults().classes);
        if let Some(peer) = given.irn.filter(|_| self.id.service == Service::Rc) {
            self.connect_irn(path, peer, shared);
        } else {
            self.machine = Machine::Rc(Connection {
                path,
                requester: Requester::new(given.sq_psn.unwrap_or_default(), capacity, settings.parameters),
                responder: Responder::new(rq_psn, &settings.parameters, given.allowed()),
            });
        }
        if prism {
            self.enable_prism();
        }
        if self.attributes.given.strom == Some(true) && self.id.service == Service::Rc {
            enable_strom(self);
        }
    }

    /// Transition RTR to RTS: starts the requester with the PSN, timeout and retry counts that this
    /// transition sets.
    fn start(&mut self, shared: &Shared) {
        let Settings { parameters, given } = &self.attributes;
        let sq_psn = given.sq_psn.unwrap_or_default();
        match &mut self.machine {
            Machine::Plain(connection) | Machine::Rc(connection) => {
                connection.requester = Requester::new(sq_psn, self.queues.send.messages(), *parameters);
                if self.offloads.prism.is_some() {
                    connection.requester.enable_prism();
                }
                connection.responder.retune(given.allowed(), parameters.min_rnr_timer);
            }
            Machine::Irn(irn) => {
                let capacity = self.queues.send.ring().slots() as u32;
                irn.requester =
                    irn::Requester::new(sq_psn, capacity, *parameters, &shared.defaults().irn, irn.peer);
                irn.responder.retune(given.allowed(), parameters);
            }
            Machine::Unreliable(Unreliable::Connected(connected)) => {
                connected.requester = uc::Requester::new(sq_psn, parameters.mtu);
            }
            Machine::Unreliable(Unreliable::Datagrams(datagrams)) => {
                datagrams.sender = ud::Sender::new(sq_psn, self.id.number, given.qkey.unwrap_or(0));
            }
            Machine::Unconnected | Machine::Loopback => {}
        }
    }

    /// Changes timeouts, retries and rights of a running queue pair.
    fn retune(&mut self, change: &Modify) {
        let Settings { parameters, given } = &self.attributes;
        match &mut self.machine {
            Machine::Plain(connection) | Machine::Rc(connection) => {
                connection.requester.retune(*parameters);
                connection.responder.retune(given.allowed(), parameters.min_rnr_timer);
            }
            Machine::Irn(irn) => {
                irn.requester.retune(*parameters);
                irn.responder.retune(given.allowed(), parameters);
            }
            Machine::Unreliable(Unreliable::Connected(connected)) => {
                connected.responder.allow_writes(given.allowed().write);
            }
            Machine::Unreliable(Unreliable::Datagrams(datagrams)) => {
                set(&mut datagrams.sender.qkey, change.qkey);
            }
            Machine::Unconnected | Machine::Loopback => {}
        }
    }

    /// Returns the attributes and the state (`ibv_query_qp`).
    pub(crate) fn query(&self) -> Modify {
        Modify { state: Some(self.state), current: Some(self.state), ..self.attributes.given }
    }

    /// Removes the unpolled completions of the queue pair, which is destroyed or enters RESET.
    #[cold]
    pub(crate) fn remove_completions(&self, shared: &mut Shared) {
        if self.id.service == Service::XrcTarget {
            // The messages took work requests of shared receive queues, whose completions remain.
            return;
        }
        for cq in [self.queues.send_cq, self.queues.receive_cq] {
            if let Ok(queue) = shared.cqs_mut().get_mut(cq) {
                queue.remove(self.id.number);
            }
        }
    }

    /// Enters RESET: restores the initial state and discards posted work requests. The caller removes the
    /// completions.
    fn reset(&mut self) {
        // A loopback queue pair keeps its state, because it needs no connection.
        if !self.machine.is_loopback() {
            self.machine = Machine::Unconnected;
        }
        self.offloads.congestion = None;
        self.offloads.notifier.is_due = false;
        self.queues.current = None;
        self.raised.established = false;
        self.raised.drained = false;
        self.attributes = Settings::default();
        self.queues.send.reset();
        self.queues.receive.reset();
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
