//! Ingress over IRN: a request packet is placed at once, wherever it stands in the order; what its message ends comes in
//! order.

use remora_memory::Mem;
use remora_transport::rc::irn::Step;
use remora_transport::state::State;
use remora_transport::{Action, Instant, Notice, Outcome};
use remora_wire::{NakCode, Opcode, packet};

use super::bound::Unbound;
use crate::gather;
use crate::ingress::react;
use crate::nic::Shared;
use crate::queue_pair::QueuePair;
use crate::receive_queue::Receive;
use crate::reliable;

impl QueuePair {
    /// A packet of the peer's, over IRN.
    #[inline(never)]
    pub fn take_irn(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        if packet.bth.opcode.is_request() {
            self.serve_irn(now, mem, packet, shared);
            return;
        }
        let Some(irn) = &mut self.irn else { return };
        if packet.bth.opcode == Opcode::IRN_READ_ACKNOWLEDGE {
            return irn.responder.acknowledged(now, packet);
        }
        let reaction = irn.requester.receive(now, packet, &mut shared.counters);
        if let Some(congestion) = &mut self.congestion {
            congestion.answered(now, irn.requester.progress());
        }
        if let Err((number, status)) = react(mem, self.pd, self.send.ring(), &reaction, packet.payload) {
            irn.requester.fail(number, status);
        }
        self.retire::<reliable::Irn>(shared);
    }

    #[inline]
    fn serve_irn(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        self.establish(shared);
        if !self.is_tapped()
            && let Some(irn) = &self.irn
            && let Some(write) = irn.responder.next_write(packet)
            && self.place(mem, write.key, write.va, write.extent, write.payload) == Outcome::Done
        {
            if let Some(irn) = &mut self.irn {
                irn.responder.passed(&write, &mut shared.counters);
            }
            return;
        }
        self.serve_any(now, mem, packet, shared);
    }

    /// As `serve_irn`, for packets of every kind and place in the order.
    #[inline(never)]
    fn serve_any(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        let Some(irn) = &mut self.irn else { return };
        let (mut step, mut payload) = irn.responder.receive(now, packet, &mut shared.counters);
        // A completion that finds its queue full ends the queue pair in the middle of this.
        while step != Step::Nothing && self.state != State::Err {
            if let Step::Execute(Action::Prism(request)) = step {
                self.serve_prism(now, mem, &request.into(), packet, shared);
            } else {
                let outcome = self.perform(mem, step, payload, shared);
                let Some(irn) = &mut self.irn else { return };
                irn.responder.conclude(outcome, &mut shared.counters);
            }
            let Some(irn) = &mut self.irn else { return };
            (step, payload) = (irn.responder.due(), &[]);
        }
    }

    /// The kernel whose packet is due has room again.
    pub fn go_on_irn(&mut self, mem: Mem<'_>, shared: &mut Shared) {
        let Some(irn) = &mut self.irn else { return };
        let mut step = irn.responder.go_on();
        while step != Step::Nothing && self.state != State::Err {
            let outcome = self.perform(mem, step, &[], shared);
            let Some(irn) = &mut self.irn else { return };
            irn.responder.conclude(outcome, &mut shared.counters);
            step = irn.responder.due();
        }
    }

    fn perform(&mut self, mem: Mem<'_>, step: Step, payload: &[u8], shared: &mut Shared) -> Outcome {
        match step {
            Step::Nothing => Outcome::Done,
            Step::Execute(action @ Action::Fetch { len, .. }) if self.judge().is_some() => {
                self.execute_judged(mem, action, len, shared)
            }
            Step::Execute(action) if self.is_tapped() => self.execute_tapped(mem, action, payload, shared),
            Step::Execute(action) => self.execute_outlined(mem, action, payload, shared),
            Step::Deliver { wqe, offset, in_order, notice } => match self.bind(wqe, shared) {
                Ok(receive) => {
                    self.deliver_irn(mem, wqe, &receive, offset, in_order, notice, payload, shared)
                }
                Err(outcome) => outcome,
            },
            Step::PlaceAndNotify { wqe, key, va, extent, notice, .. } => match self.bind(wqe, shared) {
                Ok(_) => {
                    let placed = match self.is_tapped() {
                        true => self.place_tapped(mem, (key, va, extent), payload, shared),
                        false => self.place(mem, key, va, extent, payload),
                    };
                    if placed == Outcome::Done {
                        self.note_arrival(wqe, Some(notice));
                    }
                    placed
                }
                Err(outcome) => outcome,
            },
            Step::Keep { slot, part } => self.keep_rpc(slot, &part, payload),
            Step::Kept { slot } => self.hand_over_kept(mem, slot, shared),
            Step::Complete => self.complete_irn(mem, shared),
        }
    }

    /// Receive work request `wqe` of this connection.
    fn bind(&mut self, wqe: u64, shared: &mut Shared) -> Result<Receive, Outcome> {
        let (queue, srq) = (&mut self.receive, self.srq);
        let Some(irn) = &mut self.irn else { return Err(Outcome::NotReady) };
        let take = |number: u64| match srq {
            None => queue.take(),
            Some(srq) => shared.take_shared_to(srq.place, queue, Some(number * queue.stride())),
        };
        irn.bound.bind(wqe, take).map_err(|unbound| match unbound {
            Unbound::NotReady => Outcome::NotReady,
            Unbound::Invalid => Outcome::Nak(NakCode::INVALID_REQUEST),
        })
    }

    fn note_arrival(&mut self, wqe: u64, notice: Option<Notice>) {
        if let Some(irn) = &mut self.irn {
            irn.bound.arrived(wqe, notice);
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one step, and the three that every action has"
    )]
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
        match gather::deliver(mem, self.receive_pd(), &self.receive, receive, offset, payload) {
            Ok(()) => {
                self.note_arrival(wqe, notice);
                Outcome::Done
            }
            Err(too_long) => {
                let Some(irn) = self.irn.as_mut().filter(|irn| in_order && irn.bound.is_oldest(wqe)) else {
                    // Ahead of the order, or of another message: nobody is told of it yet.
                    return Outcome::Nak(NakCode::INVALID_REQUEST);
                };
                irn.bound.pop();
                self.undelivered(receive, too_long, shared)
            }
        }
    }

    /// The turn of the oldest message has come.
    fn complete_irn(&mut self, mem: Mem<'_>, shared: &mut Shared) -> Outcome {
        let mtu = self.attributes.parameters.mtu;
        let Some(irn) = &mut self.irn else { return Outcome::Done };
        match irn.bound.finish(|len| len.div_ceil(mtu).max(1)) {
            Some((receive, notice)) => self.finish(mem, &receive, &notice, shared),
            // Its packets were numbered as no requester numbers them.
            None => Outcome::Nak(NakCode::INVALID_REQUEST),
        }
    }
}
