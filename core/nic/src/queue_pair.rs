//! A queue pair: its work queues, its transport state machines and the completion of its work requests.

mod check;
mod congestion;
mod datagram;
mod egress;
mod extended;
mod ingress;
mod irn;
mod modify;
mod prism;
mod schedule;
mod submit;
mod unreliable;

use remora_memory::{Key, Mem, Owner, Pd};
use remora_transport::rc::{Kind, Message, Retired};
use remora_transport::state::{Service, State};
use remora_transport::{Atomic, Instant, Parameters, Status};
use remora_wire::Qpn;
use remora_wire::frame::Peer;
use remora_wire::prism::Verdict;

use crate::attributes::Settings;
use crate::calculation::Calculation;
use crate::completion_queue::Written;
use crate::config::QueuePairInit;
use crate::context::{List, WqeContext};
use crate::cqe::Cqe;
use crate::event::AsyncEvent;
use crate::extras::{All, Extras};
use crate::kernel::Strom;
use crate::machine::Machine;
use crate::offloads::Offloads;
use crate::receive_queue::{Receive, ReceiveQueue};
use crate::reliable::{self, GoBackN, ReliableRequester};
use crate::request::{CompletionKind, WorkCompletion};
use crate::ring::Ring;
use crate::send_queue::{Fetched, SendQueue};
use crate::shared::Shared;
use crate::wqe::{MAX_SGE, Wqe, WqeOpcode, flag};

/// Number of the general services interface queue pair (GSI).
pub(crate) const GSI: u32 = 1;
/// The Q_Key of queue pair 1 (IBTA vol. 1 §10.2.5).
pub const GSI_QKEY: u32 = remora_wire::mad::QKEY;

/// The queues of a new queue pair.
pub(crate) struct Queues {
    pub send: Ring,
    pub receive: ReceiveQueue,
    pub srq: Option<Srq>,
}

/// A queue pair.
pub(crate) struct QueuePair {
    id: Identity,
    state: State,
    queues: WorkQueues,
    machine: Machine,
    offloads: Offloads,
    attributes: Settings,
    schedule: Schedule,
    raised: RaisedEvents,
}

/// The properties of a queue pair that its program does not modify.
pub(crate) struct Identity {
    pub number: Qpn,
    /// Protection domain; on an XRC target, that of the shared receive queue which the last request named.
    pub pd: Pd,
    /// Identity of the queue pair for type 2B memory windows.
    pub owner: Owner,
    pub service: Service,
    /// XRC domain of an XRC target.
    pub xrc_domain: u32,
    /// Tenant of the queue pair.
    pub tenant: u32,
}

/// The work queues of a queue pair and the completion queues that they complete into.
pub(crate) struct WorkQueues {
    pub send: SendQueue,
    pub receive: ReceiveQueue,
    /// Shared receive queue of the queue pair; `None` if `receive` is its own queue. On an XRC target, the
    /// queue that the current message names.
    pub srq: Option<Srq>,
    /// Receive work request of the message that is being received.
    pub current: Option<Receive>,
    send_cq: u32,
    receive_cq: u32,
    signal_all: bool,
}

/// The place of a queue pair in the lists of its NIC.
#[derive(Default)]
struct Schedule {
    /// True while the queue pair is in the scheduler's queue.
    queued: bool,
    /// Stopped transmit queues of the port, as bit masks: `awaited` was found stopped in the last turn,
    /// `parked` are those that the queue pair waits for.
    awaited: u64,
    parked: u64,
    /// A WAIT blocks the send queue, and the queue pair is in the list of a completion queue.
    waiting: bool,
}

/// Events that were raised and are not raised twice.
#[derive(Default)]
struct RaisedEvents {
    /// The first packet in RTR (`CommunicationEstablished`).
    established: bool,
    /// A drained send queue (`SqDrained`).
    drained: bool,
}

/// The parts of a queue pair that offloads use together.
pub(crate) struct View<'a> {
    pub id: &'a Identity,
    pub queues: &'a mut WorkQueues,
    pub machine: &'a mut Machine,
    pub offloads: &'a mut Offloads,
}

/// A reference to a shared receive queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Srq {
    pub place: u32,
    /// Protection domain of the shared receive queue.
    pub pd: Pd,
}

