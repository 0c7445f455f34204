//! Egress of kernels: the messages of a kernel become WRITEs of the queue pair that it serves, interleaved
//! with those of the program.

use remora_memory::{Key, Mem};
use remora_transport::rc::{Kind, Message as Request};
use remora_transport::state::State;
use remora_wire::Qpn;

use super::Sent;
use super::base::{Block, KernelId, LaneId, Source};
use super::lane::AnswerSender;
use super::streams::Message;
use super::table::Kernels;
use crate::context::{List, WqeContext};
use crate::queue_pair::QueuePair;
use crate::reliable::{GoBackN, Irn, ReliableRequester};
use crate::wqe::{WqeOpcode, flag};

impl Block {
    /// Returns address, key and list with which a message context refers to this block.
    fn named(self) -> (u64, Key, List) {
        let KernelId { place, number } = self.kernel;
        (u64::from(place) << 32 | u64::from(self.index), Key::new(number), List::Answer)
    }
}

impl Kernels {
    /// Returns the data of the answer if a kernel sends the message, else `None`.
    #[inline]
    pub(crate) fn answer(&self, context: &WqeContext) -> Option<&[u8]> {
        if context.list != List::Answer {
            return None;
        }
        let place = (context.local >> 32) as usize;
        let index = context.local as u32;
        let kernel = self.deployed.get(place)?.as_ref()?;
        (kernel.base.id.number == context.lkey.get()).then(|| kernel.base.block(index))
    }
}

impl AnswerSender for QueuePair {
    fn qpn(&self) -> Qpn {
        self.id().number
    }

    fn send_message(&mut self, message: &Message, source: Option<Source>) -> bool {
        if self.state() != State::Rts {
            return wait_for_requester(self);
        }
        let number = match self.machine().is_rc() {
            true => submit_answer::<GoBackN>(self, message, source),
            false => submit_answer::<Irn>(self, message, source),
        };
        let Some(number) = number else { return wait_for_requester(self) };
        if let (Some(strom), Some(source)) = (&mut self.offloads_mut().strom, source) {
            strom.sent.push_back(Sent { number, block: source.block });
        }
        true
    }
}

fn wait_for_requester(qp: &mut QueuePair) -> bool {
    if let Some(strom) = &mut qp.offloads_mut().strom {
        strom.waited_for = true;
    }
    false
}

/// Submits the message and returns its number.
fn submit_answer<R: ReliableRequester>(
    qp: &mut QueuePair,
    message: &Message,
    source: Option<Source>,
) -> Option<u64> {
    // All work requests taken earlier have been submitted and complete before this message. So its completion
    // frees no slot that the program still uses.
    let (taken, ..) = qp.queues().send.counts();
    // This flag requests an immediate acknowledgement; an answer never has a completion.
    let flags = if source.is_some_and(|source| source.scarce) { flag::SIGNALED } else { 0 };
    let (local, lkey, list) = source.map_or((0, Key::new(0), List::One), |source| source.block.named());
    let context = WqeContext {
        header: u64::from(WqeOpcode::ANSWER.0) | u64::from(flags) << 8,
        local,
        len: message.len,
        lkey,
        list,
        id_high: 0,
        index: taken,
        end: taken,
        srq: 0,
    };
    let va = message.target.addr;
    let rkey = message.target.rkey;
    let kind = match message.ending {
        Some(ending) => Kind::WriteImm { va, rkey, imm: ending.emit() },
        None => Kind::Write { va, rkey },
    };
    let requester = R::of(qp.machine_mut()).filter(|requester| requester.has_capacity())?;
    let (_, number) = requester.numbers();
    requester.submit(Request { kind, len: message.len, fence: false, solicited: true, context });
    Some(number)
}

/// Runs the turn of a lane that can continue.
pub(super) fn go_on_lane(qp: &mut QueuePair, kernels: &mut Kernels, lane: LaneId, mem: Mem<'_>) {
    if let Some(lane_ref) = kernels.lane_ref(lane) {
        lane_ref.drive(qp, mem, None);
    }
}

/// Ends the current request of a lane whose kernel is being removed.
pub(super) fn end_lane_for(qp: &mut QueuePair, kernels: &mut Kernels, lane: LaneId) {
    let Some(kernel) = &mut kernels.deployed[lane.place as usize] else { return };
    kernel.end_lane(lane.index, qp);
}
