//! Egress of kernels: what they send becomes WRITEs of the queue pair that they serve, between those of its program.

use remora_memory::{Key, Mem};
use remora_transport::rc::{Kind, Message as Request};
use remora_transport::state::State;
use remora_wire::strom::Status;

use super::Sent;
use super::streams::Message;
use super::table::{Block, Kernels};
use crate::nic::Shared;
use crate::queue_pair::{List, QueuePair, WqeContext};
use crate::reliable::{GoBackN, Irn, Requests};
use crate::wqe::{WqeOpcode, flag};

/// Where the bytes of a message stand.
#[derive(Copy, Clone, Debug)]
pub(super) struct Source {
    pub block: Block,
    /// Few such blocks are left.
    pub scarce: bool,
}

impl Block {
    /// As a note on the message has it.
    fn named(self) -> (u64, Key, List) {
        (u64::from(self.place) << 32 | u64::from(self.index), Key::new(self.kernel), List::Answer)
    }
}

impl Kernels {
    /// The room that an answer stands in.
    #[inline]
    pub(crate) fn answer(&self, context: &WqeContext) -> Option<&[u8]> {
        if context.list != List::Answer {
            return None;
        }
        let (place, index) = ((context.local >> 32) as usize, context.local as u32);
        let kernel = self.deployed.get(place)?.as_ref()?;
        (kernel.base.number == context.lkey.get()).then(|| kernel.base.block(index))
    }
}

impl QueuePair {
    /// Sends a kernel's message from where its bytes stand. False: there is no room for it now.
    pub(super) fn send_message(&mut self, message: &Message, from: Option<Source>) -> bool {
        if self.state != State::Rts {
            return self.waits();
        }
        let number = match self.connection {
            Some(_) => self.enter::<GoBackN>(message, from),
            None => self.enter::<Irn>(message, from),
        };
        let Some(number) = number else { return self.waits() };
        if let (Some(strom), Some(from)) = (&mut self.strom, from) {
            strom.sent.push_back(Sent { number, block: from.block });
        }
        true
    }

    fn waits(&mut self) -> bool {
        if let Some(strom) = &mut self.strom {
            strom.waited_for = true;
        }
        false
    }

    /// The message enters the requester; its number.
    fn enter<R: Requests>(&mut self, message: &Message, from: Option<Source>) -> Option<u64> {
        // All work that was taken before has entered, so it ends before this does: with it no slot of the program's is freed
        // that is not free.
        let (taken, ..) = self.send.counts();
        // With this flag its acknowledgement is asked for at once; there is no completion in any case.
        let flags = if from.is_some_and(|from| from.scarce) { flag::SIGNALED } else { 0 };
        let (local, lkey, list) = from.map_or((0, Key::new(0), List::One), |from| from.block.named());
        let context = WqeContext {
            header: u64::from(WqeOpcode::ANSWER.0) | u64::from(flags) << 8,
            local,
            len: message.len,
            lkey,
            list,
            index: taken,
            end: taken,
            srq: 0,
        };
        let (va, rkey) = (message.to.addr, message.to.rkey);
        let kind = match message.ending {
            Some(ending) => Kind::WriteImm { va, rkey, imm: ending.emit() },
            None => Kind::Write { va, rkey },
        };
        let requester = R::of(self).filter(|requester| requester.has_room())?;
        let (_, number) = requester.numbers();
        requester.submit(Request { kind, len: message.len, fence: false, solicited: true, context });
        Some(number)
    }

    /// Messages have ended: what kernels sent by them is done with.
    #[inline(never)]
    pub(crate) fn answers_left<R: Requests>(&mut self, shared: &mut Shared) {
        let Some((oldest, _)) = R::of(self).map(|requester| requester.numbers()) else { return };
        let Some(strom) = &mut self.strom else { return };
        while let Some(sent) = strom.sent.front().filter(|sent| sent.number < oldest) {
            shared.kernels.give_back(sent.block);
            strom.sent.pop_front();
        }
        if std::mem::take(&mut strom.waited_for) {
            shared.kernels.wake(self.number);
        }
    }

    /// The connection ends: its lanes serve others, and nothing is on its way any more.
    pub(crate) fn end_strom(&mut self, shared: &mut Shared) {
        let Some(mut strom) = self.strom.take() else { return };
        while let Some(sent) = strom.sent.pop_front() {
            shared.kernels.give_back(sent.block);
        }
        shared.kernels.forget(self.number);
    }

    /// A lane goes on.
    pub(super) fn go_on_lane(&mut self, kernels: &mut Kernels, at: (u32, u32), mem: Mem<'_>) {
        if let Some(lane_ref) = kernels.lane_ref(at) {
            lane_ref.drive(self, mem, None);
        }
    }

    /// The kernel of a lane is being removed: what it had begun ends here.
    pub(super) fn end_lane(&mut self, kernels: &mut Kernels, at: (u32, u32)) {
        let Some(kernel) = &mut kernels.deployed[at.0 as usize] else { return };
        kernel.end_lane(at.1, self);
    }
}

impl super::table::Deployed {
    /// Ends what a lane had begun, and what waits for it, with an error to whoever asked, as far as that can be told at once.
    fn end_lane(&mut self, number: u32, qp: &mut QueuePair) {
        let lane = &mut self.lanes[number as usize];
        lane.fail(Status::REMOVED);
        while lane.send(&self.base, qp) {
            if !lane.refuse_next() {
                self.base.free.extend(lane.abandon());
                return;
            }
        }
        lane.waits = true;
    }
}