impl QueuePair {
    /// Creates a queue pair in RESET.
    pub(crate) fn new(
        number: Qpn,
        owner: Owner,
        init: &QueuePairInit,
        queues: Queues,
        xrc_domain: u32,
    ) -> QueuePair {
        QueuePair {
            id: Identity { number, pd: init.pd, owner, service: init.service, xrc_domain, tenant: 0 },
            state: State::Reset,
            queues: WorkQueues {
                send: SendQueue::new(queues.send, init.fetching),
                receive: queues.receive,
                srq: queues.srq,
                current: None,
                send_cq: init.send_cq,
                receive_cq: init.receive_cq,
                signal_all: init.signal_all,
            },
            machine: Machine::Unconnected,
            offloads: Offloads::default(),
            attributes: Settings::default(),
            schedule: Schedule::default(),
            raised: RaisedEvents::default(),
        }
    }

    /// Returns the parts that offloads use together.
    #[inline(always)]
    pub(crate) fn view(&mut self) -> View<'_> {
        View {
            id: &self.id,
            queues: &mut self.queues,
            machine: &mut self.machine,
            offloads: &mut self.offloads,
        }
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> &Identity {
        &self.id
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    #[inline(always)]
    pub(crate) fn queues(&self) -> &WorkQueues {
        &self.queues
    }

    #[inline(always)]
    pub(crate) fn queues_mut(&mut self) -> &mut WorkQueues {
        &mut self.queues
    }

    #[inline(always)]
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    #[inline(always)]
    pub(crate) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    #[inline(always)]
    pub(crate) fn offloads(&self) -> &Offloads {
        &self.offloads
    }

    #[inline(always)]
    pub(crate) fn offloads_mut(&mut self) -> &mut Offloads {
        &mut self.offloads
    }

    /// Returns the parameters of the transport that the program has set.
    #[inline(always)]
    pub(crate) fn parameters(&self) -> &Parameters {
        &self.attributes.parameters
    }

    /// Returns true for RC on which nothing else was agreed.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.machine.is_plain()
    }

    /// Chooses between the [plain](Machine::Plain) machine of RC and the other one, after a change of what
    /// was agreed.
    fn choose_machine(&mut self) {
        self.machine.set_plain(self.id.service == Service::Rc && self.offloads.is_empty());
    }

    /// Returns the state of StRoM, which is created if there is none.
    pub(crate) fn use_strom(&mut self) -> &mut Strom {
        self.machine.set_plain(false);
        let slots = self.queues.send.ring().slots();
        self.offloads.strom.get_or_insert_with(|| Box::new(Strom::new(slots, 0, 0)))
    }

    /// Assigns the queue pair to a tenant and returns the former one.
    pub(crate) fn set_tenant(&mut self, tenant: u32) -> u32 {
        std::mem::replace(&mut self.id.tenant, tenant)
    }

    /// Connects the queue pair to itself, ready to send (RTS).
    pub(crate) fn loop_back(&mut self) {
        self.attributes.parameters = Parameters { max_rd_atomic: 1, ..Parameters::default() };
        self.machine = Machine::Loopback;
        self.state = State::Rts;
    }

    /// Handles a doorbell. In the error states, the posted work requests are flushed.
    #[inline]
    pub(crate) fn doorbell(&mut self, shared: &mut Shared) {
        self.queues.send.doorbell();
        match self.state {
            State::Err => self.flush(shared),
            State::Sqe => self.flush_send_queue(shared),
            _ => {}
        }
    }

