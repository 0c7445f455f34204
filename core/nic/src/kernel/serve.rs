//! Ingress of requests to kernels: each packet goes to a lane, at once and in order.

use remora_memory::Mem;
use remora_transport::rc::strom::Part;
use remora_transport::{Instant, Outcome, rc::irn};
use remora_wire::strom::{Ending, Status};

use super::lane::Piece;
use super::streams::Message;
use super::{Place, Strom};
use crate::nic::{Nic, Shared};
use crate::queue_pair::QueuePair;

impl QueuePair {
    /// On the way to RTR: the peer speaks StRoM.
    pub(crate) fn enable_strom(&mut self) {
        let early = match (&mut self.connection, &mut self.irn) {
            (Some(connection), _) => {
                connection.responder.enable_strom();
                0
            }
            (None, Some(irn)) => irn.responder.enable_strom(),
            (None, None) => return,
        };
        let mtu = self.attributes.parameters.mtu;
        let strom = Strom::new(self.send.ring().slots(), early, mtu);
        self.strom = Some(Box::new(Strom { agreed: true, ..strom }));
    }

    /// A packet for a kernel, going back N.
    #[inline(never)]
    pub(crate) fn serve_rpc(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        part: &Part,
        payload: &[u8],
        shared: &mut Shared,
    ) {
        let outcome = self.hand_over_now(mem, part, payload, shared);
        self.conclude_delaying_ack(now, outcome, shared);
    }

    /// Hands a packet to its kernel, which makes its first steps with it.
    #[inline(never)]
    pub(crate) fn hand_over(
        &mut self,
        mem: Mem<'_>,
        part: &Part,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        self.hand_over_now(mem, part, payload, shared)
    }

    /// The same; inlined where packets mostly come from.
    #[inline(always)]
    fn hand_over_now(&mut self, mem: Mem<'_>, part: &Part, payload: &[u8], shared: &mut Shared) -> Outcome {
        let Some(strom) = &mut self.strom else { return Outcome::Done };
        let hint = strom.lane;
        if part.first() {
            strom.serving = shared.kernels.serves(self.pd, part.opcode, hint.0);
        }
        let place = match strom.serving {
            None => return self.nobody(part, shared),
            Some((place, number)) if part.first() || shared.kernels.is_there(place, number) => place,
            // It was removed in the middle of the message, and has said so.
            Some(_) => return Outcome::Done,
        };
        let Some(mut lane_ref) = shared.kernels.find_lane_for(place, self.number, hint) else {
            shared.counters.kernels_busy += 1;
            return Outcome::NotReady;
        };
        strom.lane = lane_ref.at;
        let piece = Piece { part: *part, passing: None };
        if !lane_ref.put_off(mem, &piece, payload) {
            lane_ref.drive(self, mem, Some((&piece, payload)));
        } else if lane_ref.is_crowded() {
            lane_ref.drive(self, mem, None);
        }
        Outcome::Done
    }

    /// No kernel has the op-code: says so at the end of the message.
    fn nobody(&mut self, part: &Part, shared: &mut Shared) -> Outcome {
        let to = Place { addr: 0, rkey: 0, room: 0 };
        let ending = Some(Ending { status: Status::NO_KERNEL, tag: part.tag() });
        if part.last() && !self.send_message(&Message { to, len: 0, filled: 0, ending }, None) {
            shared.counters.kernels_busy += 1;
            return Outcome::NotReady;
        }
        Outcome::Done
    }

    /// Over IRN: a packet for a kernel came before its turn.
    #[inline(never)]
    pub(crate) fn keep_rpc(&mut self, slot: u32, part: &Part, payload: &[u8]) -> Outcome {
        let Some(early) = self.strom.as_mut().and_then(|strom| strom.early.get_mut(slot as usize)) else {
            return Outcome::NotReady;
        };
        let Some(room) = early.bytes.get_mut(..payload.len()) else { return Outcome::NotReady };
        room.copy_from_slice(payload);
        (early.part, early.len) = (Some(*part), payload.len() as u16);
        Outcome::Done
    }

    /// Its turn has come.
    #[inline(never)]
    pub(crate) fn hand_over_kept(&mut self, mem: Mem<'_>, slot: u32, shared: &mut Shared) -> Outcome {
        let Some(early) = self.strom.as_mut().and_then(|strom| strom.early.get_mut(slot as usize)) else {
            return Outcome::Done;
        };
        let Some(part) = early.part else { return Outcome::Done };
        let (bytes, len) = (std::mem::take(&mut early.bytes), usize::from(early.len));
        let outcome = self.hand_over(mem, &part, &bytes[..len], shared);
        // The queue pair may have ended meanwhile.
        if let Some(strom) = &mut self.strom {
            strom.early[slot as usize].bytes = bytes;
        }
        if outcome == Outcome::NotReady && !shared.kernels.stalled.contains(&self.number) {
            shared.kernels.stalled.push_back(self.number);
        }
        outcome
    }
}

impl Nic {
    /// Lanes that can go on do; then queue pairs that waited for lanes. Returns how many had a turn.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_kernels(&mut self, mem: Mem<'_>) -> usize {
        let mut turns = 0;
        for _ in 0..self.shared.kernels.ready.len() {
            let Some((at, qp)) = self.shared.kernels.next_ready() else { break };
            let Some(index) = qp.and_then(|qp| self.index(qp)) else { continue };
            if let Some(qp) = &mut self.qps[index as usize] {
                qp.go_on_lane(&mut self.shared.kernels, at, mem);
                turns += 1;
            }
            self.attend(index);
        }
        if std::mem::take(&mut self.shared.kernels.freed) {
            for _ in 0..self.shared.kernels.stalled.len() {
                let Some(number) = self.shared.kernels.stalled.pop_front() else { break };
                let Some(index) = self.index(number) else { continue };
                if let Some(qp) = &mut self.qps[index as usize] {
                    qp.go_on_irn(mem, &mut self.shared);
                    turns += 1;
                }
                self.attend(index);
            }
        }
        turns
    }
}

const _: () = assert!(size_of::<irn::Step>() <= 64, "a step travels in registers and one cache line");
