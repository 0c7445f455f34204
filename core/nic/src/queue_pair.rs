//! A queue pair: its work queues, its machines and the completion of its work.

mod congestion;
mod datagram;
mod extended;
mod irn;
mod modify;
mod prism;
mod strom;
mod submit;
mod unreliable;

use remora_memory::{Access, Key, Mem, Owner, Pd};
use remora_transport::congestion::dcqcn::NotificationPoint;
use remora_transport::rc::{Allowed, Kind, Message, Retired};
use remora_transport::state::{Service, State};
use remora_transport::{Atomic, Instant, Status};
use remora_wire::Qpn;
use remora_wire::frame::Peer;
use remora_wire::prism::Verdict;

use crate::attributes::Settings;
use crate::chain::Calculation;
use crate::completion_queue::Written;
use crate::config::QueuePairInit;
use crate::congestion::Congestion;
use crate::context::{List, WqeContext};
use crate::cqe::Cqe;
use crate::event::AsyncEvent;
use crate::kernel::Strom;
use crate::machine::Machine;
use crate::prism::Prism;
use crate::receive_queue::{Receive, ReceiveQueue};
use crate::reliable::{self, GoBackN, ReliableRequester};
use crate::request::{CompletionKind, WorkCompletion};
use crate::send_queue::{Fetched, SendQueue};
use crate::shared::Shared;
use crate::wqe::{MAX_SGE, Wqe, WqeOpcode, flag};

/// The number of the queue pair of the general services interface.
pub(crate) const GSI: u32 = 1;
/// The Q_Key of queue pair 1 (IBTA vol. 1 §10.2.5).
pub const GSI_QKEY: u32 = remora_wire::mad::QKEY;

/// A queue pair.
pub(crate) struct QueuePair {
    pub number: Qpn,
    pub state: State,
    pub pd: Pd,
    /// Its name to memory windows of type 2B.
    pub owner: Owner,
    pub send: SendQueue,
    pub receive: ReceiveQueue,
    pub send_cq: u32,
    pub receive_cq: u32,
    pub signal_all: bool,
    pub allowed: Allowed,
    pub attributes: Settings,
    pub machine: Machine,
    /// Receive work request of the message that is arriving.
    pub current: Option<Receive>,
    /// It stands in the scheduler's line.
    pub queued: bool,
    /// Transmit queues that it has found stopped in its turn, and those in whose lines it stands; by bit.
    pub awaited: u64,
    pub parked: u64,
    /// The first packet in RTR has been announced.
    pub established: bool,
    /// The event that SQD has drained was raised.
    pub drained: bool,
    /// The shared receive queue that it takes from; else `receive` is its own. Of an XRC target: the one that
    /// the present message names.
    pub srq: Option<Srq>,
    pub service: Service,
    /// Of an XRC target: its domain.
    pub xrc_domain: u32,
    /// Its congestion control and rate limit, if it has any.
    pub congestion: Option<Box<Congestion>>,
    /// The notification point for marked packets of the peer.
    pub marks: NotificationPoint,
    pub cnp_due: bool,
    /// A WAIT holds its send queue; it stands in a completion queue's line.
    pub waiting: bool,
    /// What it has for a peer that agreed on PRISM.
    pub prism: Option<Box<Prism>>,
    /// What it has for a peer that agreed on StRoM.
    pub strom: Option<Box<Strom>>,
    /// The tenant whose turns it shares.
    pub tenant: u32,
}

/// A shared receive queue, as a queue pair knows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Srq {
    pub place: u32,
    /// The domain of its work requests.
    pub pd: Pd,
}

impl QueuePair {
    /// A queue pair in RESET.
    pub fn new(
        number: Qpn,
        owner: Owner,
        init: QueuePairInit,
        receive: ReceiveQueue,
        srq: Option<Srq>,
        xrc_domain: u32,
    ) -> QueuePair {
        QueuePair {
            number,
            state: State::Reset,
            pd: init.pd,
            owner,
            send: SendQueue::new(init.send_ring, init.fetching),
            receive,
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            signal_all: init.signal_all,
            allowed: Default::default(),
            attributes: Settings::default(),
            machine: Machine::Unconnected,
            current: None,
            queued: false,
            awaited: 0,
            parked: 0,
            established: false,
            drained: false,
            srq,
            service: init.service,
            xrc_domain,
            congestion: None,
            marks: NotificationPoint::default(),
            cnp_due: false,
            waiting: false,
            prism: None,
            strom: None,
            tenant: 0,
        }
    }

