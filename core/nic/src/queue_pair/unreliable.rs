//! The unreliable services on a queue pair: one message at a time leaves; what arrives is taken, or dropped
//! without a NAK.

use remora_memory::Mem;
use remora_transport::rc::{Kind, Retired};
use remora_transport::state::{Service, State};
use remora_transport::{Action, Instant, Outcome, Status, uc};
use remora_wire::frame::Egress;
use remora_wire::prism::Verdict;
use remora_wire::{NakCode, packet};

use super::QueuePair;
use crate::arrived::Arrived;
use crate::chain::{Start, may_start};
use crate::context::{List, WqeContext};
use crate::emit::Sent;
use crate::event::AsyncEvent;
use crate::receive_queue::Receive;
use crate::send_queue::Fetched;
use crate::shared::{Shared, SharedView};
use crate::unreliable::Unreliable;
use crate::wqe::Wqe;

impl QueuePair {
    /// Returns true if a message of an unreliable service is partially sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.machine.unreliable().is_some_and(Unreliable::is_busy)
    }

    /// Sends the next packet of an unreliable queue pair.
    pub(crate) fn request_unreliable(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.machine.is_unreliable() || !self.may_send() || self.is_held(now) {
            return None;
        }
        while !self.is_sending() {
            if !self.begin_next(mem, shared) {
                return None;
            }
        }
        let (sent, retired) = match self.machine.unreliable_mut()? {
            Unreliable::Connected(connected) => {
                connected.transmit(mem, self.id.pd, &self.queues.send, out, shared)?
            }
            Unreliable::Datagrams(datagrams) => {
                datagrams.transmit(mem, self.id.pd, &self.queues.send, out, shared)?
            }
        };
        if let Some(retired) = retired {
            self.end_send(&retired, shared);
        }
        Some(sent)
    }

    /// Starts the next work request. Returns false if none can start now.
    fn begin_next(&mut self, mem: Mem<'_>, shared: &mut Shared) -> bool {
        if self.state != State::Rts {
            return false;
        }
        match self.queues.send.next_outlined() {
            Fetched::Empty => return false,
            Fetched::Malformed { wqe, index } => {
                self.queues.send.take(1);
                self.refuse(&wqe, index, 1, Status::LocalQpOperation, shared);
            }
            Fetched::Work { wqe, index, slots } => {
                let start = match wqe.opcode().may_have_to_wait() {
                    true => may_start(self, &wqe, 0, shared),
                    false => Start::Now,
                };
                if start == Start::Later {
                    return false;
                }
                self.queues.send.take(slots);
                shared.counters_mut().wqes_executed += 1;
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
            let context = message.context;
            let status = Status::Success;
            let retired = Retired { context, len: 0, kind, status, verdict: Verdict::Done };
            self.end_send(&retired, shared);
            return Ok(());
        }
        if len > 1 << 31 {
            return Err(Status::LocalLength);
        }
        match self.machine.unreliable_mut() {
            Some(Unreliable::Connected(connected)) if uc::carries(&kind) => {
                connected.requester.submit(message);
                Ok(())
            }
            Some(Unreliable::Datagrams(datagrams)) => datagrams.begin(self.id.pd, wqe, &message, shared),
            _ => Err(Status::LocalQpOperation),
        }
    }

    /// A work request that cannot be executed.
    fn refuse(&mut self, wqe: &Wqe, index: u64, slots: u64, status: Status, shared: &mut Shared) {
        let kind = self.decode_outlined(wqe, index).map_or(Kind::Local, |(kind, _, _)| kind);
        let message = self.message(wqe, kind, 0, List::One, index, slots);
        let context = message.context;
        let verdict = Verdict::Done;
        self.end_send(&Retired { context, len: 0, kind, status, verdict }, shared);
    }

    /// A send work request has ended.
    fn end_send(&mut self, retired: &Retired<WqeContext>, shared: &mut Shared) {
        self.queues.send.free(retired.context.end);
        let fine = retired.status == Status::Success;
        if (!fine || retired.context.signaled()) && !self.complete_outlined(retired, shared) {
            // The completion queue is full: the queue pair is in ERR already.
            return;
        }
        if !fine {
            shared.counters_mut().req_cqe_error += 1;
            self.state = State::Sqe;
            self.flush_send_queue(shared);
        }
        if self.state == State::Sqd {
            self.drain(shared);
        }
    }

    /// Returns true if the packet is intact and is addressed to this queue pair by its peer.
    #[cold]
    pub(crate) fn admits_unreliable(
        &mut self,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) -> bool {
        let hears = self.may_receive();
        let service = packet.bth.opcode().service();
        let Some(unreliable) = self.machine.unreliable_mut().filter(|_| hears) else {
            shared.counters_mut().unknown_qp += 1;
            return false;
        };
        let fits = packet.bth.pkey() & 0x7fff == 0x7fff
            && packet.bth.tver() == 0
            && match unreliable {
                Unreliable::Connected(connected) => {
                    matches!(service, Some(remora_wire::Service::Uc | remora_wire::Service::Cnp))
                        && connected.path.is_from(arrived)
                }
                Unreliable::Datagrams(_) => service == Some(remora_wire::Service::Ud),
            };
        if !fits {
            shared.counters_mut().unknown_qp += 1;
            return false;
        }
        let intact = !shared.properties().checks_icrc
            || !arrived.is_sealed()
            || match unreliable {
                Unreliable::Connected(connected) => {
                    let SharedView { properties, spans, now, .. } = shared.view();
                    connected.path.intact(arrived, properties.endpoint.udp_port, spans, now)
                }
                Unreliable::Datagrams(datagrams) => datagrams.intact(arrived, shared),
            };
        shared.counters_mut().rx_icrc_encapsulated += u64::from(!intact);
        intact
    }

    /// A packet for an unreliable queue pair.
    #[cold]
    pub(crate) fn take_unreliable(
        &mut self,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        if self.id.service == Service::Uc {
            // Datagrams establish no communication.
            self.establish(shared);
        }
        match self.machine.unreliable_mut() {
            Some(Unreliable::Connected(connected)) => {
                let action = connected.responder.receive(packet, shared.counters_mut());
                if action == Action::Nothing {
                    return;
                }
                let outcome = self.execute_outlined(mem, action, packet.payload, shared);
                if let Some(Unreliable::Connected(connected)) = self.machine.unreliable_mut() {
                    connected.responder.conclude(outcome, shared.counters_mut());
                }
            }
            Some(Unreliable::Datagrams(datagrams)) => {
                let qkey = datagrams.sender.qkey;
                self.take_datagram(mem, arrived, packet, qkey, shared);
            }
            None => {}
        }
    }

    /// A message of an unreliable service did not fit its receive work request, or the memory was not
    /// writable. In the first case the work request waits for the next message. The second is the program's
    /// fault and ends the queue pair.
    pub(crate) fn undelivered_quietly(
        &mut self,
        receive: &Receive,
        too_long: bool,
        shared: &mut Shared,
    ) -> Outcome {
        if too_long {
            shared.counters_mut().resp_local_length_error += 1;
        } else {
            self.queues.current = None;
            shared.counters_mut().resp_cqe_error += 1;
            let completion = self.received(receive, Status::LocalProtection);
            self.complete_receive(receive, completion, false, shared);
            self.fail(AsyncEvent::QpFatal(self.id.number), shared);
        }
        Outcome::Nak(NakCode::INVALID_REQUEST)
    }
}
