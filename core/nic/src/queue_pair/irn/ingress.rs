//! Ingress of IRN: the payload of request packets is placed immediately, in any order; messages complete in
//! order.

use remora_memory::Mem;
use remora_transport::rc::irn::Step;
use remora_transport::state::State;
use remora_transport::{Action, Instant, Notice, Outcome};
use remora_wire::{NakCode, Opcode, packet};

use crate::extras::All;
use crate::gather;
use crate::irn::BindError;
use crate::kernel::{
    checker, execute_checked, execute_tapped, hand_over_kept, is_tapped, keep_rpc, place_tapped,
};
use crate::prism::serve_prism;
use crate::queue_pair::QueuePair;
use crate::receive_queue::Receive;
use crate::reliable;
use crate::shared::Shared;

impl QueuePair {
    /// Processes a request or response packet of IRN.
    #[inline(never)]
    pub(crate) fn take_irn(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        if packet.bth.opcode().is_request() {
            self.serve_irn(now, mem, packet, shared);
            return;
        }
        let Some(irn) = self.machine.irn_mut() else { return };
        if packet.bth.opcode() == Opcode::IRN_READ_ACKNOWLEDGE {
            return irn.responder.acknowledged(now, packet);
        }
        self.answer::<reliable::Irn, All>(now, mem, packet, shared);
    }

    #[inline]
    fn serve_irn(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        self.establish(shared);
        if !is_tapped(self)
            && let Some(irn) = self.machine.irn()
            && let Some(write) = irn.responder.next_write(packet)
            && self.place(mem, write.key, write.va, write.extent, write.payload) == Outcome::Done
        {
            if let Some(irn) = self.machine.irn_mut() {
                irn.responder.passed(&write, shared.counters_mut());
            }
            return;
        }
        self.serve_any(now, mem, packet, shared);
    }

    /// Does the same as `serve_irn`, for packets of every kind, in or ahead of order.
    #[inline(never)]
    fn serve_any(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        let Some(irn) = self.machine.irn_mut() else { return };
        let (mut step, mut payload) = irn.responder.receive(now, packet, shared.counters_mut());
        // A full completion queue ends the queue pair within this loop.
        while step != Step::Nothing && self.state != State::Err {
            if let Step::Execute(Action::Prism(request)) = step {
                serve_prism(self, now, mem, &request.into(), packet, shared);
            } else {
                let outcome = self.perform(mem, step, payload, shared);
                let Some(irn) = self.machine.irn_mut() else { return };
                irn.responder.conclude(outcome, shared.counters_mut());
            }
            let Some(irn) = self.machine.irn_mut() else { return };
            (step, payload) = (irn.responder.due(), &[]);
        }
    }

    /// Continues when the kernel for the next packet has capacity.
    pub(crate) fn go_on_irn(&mut self, mem: Mem<'_>, shared: &mut Shared) {
        let Some(irn) = self.machine.irn_mut() else { return };
        let mut step = irn.responder.go_on();
        while step != Step::Nothing && self.state != State::Err {
            let outcome = self.perform(mem, step, &[], shared);
            let Some(irn) = self.machine.irn_mut() else { return };
            irn.responder.conclude(outcome, shared.counters_mut());
            step = irn.responder.due();
        }
    }

    fn perform(&mut self, mem: Mem<'_>, step: Step, payload: &[u8], shared: &mut Shared) -> Outcome {
        match step {
            Step::Nothing => Outcome::Done,
            Step::Execute(action @ Action::Fetch { len, .. }) if checker(self).is_some() => {
                execute_checked(self, mem, action, len, shared)
            }
            Step::Execute(action) if is_tapped(self) => execute_tapped(self, mem, action, payload, shared),
            Step::Execute(action) => self.execute_outlined(mem, action, payload, shared),
            Step::Deliver { wqe, offset, in_order, notice } => match self.bind(wqe, shared) {
                Ok(receive) => {
                    self.deliver_irn(mem, wqe, &receive, offset, in_order, notice, payload, shared)
                }
                Err(outcome) => outcome,
            },
            Step::PlaceAndNotify { wqe, key, va, extent, notice, .. } => match self.bind(wqe, shared) {
                Ok(_) => {
                    let placed = match is_tapped(self) {
                        true => place_tapped(self, mem, key, va, extent, payload, shared),
                        false => self.place(mem, key, va, extent, payload),
                    };
                    if placed == Outcome::Done {
                        self.note_arrival(wqe, Some(notice));
                    }
                    placed
                }
                Err(outcome) => outcome,
            },
            Step::Keep { slot, part } => keep_rpc(self, slot, &part, payload),
            Step::Kept { slot } => hand_over_kept(self, mem, slot, shared),
            Step::Complete => self.complete_irn(mem, shared),
        }
    }

    /// Binds receive work request `wqe` of this connection.
    fn bind(&mut self, wqe: u64, shared: &mut Shared) -> Result<Receive, Outcome> {
        let queue = &mut self.queues.receive;
        let srq = self.queues.srq;
        let Some(irn) = self.machine.irn_mut() else { return Err(Outcome::NotReady) };
        let take = |number: u64| match srq {
            None => queue.take(),
            Some(srq) => shared.take_shared_to(srq.place, queue, Some(number * queue.stride())),
        };
        irn.bound.bind(wqe, take).map_err(|unbound| match unbound {
            BindError::NotReady => Outcome::NotReady,
            BindError::Invalid => Outcome::Nak(NakCode::INVALID_REQUEST),
        })
    }

    fn note_arrival(&mut self, wqe: u64, notice: Option<Notice>) {
        if let Some(irn) = self.machine.irn_mut() {
            irn.bound.arrived(wqe, notice);
        }
    }

    fn deliver_irn(
        &mut self,
        mem: Mem<'_>,
        wqe: u64,
        receive: &Receive,
        offset: u32,
        in_order: bool,
        notice: Option<Notice>,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        match gather::deliver(mem, self.receive_pd(), &self.queues.receive, receive, offset, payload) {
            Ok(()) => {
                self.note_arrival(wqe, notice);
                Outcome::Done
            }
            Err(too_long) => {
                let Some(irn) = self.machine.irn_mut().filter(|irn| in_order && irn.bound.is_oldest(wqe))
                else {
                    // The error belongs to a packet ahead of order or to another message, and is not reported
                    // yet.
                    return Outcome::Nak(NakCode::INVALID_REQUEST);
                };
                irn.bound.pop();
                self.undelivered(receive, too_long, shared)
            }
        }
    }

    /// Completes the receive work request of the oldest message.
    fn complete_irn(&mut self, mem: Mem<'_>, shared: &mut Shared) -> Outcome {
        let mtu = self.attributes.parameters.mtu;
        let Some(irn) = self.machine.irn_mut() else { return Outcome::Done };
        match irn.bound.finish(|len| len.div_ceil(mtu).max(1)) {
            Some((receive, notice)) => self.finish(mem, &receive, &notice, shared),
            // The packets carry numbers that no valid requester assigns.
            None => Outcome::Nak(NakCode::INVALID_REQUEST),
        }
    }
}