    /// Ends the use of other objects, because the queue pair is being destroyed.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        self.remove_completions(shared);
        for cq in [self.queues.send_cq, self.queues.receive_cq] {
            shared.cqs_mut().leave(cq, self.id.pd);
        }
        match (self.id.service, self.queues.srq) {
            (Service::XrcTarget, _) => shared.objects_mut().xrc_domains.leave(self.id.xrc_domain),
            (_, Some(srq)) => shared.objects_mut().srqs.leave(srq.place),
            _ => {}
        }
    }

    /// Returns the peer whose buffers the queue pair's packets use. For queue pairs without a fixed peer, the
    /// result is a number that no peer has.
    pub(crate) fn peer(&self) -> Peer {
        self.machine.path().map_or(Peer(1 << 31 | self.id.number.get()), |path| path.address_path.peer)
    }

    /// Returns true if a receive work request is posted.
    #[inline]
    pub(crate) fn can_receive(&mut self, shared: &mut Shared) -> bool {
        match self.queues.srq {
            None => self.queues.receive.ready(),
            Some(srq) => shared.objects_mut().srqs.ready(srq.place),
        }
    }

    /// Takes the next receive work request; `None` if none is posted.
    #[inline]
    pub(crate) fn take_receive(&mut self, shared: &mut Shared) -> Option<Receive> {
        match self.queues.srq {
            None => self.queues.receive.take(),
            Some(srq) => shared.take_shared(srq.place, &self.queues.receive),
        }
    }

    /// Returns the protection domain of the keys in receive work requests.
    #[inline]
    pub(crate) fn receive_pd(&self) -> Pd {
        self.queues.srq.map_or(self.id.pd, |srq| srq.pd)
    }

    /// Returns true if requests may be sent in this state.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        matches!(self.state, State::Rts | State::Sqd)
    }

    /// Returns true if packets are accepted in this state.
    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        matches!(self.state, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }

    /// Executes a work request that sends no packet. An error is the status of its completion.
    pub(crate) fn execute_locally(&self, mem: Mem<'_>, wqe: &Wqe) -> Result<(), Status> {
        match wqe.opcode() {
            WqeOpcode::LOCAL_INV => {
                let key = Key::new(wqe.imm as u32);
                mem.invalidate(self.id.pd, self.id.owner, key).map_err(|_| Status::MwBind)
            }
            WqeOpcode::BIND_MW => {
                let binding = wqe.binding().ok_or(Status::MwBind)?;
                mem.bind(self.id.pd, self.id.owner, &binding).map_err(|_| Status::MwBind)
            }
            _ => Ok(()),
        }
    }

    /// Returns the message that a WQE describes.
    #[inline]
    pub(crate) fn message(
        &self,
        wqe: &Wqe,
        kind: Kind,
        len: u64,
        list: List,
        index: u64,
        slots: u64,
    ) -> Message<WqeContext> {
        Message {
            kind,
            len: len as u32,
            fence: wqe.flags() & flag::FENCE != 0,
            solicited: wqe.flags() & flag::SOLICITED != 0,
            context: self.context(wqe, list, index, slots),
        }
    }

    #[inline]
    pub(crate) fn context(&self, wqe: &Wqe, list: List, index: u64, slots: u64) -> WqeContext {
        let header =
            if self.queues.signal_all { wqe.header | u64::from(flag::SIGNALED) << 8 } else { wqe.header };
        let end = index + slots;
        let srq = wqe.srq();
        WqeContext {
            header,
            local: wqe.local,
            len: wqe.len as u32,
            lkey: wqe.lkey(),
            list,
            id_high: wqe.id_high(),
            index,
            end,
            srq,
        }
    }

    /// Does the same as [`decode`](QueuePair::decode); compiled out of line for the less frequent callers.
    #[inline(never)]
    pub(crate) fn decode_outlined(&self, wqe: &Wqe, index: u64) -> Option<(Kind, u64, List)> {
        self.decode(wqe, index)
    }

    /// Decodes a WQE into message kind, length and location of the data. `None` if the WQE is malformed.
    #[inline(always)]
    fn decode(&self, wqe: &Wqe, index: u64) -> Option<(Kind, u64, List)> {
        let va = wqe.remote;
        let rkey = wqe.rkey();
        let imm = wqe.imm as u32;
        let kind = match wqe.opcode() {
            WqeOpcode::WRITE => Kind::Write { va, rkey },
            WqeOpcode::READ => Kind::Read { va, rkey },
            WqeOpcode::SEND => Kind::Send,
            WqeOpcode::SEND_IMM => Kind::SendImm(imm),
            WqeOpcode::SEND_INV => Kind::SendInv(imm),
            WqeOpcode::WRITE_IMM => Kind::WriteImm { va, rkey, imm },
            WqeOpcode::COMPARE_SWAP => {
                let atomic = Atomic::CompareSwap { compare: wqe.compare, swap: wqe.swap_add };
                Kind::Atomic { va, rkey, atomic }
            }
            WqeOpcode::FETCH_ADD => Kind::Atomic { va, rkey, atomic: Atomic::FetchAdd { add: wqe.swap_add } },
            WqeOpcode::NOP
            | WqeOpcode::LOCAL_INV
            | WqeOpcode::BIND_MW
            | WqeOpcode::WAIT
            | WqeOpcode::ENABLE => return Some((Kind::Local, 0, List::One)),
            _ => return None,
        };
        if kind.is_fetch() && self.attributes.parameters.max_rd_atomic == 0 {
            return None;
        }
        if let Kind::Atomic { .. } = kind {
            return (wqe.length() == 8).then_some((kind, 8, List::One));
        }
        if wqe.flags() & flag::INLINE != 0 {
            return (!kind.is_fetch()).then_some((kind, wqe.length(), List::Inline));
        }
        self.list(wqe, index).map(|(len, list)| (kind, len, list))
    }

    /// Returns the total length and the location of a WQE's data.
    #[inline(always)]
    pub(crate) fn list(&self, wqe: &Wqe, index: u64) -> Option<(u64, List)> {
        let elements = wqe.elements();
        if elements <= 1 {
            let len = if elements == 0 { 0 } else { wqe.len & u64::from(u32::MAX) };
            return Some((len, List::One));
        }
        if elements > MAX_SGE {
            return None;
        }
        let rest = (1..elements)
            .map(|number| crate::receive_queue::element(self.queues.send.ring(), index, number))
            .map(|sge| u64::from(sge.len));
        Some(((wqe.len & u64::from(u32::MAX)) + rest.sum::<u64>(), List::Many(elements as u8)))
    }

    /// Submits a WQE that cannot be executed. The request keeps its position in the order and fails when
    /// earlier requests have completed.
    pub(crate) fn submit_failing<R: ReliableRequester>(
        &mut self,
        wqe: &Wqe,
        index: u64,
        slots: u64,
        status: Status,
    ) {
        let context = self.context(wqe, List::One, index, slots);
        let message = Message { kind: Kind::Local, len: 0, fence: false, solicited: false, context };
        if let Some(requester) = R::of(&mut self.machine) {
            requester.submit_failing(message, status);
        }
    }

    /// Completes the messages that have ended. A failed request puts the queue pair into the error state.
    /// Returns true if any message ended.
    #[inline]
    pub(crate) fn retire<R: ReliableRequester, X: Extras>(&mut self, shared: &mut Shared) -> bool {
        let mut any = false;
        let mut freed = None;
        while let Some(retired) = R::of(&mut self.machine).and_then(R::retire) {
            any = true;
            let fine = retired.status == Status::Success;
            if fine && !retired.context.signaled() {
                freed = Some(retired.context.end);
                continue;
            }
            // Slots are freed before the completion is visible, because a program that polls the completion
            // may post at once.
            self.queues.send.free(retired.context.end);
            freed = None;
            if !self.complete_send::<X>(&retired, shared) {
                return true;
            }
            if !fine {
                shared.counters_mut().req_cqe_error += 1;
                self.fail(AsyncEvent::QpFatal(self.id.number), shared);
                return true;
            }
        }
        if let Some(end) = freed {
            self.queues.send.free(end);
        }
        if X::KERNELS
            && any
            && let Some(strom) = &mut self.offloads.strom
            && let Some(requester) = R::of(&mut self.machine)
        {
            strom.answers_left(requester.numbers().0, shared.kernels_mut(), self.id.number);
        }
        if self.state == State::Sqd {
            self.drain(shared);
        }
        any
    }

    /// In SQD, raises the event `SqDrained` once when no message is in flight.
    pub(crate) fn drain(&mut self, shared: &mut Shared) {
        let idle = self.machine.outstanding() == 0;
        if idle && !self.is_sending() && !self.raised.drained {
            self.raised.drained = true;
            if self.attributes.given.sqd_event != Some(false) {
                shared.event(AsyncEvent::SqDrained(self.id.number));
            }
        }
    }

    /// Does the same as [`complete_send`](QueuePair::complete_send); compiled out of line for the less
    /// frequent callers.
    #[inline(never)]
    pub(crate) fn complete_outlined(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) -> bool {
        self.complete_send::<All>(retired, shared)
    }

    /// Writes the completion of a send work request. Returns false if the completion queue is full; the queue
    /// pair is then in the error state.
    #[inline(always)]
    fn complete_send<X: Extras>(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) -> bool {
        let kind = kind(retired);
        let fetched = retired.kind.is_fetch() || kind == CompletionKind::Calculate;
        if X::KERNELS && retired.context.is_answer() {
            // The program has not posted this work request.
            return true;
        }
        let completion = WorkCompletion {
            id: retired.context.id(),
            status: retired.status,
            kind,
            byte_len: if fetched { retired.len } else { 0 },
            imm: None,
            invalidated: None,
            qp_num: self.id.number.get(),
            src_qp: 0,
            grh: None,
            outcome: retired.verdict,
        };
        let cqe = Cqe { completion, solicited: false, wqe_index: retired.context.end, timestamp: 0 };
        self.write(self.queues.send_cq, &cqe, shared)
    }

    #[inline]
    pub(crate) fn write(&mut self, cq: u32, cqe: &Cqe, shared: &mut Shared) -> bool {
        match shared.write(cq, cqe) {
            Written::Overrun if self.state != State::Err => {
                self.fail(AsyncEvent::QpFatal(self.id.number), shared);
                false
            }
            Written::Overrun => false,
            Written::Quietly | Written::Wake => true,
        }
    }

    /// Writes the completion of the receive work request that took a message.
    pub(crate) fn complete_receive(
        &mut self,
        receive: &Receive,
        completion: WorkCompletion,
        solicited: bool,
        shared: &mut Shared,
    ) {
        self.queues.receive.free(receive);
        let cqe = Cqe { completion, solicited, wqe_index: receive.index, timestamp: 0 };
        self.write(self.queues.receive_cq, &cqe, shared);
    }

    /// Enters the error state and flushes all posted work requests in order (IBTA vol. 1 §10.3.1.7).
    pub(crate) fn fail(&mut self, event: AsyncEvent, shared: &mut Shared) {
        if self.state == State::Err {
            return;
        }
        shared.event(event);
        self.enter_error(shared);
    }

    /// Enters the error state without an event, because the program requested the transition.
    pub(crate) fn enter_error(&mut self, shared: &mut Shared) {
        if self.state == State::Err {
            return;
        }
        self.state = State::Err;
        self.offloads.end(self.id.number, shared);
        self.flush(shared);
        if self.queues.srq.is_some() && self.id.service != Service::XrcTarget {
            shared.event(AsyncEvent::LastWqe(self.id.number));
        }
    }

    /// Completes all work requests in both queues as flushed. Called on entering the error state, and after
    /// each post in that state.
    pub(crate) fn flush(&mut self, shared: &mut Shared) {
        self.flush_send_queue(shared);
        self.queues.receive.mark_error();
        while let Some(receive) = self.begun_receive() {
            self.flush_receive(&receive, shared);
        }
        // At most one round of the ring: recycled receive queues have no end.
        for _ in 0..self.queues.receive.capacity() {
            let Some(receive) = self.queues.receive.take() else { break };
            self.flush_receive(&receive, shared);
        }
    }

    /// Completes all work requests in the send queue as flushed. In ERR and SQE, called also after each post.
    pub(crate) fn flush_send_queue(&mut self, shared: &mut Shared) {
        while let Some(retired) = self.machine.flush() {
            self.flush_send(&retired, shared);
        }
        self.queues.send.release_all();
        self.queues.send.doorbell();
        loop {
            let (wqe, index, slots) = match self.queues.send.next_outlined() {
                Fetched::Empty => break,
                Fetched::Work { wqe, index, slots } => (wqe, index, slots),
                Fetched::Malformed { wqe, index } => (wqe, index, 1),
            };
            self.queues.send.take(slots);
            let kind = self.decode_outlined(&wqe, index).map_or(Kind::Local, |(kind, _, _)| kind);
            let context = self.context(&wqe, List::One, index, slots);
            let status = Status::WrFlushed;
            let verdict = Verdict::Done;
            self.flush_send(&Retired { context, len: 0, kind, status, verdict }, shared);
        }
    }

    /// Returns the oldest receive work request that a message has taken and not completed.
    fn begun_receive(&mut self) -> Option<Receive> {
        let bound = self.machine.irn_mut().and_then(|irn| irn.bound.pop());
        bound.or_else(|| self.queues.current.take())
    }

    fn flush_receive(&mut self, receive: &Receive, shared: &mut Shared) {
        shared.counters_mut().resp_cqe_flush_error += 1;
        let completion = self.received(receive, Status::WrFlushed);
        self.complete_receive(receive, completion, false, shared);
    }

    fn flush_send(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) {
        shared.counters_mut().req_cqe_flush_error += 1;
        self.complete_outlined(retired, shared);
        self.queues.send.free(retired.context.end);
    }

    /// Returns a completion for `receive` without message-specific fields.
    pub(crate) fn received(&self, receive: &Receive, status: Status) -> WorkCompletion {
        WorkCompletion {
            id: receive.id,
            status,
            kind: CompletionKind::Receive,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qp_num: self.id.number.get(),
            src_qp: 0,
            grh: None,
            outcome: Verdict::Done,
        }
    }

    /// Returns the time at which `expire` is due.
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Instant {
        match &self.machine {
            Machine::Plain(connection) => connection.requester.deadline(),
            machine => machine.deadline().min(self.offloads.deadline()),
        }
    }

    /// Runs the timers that are due at `now`. All packets that arrived before `rx_drained_at` have been
    /// processed.
    pub(crate) fn expire(&mut self, now: Instant, rx_drained_at: Instant, shared: &mut Shared) {
        self.machine.expire(now, rx_drained_at, shared.counters_mut());
        match &self.machine {
            Machine::Irn(_) => self.retire::<reliable::Irn, All>(shared),
            _ => self.retire::<GoBackN, All>(shared),
        };
        self.offloads.expire(now, &mut self.machine, shared);
    }
}

