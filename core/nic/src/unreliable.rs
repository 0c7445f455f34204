//! Queue pairs of the unreliable services: one message at a time leaves and has ended when it has left; what arrives is taken
//! or dropped, and nobody is told.
//!
//! A failed send brings such a queue pair to SQE, not to ERR: its send queue is flushed until the program brings it back to
//! RTS, its receive queue goes on (IBTA vol. 1 §10.3.1.6).

use remora_memory::Mem;
use remora_transport::rc::{Kind, Retired};
use remora_transport::state::State;
use remora_transport::{Instant, Outcome, Status, uc};
use remora_wire::frame::Egress;
use remora_wire::prism::Verdict;
use remora_wire::{bth, packet};

use crate::chain::Start;
use crate::datagram::Datagrams;
use crate::egress::{Sent, emit_outlined};
use crate::gather;
use crate::ingress::Arrived;
use crate::nic::Shared;
use crate::queue_pair::{PeerPath, QueuePair, WqeContext};
use crate::send_queue::Fetched;
use crate::wqe::Wqe;

/// The machines of an unreliable queue pair.
pub(crate) enum Unreliable {
    Connected(Box<Connected>),
    Datagrams(Box<Datagrams>),
}

/// Those of an unreliable connection.
pub(crate) struct Connected {
    pub path: PeerPath,
    pub requester: uc::Requester<WqeContext>,
    pub responder: uc::Responder,
}

impl Unreliable {
    fn is_busy(&self) -> bool {
        match self {
            Unreliable::Connected(connected) => connected.requester.is_busy(),
            Unreliable::Datagrams(datagrams) => datagrams.sender.is_busy(),
        }
    }

    /// Ends the message under way.
    pub fn end(&mut self, status: Status) -> Option<Retired<WqeContext>> {
        match self {
            Unreliable::Connected(connected) => connected.requester.end(status),
            Unreliable::Datagrams(datagrams) => datagrams.sender.end(status),
        }
    }
}

impl QueuePair {
    /// Is a message of an unreliable service under way?
    pub fn is_sending(&self) -> bool {
        self.unreliable.as_ref().is_some_and(Unreliable::is_busy)
    }

    /// Sends the next packet of an unreliable queue pair.
    pub fn request_unreliable(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if self.unreliable.is_none() || !self.may_send() || self.is_held(now) {
            return None;
        }
        while !self.is_sending() {
            if !self.begin_next(mem, shared) {
                return None;
            }
        }
        let (sent, retired) = match self.unreliable.as_mut()? {
            Unreliable::Connected(connected) => connected.transmit(mem, self.pd, &self.send, out, shared)?,
            Unreliable::Datagrams(datagrams) => datagrams.transmit(mem, self.pd, &self.send, out, shared)?,
        };
        if let Some(retired) = retired {
            self.end_send(&retired, shared);
        }
        Some(sent)
    }

    /// Takes the next work request. False: there is none to take now.
    fn begin_next(&mut self, mem: Mem<'_>, shared: &mut Shared) -> bool {
        if self.state != State::Rts {
            return false;
        }
        match self.send.next_outlined() {
            Fetched::Empty => return false,
            Fetched::Malformed { wqe, index } => {
                self.send.take(1);
                self.refuse(&wqe, index, 1, Status::LocalQpOperation, shared);
            }
            Fetched::Work { wqe, index, slots } => {
                let start = match wqe.opcode().may_have_to_wait() {
                    true => self.may_start(&wqe, 0, shared),
                    false => Start::Now,
                };
                if start == Start::Later {
                    return false;
                }
                self.send.take(slots);
                shared.counters.wqes_executed += 1;
                let begun = match start {
                    Start::Never(status) => Err(status),
                    _ => self.begin(mem, &wqe, index, slots, shared),
                };
                if let Err(status) = begun {
                    self.refuse(&wqe, index, slots, status, shared);
                }
            }
        }
        true
    }

    fn begin(
        &mut self,
        mem: Mem<'_>,
        wqe: &Wqe,
        index: u64,
        slots: u64,
        shared: &mut Shared,
    ) -> Result<(), Status> {
        let (kind, len, list) = self.decode_outlined(wqe, index).ok_or(Status::LocalQpOperation)?;
        let message = self.message(wqe, kind, len, list, index, slots);
        if kind == Kind::Local {
            self.execute_locally(mem, wqe)?;
            let (context, status) = (message.context, Status::Success);
            let retired = Retired { context, len: 0, kind, status, verdict: Verdict::Done };
            self.end_send(&retired, shared);
            return Ok(());
        }
        if len > 1 << 31 {
            return Err(Status::LocalLength);
        }
        match &mut self.unreliable {
            Some(Unreliable::Connected(connected)) if uc::carries(&kind) => {
                connected.requester.submit(message);
                Ok(())
            }
            Some(Unreliable::Datagrams(datagrams)) => datagrams.begin(self.pd, wqe, &message, shared),
            _ => Err(Status::LocalQpOperation),
        }
    }