    /// The peer whose buffers its packets take. Where each message has a peer of its own, it is a number that
    /// no peer has.
    pub fn peer(&self) -> Peer {
        self.machine.path().map_or(Peer(1 << 31 | self.number.get()), |path| path.address_path.peer)
    }

    /// Is a receive work request posted?
    #[inline]
    pub fn can_receive(&mut self, shared: &mut Shared) -> bool {
        match self.srq {
            None => self.receive.ready(),
            Some(srq) => shared.srqs.ready(srq.place),
        }
    }

    /// Takes the next receive work request.
    #[inline]
    pub fn take_receive(&mut self, shared: &mut Shared) -> Option<Receive> {
        match self.srq {
            None => self.receive.take(),
            Some(srq) => shared.take_shared(srq.place, &self.receive),
        }
    }

    /// The domain of its receive work requests' keys.
    #[inline]
    pub fn receive_pd(&self) -> Pd {
        self.srq.map_or(self.pd, |srq| srq.pd)
    }

    /// May requests leave in this state?
    #[inline]
    pub fn may_send(&self) -> bool {
        matches!(self.state, State::Rts | State::Sqd)
    }

    /// Does the queue pair take packets in this state?
    #[inline]
    pub fn may_receive(&self) -> bool {
        matches!(self.state, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }

    /// Executes work that sends nothing. The error is the status with which it ends.
    pub fn execute_locally(&self, mem: Mem<'_>, wqe: &Wqe) -> Result<(), Status> {
        match wqe.opcode() {
            WqeOpcode::LOCAL_INV => {
                let key = Key::new(wqe.imm as u32);
                mem.invalidate(self.pd, self.owner, key).map_err(|_| Status::MwBind)
            }
            WqeOpcode::BIND_MW => {
                let binding = wqe.binding().ok_or(Status::MwBind)?;
                mem.bind(self.pd, self.owner, &binding).map_err(|_| Status::MwBind)
            }
            _ => Ok(()),
        }
    }

    /// The message that a WQE asks for.
    #[inline]
    pub fn message(
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
    pub fn context(&self, wqe: &Wqe, list: List, index: u64, slots: u64) -> WqeContext {
        let header = if self.signal_all { wqe.header | u64::from(flag::SIGNALED) << 8 } else { wqe.header };
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

    /// As [`decode`](QueuePair::decode), compiled once for what is not busy.
    #[inline(never)]
    pub fn decode_outlined(&self, wqe: &Wqe, index: u64) -> Option<(Kind, u64, List)> {
        self.decode(wqe, index)
    }

    /// What a WQE asks for: kind, length and list. None: it is malformed.
    #[inline(always)]
    fn decode(&self, wqe: &Wqe, index: u64) -> Option<(Kind, u64, List)> {
        let (va, rkey, imm) = (wqe.remote, wqe.rkey(), wqe.imm as u32);
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

    /// Bytes of a WQE's list, and where it is.
    #[inline(always)]
    pub fn list(&self, wqe: &Wqe, index: u64) -> Option<(u64, List)> {
        let elements = wqe.elements();
        if elements <= 1 {
            let len = if elements == 0 { 0 } else { wqe.len & u64::from(u32::MAX) };
            return Some((len, List::One));
        }
        if elements > MAX_SGE {
            return None;
        }
        let rest = (1..elements)
            .map(|number| crate::receive_queue::element(self.send.ring(), index, number))
            .map(|sge| u64::from(sge.len));
        Some(((wqe.len & u64::from(u32::MAX)) + rest.sum::<u64>(), List::Many(elements as u8)))
    }

    /// Submits a WQE that cannot be executed: it keeps its place in the order and fails there.
    pub fn submit_failing<R: ReliableRequester>(
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

    /// Completes what has ended. Enters the error state behind a request in error. True if anything ended.
    #[inline]
    pub fn retire<R: ReliableRequester>(&mut self, shared: &mut Shared) -> bool {
        let (mut any, mut freed) = (false, None);
        while let Some(retired) = R::of(&mut self.machine).and_then(R::retire) {
            any = true;
            let fine = retired.status == Status::Success;
            if fine && !retired.context.signaled() {
                freed = Some(retired.context.end);
                continue;
            }
            // The slots are free before the completion is visible: a program that polls it may post at once.
            self.send.free(retired.context.end);
            freed = None;
            if !self.complete_send(&retired, shared) {
                return true;
            }
            if !fine {
                shared.counters.req_cqe_error += 1;
                self.fail(AsyncEvent::QpFatal(self.number), shared);
                return true;
            }
        }
        if let Some(end) = freed {
            self.send.free(end);
        }
        if any
            && let Some(strom) = &mut self.strom
            && let Some(requester) = R::of(&mut self.machine)
        {
            strom.answers_left(requester.numbers().0, &mut shared.kernels, self.number);
        }
        if self.state == State::Sqd {
            self.drain(shared);
        }
        any
    }

    /// Removes the oldest message under way, unfinished.
    fn next_flushed(&mut self) -> Option<Retired<WqeContext>> {
        match &mut self.machine {
            Machine::Rc(connection) => connection.requester.flush(),
            Machine::Irn(irn) => irn.requester.flush(),
            _ => None,
        }
    }

    /// SQD: raises an event once when nothing is under way any more.
    pub fn drain(&mut self, shared: &mut Shared) {
        let outstanding = match &self.machine {
            Machine::Rc(connection) => connection.requester.outstanding(),
            Machine::Irn(irn) => irn.requester.outstanding(),
            _ => 0,
        };
        let idle = outstanding == 0;
        if idle && !self.is_sending() && !self.drained {
            self.drained = true;
            if self.attributes.given.sqd_event != Some(false) {
                shared.event(AsyncEvent::SqDrained(self.number));
            }
        }
    }

    /// As [`complete_send`](QueuePair::complete_send), compiled once for what is not busy.
    #[inline(never)]
    pub fn complete_outlined(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) -> bool {
        self.complete_send(retired, shared)
    }

    /// False: the completion queue is full, and the queue pair went to error.
    #[inline(always)]
    fn complete_send(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) -> bool {
        let kind = kind(retired);
        let fetched = retired.kind.is_fetch() || kind == CompletionKind::Calculate;
        if retired.context.is_answer() {
            // No work of the program's.
            return true;
        }
        let completion = WorkCompletion {
            id: retired.context.id(),
            status: retired.status,
            kind,
            byte_len: if fetched { retired.len } else { 0 },
            imm: None,
            invalidated: None,
            qp_num: self.number.get(),
            src_qp: 0,
            grh: None,
            outcome: retired.verdict,
        };
        let cqe = Cqe { completion, solicited: false, wqe_index: retired.context.end, timestamp: 0 };
        self.write(self.send_cq, &cqe, shared)
    }

    #[inline]
    pub fn write(&mut self, cq: u32, cqe: &Cqe, shared: &mut Shared) -> bool {
        match shared.write(cq, cqe) {
            Written::Overrun if self.state != State::Err => {
                self.fail(AsyncEvent::QpFatal(self.number), shared);
                false
            }
            Written::Overrun => false,
            Written::Quietly | Written::Wake => true,
        }
    }

    /// Completes the receive that has taken a message.
    pub fn complete_receive(
        &mut self,
        receive: &Receive,
        completion: WorkCompletion,
        solicited: bool,
        shared: &mut Shared,
    ) {
        self.receive.free(receive);
        let cqe = Cqe { completion, solicited, wqe_index: receive.index, timestamp: 0 };
        self.write(self.receive_cq, &cqe, shared);
    }

    /// Enters the error state: everything posted is flushed, in order (IBTA vol. 1 §10.3.1.7).
    pub fn fail(&mut self, event: AsyncEvent, shared: &mut Shared) {
        if self.state == State::Err {
            return;
        }
        shared.event(event);
        self.enter_error(shared);
    }

    /// As `fail`, without an event: the program itself asked for it.
    pub fn enter_error(&mut self, shared: &mut Shared) {
        if self.state == State::Err {
            return;
        }
        self.state = State::Err;
        self.end_prism(shared);
        self.end_strom(shared);
        self.flush(shared);
        if self.srq.is_some() && self.service != Service::XrcTarget {
            shared.event(AsyncEvent::LastWqe(self.number));
        }
    }

    /// Completes all work in both queues as flushed: on entering the error state and when work is posted in
    /// it.
    pub fn flush(&mut self, shared: &mut Shared) {
        self.flush_send_queue(shared);
        self.receive.mark_error();
        while let Some(receive) = self.begun_receive() {
            self.flush_receive(&receive, shared);
        }
        // One round of the ring: an index that runs ahead of the ring is never reached, and recycled receives
        // have no end.
        for _ in 0..self.receive.capacity() {
            let Some(receive) = self.receive.take() else { break };
            self.flush_receive(&receive, shared);
        }
    }

    /// Completes all work in the send queue as flushed, also that which is posted later, in ERR and SQE.
    pub fn flush_send_queue(&mut self, shared: &mut Shared) {
        if let Some(retired) =
            self.machine.unreliable_mut().and_then(|machine| machine.end(Status::WrFlushed))
        {
            self.flush_send(&retired, shared);
        }
        while let Some(retired) = self.next_flushed() {
            self.flush_send(&retired, shared);
        }
        self.send.release_all();
        self.send.doorbell();
        loop {
            let (wqe, index, slots) = match self.send.next_outlined() {
                Fetched::Empty => break,
                Fetched::Work { wqe, index, slots } => (wqe, index, slots),
                Fetched::Malformed { wqe, index } => (wqe, index, 1),
            };
            self.send.take(slots);
            let kind = self.decode_outlined(&wqe, index).map_or(Kind::Local, |(kind, _, _)| kind);
            let context = self.context(&wqe, List::One, index, slots);
            let (status, verdict) = (Status::WrFlushed, Verdict::Done);
            self.flush_send(&Retired { context, len: 0, kind, status, verdict }, shared);
        }
    }

    /// The oldest receive work request that a message has taken and not completed.
    fn begun_receive(&mut self) -> Option<Receive> {
        let bound = self.machine.irn_mut().and_then(|irn| irn.bound.pop());
        bound.or_else(|| self.current.take())
    }

    fn flush_receive(&mut self, receive: &Receive, shared: &mut Shared) {
        shared.counters.resp_cqe_flush_error += 1;
        let completion = self.received(receive, Status::WrFlushed);
        self.complete_receive(receive, completion, false, shared);
    }

    fn flush_send(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) {
        shared.counters.req_cqe_flush_error += 1;
        self.complete_outlined(retired, shared);
        self.send.free(retired.context.end);
    }

    /// A bare completion for `receive`.
    pub fn received(&self, receive: &Receive, status: Status) -> WorkCompletion {
        WorkCompletion {
            id: receive.id,
            status,
            kind: CompletionKind::Receive,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qp_num: self.number.get(),
            src_qp: 0,
            grh: None,
            outcome: Verdict::Done,
        }
    }

    /// When `expire` is due.
    #[inline]
    pub fn deadline(&self) -> Instant {
        let machines = match self.machine.rc() {
            Some(connection) => connection.requester.deadline(),
            None => self.deadline_irn(),
        };
        machines.min(self.congestion_deadline()).min(self.deadline_prism()).min(self.deadline_strom())
    }

    /// Runs the timers that are due at `now`. Packets that arrived until `rx_drained_at` have been received.
    pub fn expire(&mut self, now: Instant, rx_drained_at: Instant, shared: &mut Shared) {
        self.expire_congestion(now);
        if let Some(connection) = self.machine.rc_mut() {
            connection.requester.expire(now, rx_drained_at, &mut shared.counters);
            self.retire::<GoBackN>(shared);
        } else {
            self.expire_irn(now, rx_drained_at, shared);
            self.retire::<reliable::Irn>(shared);
        }
        self.expire_prism(now, shared);
        self.expire_strom(now);
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
        // Local work, operations of PRISM, and work that is flushed before it was decoded.
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

/// Must everything before this work request have ended? Earlier work may still need a key that it
/// invalidates; a fenced BIND_MW must not bind before.
#[inline]
pub(crate) fn waits_for_all(wqe: &Wqe) -> bool {
    let opcode = wqe.opcode();
    opcode == WqeOpcode::LOCAL_INV || opcode == WqeOpcode::BIND_MW && wqe.flags() & flag::FENCE != 0
}

/// Rights that the access flags of a region or queue pair give the peer.
pub(crate) fn allowed(access: Access) -> Allowed {
    Allowed {
        write: access.contains(Access::REMOTE_WRITE),
        read: access.contains(Access::REMOTE_READ),
        atomic: access.contains(Access::REMOTE_ATOMIC),
    }
}