#[inline]
fn kind(retired: &Retired<WqeContext>) -> CompletionKind {
    match retired.kind {
        Kind::Write { .. } | Kind::WriteImm { .. } => CompletionKind::Write,
        Kind::Read { .. } => CompletionKind::Read,
        Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) => CompletionKind::Send,
        Kind::Atomic { atomic: Atomic::CompareSwap { .. }, .. } => CompletionKind::CompareSwap,
        Kind::Atomic { atomic: Atomic::FetchAdd { .. }, .. } => CompletionKind::FetchAdd,
        Kind::Rpc { .. } => CompletionKind::Rpc,
        Kind::RpcWrite { .. } => CompletionKind::RpcWrite,
        // Local work requests, PRISM operations, and work requests that were flushed before they were
        // decoded.
        Kind::Local | Kind::Prism(_) => match WqeOpcode(retired.context.header as u8) {
            WqeOpcode::LOCAL_INV => CompletionKind::LocalInv,
            WqeOpcode::BIND_MW => CompletionKind::BindWindow,
            WqeOpcode::WAIT => CompletionKind::Wait,
            WqeOpcode::ENABLE => CompletionKind::Enable,
            opcode if Calculation::of(opcode).is_some() => CompletionKind::Calculate,
            WqeOpcode::RPC => CompletionKind::Rpc,
            WqeOpcode::RPC_WRITE => CompletionKind::RpcWrite,
            WqeOpcode::PRISM_READ => CompletionKind::Read,
            WqeOpcode::PRISM_WRITE => CompletionKind::Write,
            WqeOpcode::PRISM_COMPARE_SWAP => CompletionKind::CompareSwap,
            WqeOpcode::PRISM_FETCH_ADD => CompletionKind::FetchAdd,
            _ => CompletionKind::Nop,
        },
    }
}

/// Returns true if all earlier work requests must have completed: they may still need the key that a
/// LOCAL_INV invalidates, and a fenced BIND_MW must not bind earlier.
#[inline]
pub(crate) fn waits_for_all(wqe: &Wqe) -> bool {
    let opcode = wqe.opcode();
    opcode == WqeOpcode::LOCAL_INV || opcode == WqeOpcode::BIND_MW && wqe.flags() & flag::FENCE != 0
}