    /// A work request that cannot be executed.
    fn refuse(&mut self, wqe: &Wqe, index: u64, slots: u64, status: Status, shared: &mut Shared) {
        let kind = self.decode_outlined(wqe, index).map_or(Kind::Local, |(kind, _, _)| kind);
        let message = self.message(wqe, kind, 0, crate::queue_pair::List::One, index, slots);
        let (context, verdict) = (message.context, Verdict::Done);
        self.end_send(&Retired { context, len: 0, kind, status, verdict }, shared);
    }

    /// A send work request has ended.
    fn end_send(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) {
        self.send.free(retired.context.end);
        let fine = retired.status == Status::Success;
        if (!fine || retired.context.signaled()) && !self.complete_outlined(retired, shared) {
            // The completion queue is full: the queue pair is in ERR already.
            return;
        }
        if !fine {
            shared.counters.req_cqe_error += 1;
            self.state = State::Sqe;
            self.flush_send_queue(shared);
        }
        if self.state == State::Sqd {
            self.drain(shared);
        }
    }

    /// Is the packet one for this queue pair, whole, and from where it should be?
    #[cold]
    pub fn admits_unreliable(
        &mut self,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) -> bool {
        let hears = self.may_receive();
        let service = packet.bth.opcode.service();
        let Some(unreliable) = self.unreliable.as_mut().filter(|_| hears) else {
            shared.counters.unknown_qp += 1;
            return false;
        };
        let fits = packet.bth.pkey & 0x7fff == 0x7fff
            && packet.bth.tver == 0
            && match unreliable {
                Unreliable::Connected(connected) => {
                    matches!(service, Some(remora_wire::Service::Uc | remora_wire::Service::Cnp))
                        && connected.path.is_from(&arrived.source.address)
                }
                Unreliable::Datagrams(_) => service == Some(remora_wire::Service::Ud),
            };
        if !fits {
            shared.counters.unknown_qp += 1;
            return false;
        }
        let intact = !shared.checks_icrc
            || match unreliable {
                Unreliable::Connected(connected) => connected.path.intact(arrived, &mut shared.spans),
                Unreliable::Datagrams(datagrams) => datagrams.intact(arrived, shared),
            };
        shared.counters.rx_icrc_encapsulated += u64::from(!intact);
        intact
    }

    /// A packet for an unreliable queue pair.
    #[cold]
    pub fn take_unreliable(
        &mut self,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        self.establish(shared);
        match &mut self.unreliable {
            Some(Unreliable::Connected(connected)) => {
                let action = connected.responder.receive(packet, &mut shared.counters);
                if action == remora_transport::Action::Nothing {
                    return;
                }
                let outcome = self.execute_outlined(mem, action, packet.payload, shared);
                if let Some(Unreliable::Connected(connected)) = &mut self.unreliable {
                    connected.responder.conclude(outcome, &mut shared.counters);
                }
            }
            Some(Unreliable::Datagrams(datagrams)) => {
                let qkey = datagrams.sender.qkey;
                self.take_datagram(mem, arrived, packet, qkey, shared);
            }
            None => {}
        }
    }

    /// A message of an unreliable service did not fit its receive work request, or that was not writable. In the first case
    /// the work request waits for the next message; the second is the program's fault and ends the queue pair.
    pub fn undelivered_quietly(
        &mut self,
        receive: &crate::receive_queue::Receive,
        too_long: bool,
        shared: &mut Shared,
    ) -> Outcome {
        if too_long {
            shared.counters.resp_local_length_error += 1;
        } else {
            self.current = None;
            shared.counters.resp_cqe_error += 1;
            let completion = self.received(receive, Status::LocalProtection);
            self.complete_receive(receive, completion, false, shared);
            self.fail(crate::event::AsyncEvent::QpFatal(self.number), shared);
        }
        Outcome::Nak(remora_wire::NakCode::INVALID_REQUEST)
    }
}

impl Connected {
    /// Sends the next packet of the message under way, and gives the message if that was its end.
    fn transmit(
        &mut self,
        mem: Mem<'_>,
        pd: remora_memory::Pd,
        send: &crate::send_queue::SendQueue,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<(Sent, Option<Retired<WqeContext>>)> {
        let plan = self.requester.plan()?;
        let context = *self.requester.context()?;
        let bth = bth::Repr {
            solicited: plan.solicited,
            pad: packet::pad_for(plan.len as usize),
            ..bth::Repr::new(plan.opcode, self.path.remote, plan.psn)
        };
        let sent = emit_outlined(
            &mut self.path.address_path,
            out,
            &mut shared.counters,
            &bth,
            &plan.ext,
            plan.len,
            &mut |bytes| gather::gather_outlined(mem, pd, send.ring(), &context, plan.offset, bytes),
        );
        let retired = match sent {
            Sent::Yes(_) => self.requester.sent(&plan),
            Sent::Denied => self.requester.end(Status::LocalProtection),
            Sent::NoRoom => None,
        };
        Some((sent, retired))
    }
}
