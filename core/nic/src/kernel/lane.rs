//! A lane: an instance of a kernel that serves one queue pair at a time, with the packets that wait for it.

use remora_memory::{Access, Mem};
use remora_wire::Qpn;
use remora_wire::strom::{Ending, Status, split};

use super::base::{Base, Block, Piece, Source};
use super::inbox::Inbox;
use super::streams::{Message, Streams, Wires};
use super::{Check, Kernel, Look, Place, Progress, STEPS};

/// Maximum number of bytes read in advance for a prefetch hint.
const PREFETCH_MAX: usize = 64;

/// The interface of a lane to the queue pair that it serves.
pub(super) trait AnswerSender {
    /// Returns the number of the queue pair.
    fn qpn(&self) -> Qpn;
    /// Sends a message whose data is in a block. Returns false if the queue pair cannot accept a message now.
    fn send_message(&mut self, message: &Message, source: Option<Source>) -> bool;
}

/// A kernel, its streams and its inbox.
pub(super) struct Lane {
    kernel: Box<dyn Kernel>,
    /// The replacement of the kernel, which is activated when the kernel rests.
    next: Option<Box<dyn Kernel>>,
    /// The replaced kernel. It is dropped in the program's next call, not on the data path.
    old: Option<Box<dyn Kernel>>,
    /// The queue pair that the lane serves; `None` while the lane is free.
    pub qp: Option<Qpn>,
    /// The lane waits for a block, or for capacity of the requester.
    pub waits: bool,
    /// The lane is in the queue of lanes that can continue.
    pub queued: bool,
    inbox: Inbox,
    block: Option<u32>,
    task: Task,
}

/// The request in progress.
struct Task {
    wires: Wires,
    progress: Progress,
    /// Steps since the last input.
    work: u64,
    /// The first waiting packet was presented to the kernel.
    presented: bool,
    /// The first waiting message has further packets.
    unfinished: bool,
    /// The remaining packets of the first message are dropped.
    skips: bool,
}

/// The result of a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stepped {
    /// The lane can continue.
    On,
    /// The lane has consumed the packet passed to it.
    Took,
    /// The lane must wait for a block or for the requester.
    Waits,
    /// The lane has no work.
    Idle,
}

impl Lane {
    pub(crate) fn new(kernel: Box<dyn Kernel>) -> Lane {
        Lane {
            kernel,
            next: None,
            old: None,
            qp: None,
            waits: false,
            queued: false,
            inbox: Inbox::new(),
            block: None,
            task: Task {
                wires: Wires::new(),
                progress: Progress::Rests,
                work: 0,
                presented: false,
                unfinished: false,
                skips: false,
            },
        }
    }

    /// Replaces the kernel as soon as it rests.
    pub(crate) fn replace(&mut self, other: Box<dyn Kernel>) {
        (self.next, self.old) = (Some(other), None);
        if self.qp.is_none() {
            self.change();
        }
    }

    fn change(&mut self) {
        if let Some(next) = self.next.take() {
            self.old = Some(std::mem::replace(&mut self.kernel, next));
        }
    }

    /// Resets the lane because its queue pair was destroyed. Returns the block that the lane held.
    pub(crate) fn abandon(&mut self) -> Option<u32> {
        self.kernel.reset();
        self.inbox.clear();
        let task = &mut self.task;
        task.wires.clear();
        (task.wires.reply, task.wires.answered) = (None, true);
        task.progress = Progress::Rests;
        (task.presented, task.unfinished, task.skips) = (false, false, false);
        (self.qp, self.waits) = (None, false);
        self.change();
        self.block.take()
    }

    /// Asserts that a free lane holds no state, and that the inbox agrees with its counts. Returns the number
    /// of blocks that the lane holds.
    pub(crate) fn check(&self, blocks: u32) -> u32 {
        self.inbox.check();
        assert!(self.block.is_none_or(|block| block < blocks), "a lane's block is one of its kernel's");
        if self.qp.is_none() {
            assert!(self.inbox.is_empty(), "packets wait for a lane that serves their queue pair");
            assert!(self.block.is_none(), "a lane that serves nobody holds no block");
            assert!(!self.task.unfinished, "a lane that serves nobody has no message in progress");
        }
        u32::from(self.block.is_some())
    }

    /// Ends the first request with an error.
    pub(crate) fn fail(&mut self, status: Status) {
        self.kernel.reset();
        self.task.fail(status);
    }

    /// Ends the next waiting request with an error because the kernel is being removed. Returns false if no
    /// request waits.
    pub(crate) fn refuse_next(&mut self) -> bool {
        let Some((piece, bytes)) = self.inbox.front() else { return false };
        if !self.task.presented && !self.task.skips {
            self.task.present(piece, bytes);
        }
        self.task.fail(Status::REMOVED);
        self.task.used(piece);
        self.inbox.pop();
        true
    }

    /// Returns true if the lane holds no state of its queue pair.
    fn is_at_rest(&self) -> bool {
        let task = &self.task;
        task.progress == Progress::Rests && !task.unfinished && !task.skips && self.inbox.is_empty()
    }
}

impl Task {
    fn fail(&mut self, status: Status) {
        // An unsent answer is replaced by the error.
        self.wires.answered &= self.wires.message.is_none_or(|message| message.ending.is_none());
        self.wires.clear();
        self.progress = Progress::Rests;
        self.skips |= self.unfinished;
        self.work = 0;
        if !std::mem::replace(&mut self.wires.answered, true) {
            let target = Place { addr: 0, rkey: 0, len: 0 };
            let ending = Some(Ending { status, tag: self.wires.tag });
            self.wires.message = Some(Message { target, len: 0, filled: 0, ending });
        }
    }

    /// Gives the lane's block to another lane. A resting kernel holds no state, so its read data is
    /// discarded.
    #[inline]
    fn leave(&mut self, base: &Base, block: u32) {
        match self.progress {
            Progress::Rests => self.wires.forget(),
            _ => self.wires.keep(base, block),
        }
    }

    /// Records that a packet was consumed, and whether its message continues.
    fn used(&mut self, piece: &Piece) {
        self.presented = false;
        if piece.passing.is_some() {
            return;
        }
        self.unfinished = !piece.part.last();
        self.skips &= !piece.part.last();
    }

    /// Presents a packet to the kernel for the first time. Returns true if the packet begins a request.
    fn present(&mut self, piece: &Piece, bytes: &[u8]) -> bool {
        self.presented = true;
        self.work = 0;
        // An observed WRITE is not part of a request: with IRN, it may arrive between the packets of a
        // request.
        if piece.passing.is_some() {
            return false;
        }
        self.unfinished = true;
        if !piece.part.first() {
            return false;
        }
        (self.wires.tag, self.wires.answered) = (piece.part.tag(), false);
        if piece.part.params() {
            match split(bytes) {
                Ok((head, _)) => {
                    self.wires.reply = Some(Place { addr: head.va, rkey: head.rkey, len: head.dma_len });
                }
                Err(_) => self.wires.fault = Some(Status::BAD_PARAMS),
            }
        }
        true
    }
}

impl Lane {
    /// Executes up to [`STEPS`] steps, with the packet that has just arrived, if any. Returns true if the
    /// lane can continue immediately.
    pub(crate) fn turn(
        &mut self,
        base: &mut Base,
        qp: &mut impl AnswerSender,
        mem: Mem<'_>,
        mut direct: Option<(&Piece, &[u8])>,
    ) -> bool {
        self.waits = false;
        if self.inbox.len() > 1 {
            self.look_ahead(base, mem);
        }
        let mut again = true;
        let mut left = STEPS;
        while left > 0 {
            left -= 1;
            match self.step(base, qp, mem, direct, &mut left) {
                Stepped::On => continue,
                Stepped::Took => {
                    direct = None;
                    continue;
                }
                Stepped::Waits => self.waits = true,
                Stepped::Idle => {}
            }
            again = false;
            break;
        }
        if let Some((piece, bytes)) = direct {
            self.inbox.push(piece, bytes);
        } else if !again && !self.waits && self.is_at_rest() {
            self.qp = None;
            self.task.wires.reply = None;
            self.change();
        }
        if !again && self.task.wires.message.is_none() {
            if let Some(block) = self.block.take() {
                self.task.leave(base, block);
                base.free.push(block);
            }
            if base.leaving {
                self.abandon();
            }
        }
        again
    }

    #[inline(always)]
    fn step(
        &mut self,
        base: &mut Base,
        qp: &mut impl AnswerSender,
        mem: Mem<'_>,
        direct: Option<(&Piece, &[u8])>,
        left: &mut u32,
    ) -> Stepped {
        if self.task.wires.is_complete() && !self.send(base, qp) {
            return Stepped::Waits;
        }
        if base.leaving {
            return if self.refuse_next() { Stepped::On } else { Stepped::Idle };
        }
        let Lane { kernel, inbox, task, block, .. } = self;
        let next = inbox.front().or(direct);
        let busy = task.progress == Progress::Again || task.wires.has_command();
        // The kernel processes one request at a time, and receives the next one when its answer was sent.
        let engaged = |piece: &Piece| busy && task.wires.is_engaged() && piece.part.first();
        let next = next.filter(|(piece, _)| task.presented || !engaged(piece));
        if task.skips && next.is_none_or(|(piece, _)| piece.passing.is_none()) {
            let Some((piece, _)) = next else { return Stepped::Idle };
            task.used(piece);
            return inbox.drop_front();
        }
        if next.is_none() && !busy {
            return self.rest(base);
        }
        let Some(index) = block.or_else(|| base.free.pop()) else {
            base.starves = true;
            return Stepped::Waits;
        };
        *block = Some(index);
        let alone = inbox.len() <= usize::from(direct.is_none());
        let at_work = RunningKernel { kernel: &mut **kernel, task, block: index, qpn: qp.qpn(), alone };
        match at_work.step(base, mem, next, left) {
            true => inbox.drop_front(),
            false => Stepped::On,
        }
    }

    /// Handles a kernel without input and command.
    #[inline]
    fn rest(&mut self, base: &mut Base) -> Stepped {
        let Task { wires, progress, unfinished, .. } = &self.task;
        let done = wires.message.is_none() && (wires.answered || *unfinished);
        if *progress == Progress::Waits || done {
            return Stepped::Idle;
        }
        // The kernel rests although a message is incomplete or an answer is missing.
        self.fail(Status::FAILED);
        base.failures += 1;
        Stepped::On
    }

    /// Sends the lane's message if it is complete. Returns false if the requester has no capacity.
    #[inline]
    pub(crate) fn send(&mut self, base: &Base, qp: &mut impl AnswerSender) -> bool {
        self.task.wires.settle();
        let Some(message) = self.task.wires.complete() else { return true };
        let block = self.block.filter(|_| message.len > 0);
        let source =
            block.map(|index| Source { block: Block { kernel: base.id, index }, scarce: base.is_scarce() });
        if !qp.send_message(message, source) {
            return false;
        }
        if let Some(block) = block {
            self.block = None;
            self.task.leave(base, block);
        }
        self.task.wires.message = None;
        true
    }

    /// Prefetches the memory that a request reads first. Returns `None` if the kernel gives no hint.
    #[inline]
    pub(crate) fn prefetch(
        &self,
        base: &Base,
        params: &[u8],
        seen: Option<&[u8]>,
        mem: Mem<'_>,
    ) -> Option<(u64, u32)> {
        let (va, len) = self.kernel.prefetch_hint(params, seen)?;
        if let Some(span) = base.reach(mem).span(va, len as usize, Access::NONE) {
            span.prefetch();
        }
        Some((va, len))
    }

    /// Prefetches the memory that waiting requests read next, given that the memory they read first is in the
    /// cache.
    #[inline(never)]
    fn look_ahead(&mut self, base: &Base, mem: Mem<'_>) {
        let start = self.inbox.prefetched;
        let end = self.inbox.len();
        for number in start..end {
            let Some((piece, bytes)) = self.inbox.short(number) else { continue };
            let Some((_, params)) = split(bytes).ok().filter(|_| piece.part.params()) else { continue };
            let Some((va, len)) = self.kernel.prefetch_hint(params, None) else { break };
            let mut seen = [0; PREFETCH_MAX];
            let span = base.reach(mem).span(va, len as usize, Access::NONE);
            if let (Some(span), Some(seen)) = (span, seen.get_mut(..len as usize))
                && span.read(seen) == seen.len()
            {
                self.prefetch(base, params, Some(seen), mem);
            }
        }
        self.inbox.prefetched = end;
    }

    /// Returns the kernel's check of READs, if it has one.
    pub(crate) fn checks(&mut self) -> Option<&mut dyn Check> {
        self.kernel.checks()
    }

    /// Returns the kernel's observer of WRITEs, if it has one and all earlier input is consumed.
    #[inline]
    pub(crate) fn looks(&mut self) -> Option<&mut dyn Look> {
        let Task { wires, progress, .. } = &mut self.task;
        let busy = *progress == Progress::Again || wires.has_command() || wires.message.is_some();
        let look = self.kernel.looks().filter(|_| !busy && self.inbox.is_empty())?;
        // From now on, the kernel holds state of its queue pair.
        *progress = Progress::Waits;
        Some(look)
    }

    /// Appends a packet to the inbox. The caller has checked `has_capacity`.
    pub(crate) fn put(&mut self, piece: &Piece, bytes: &[u8]) {
        self.inbox.push(piece, bytes);
    }

    /// Returns true if the inbox has capacity for another packet.
    pub(crate) fn has_capacity(&self) -> bool {
        self.inbox.has_capacity()
    }

    /// Returns true if at least half of the inbox is in use.
    pub(crate) fn is_crowded(&self) -> bool {
        self.inbox.is_half_full()
    }
}

/// A kernel with the state that its next step needs.
struct RunningKernel<'l> {
    kernel: &'l mut dyn Kernel,
    task: &'l mut Task,
    block: u32,
    qpn: Qpn,
    /// No packet waits after the one that is passed to the kernel.
    alone: bool,
}

impl RunningKernel<'_> {
    /// Executes the command of the last step, then the next step. Repeats this up to `left` times while there
    /// is no other packet to present. Returns true if the packet was consumed.
    #[inline(always)]
    fn step(self, base: &mut Base, mem: Mem<'_>, mut next: Option<(&Piece, &[u8])>, left: &mut u32) -> bool {
        let RunningKernel { kernel, task, block, qpn, alone } = self;
        let mut used = false;
        loop {
            task.wires.execute(base, mem, block);
            if task.wires.is_complete() {
                return used;
            }
            if let Some((piece, bytes)) = next
                && !task.presented
            {
                base.requests += u64::from(task.present(piece, bytes));
            }
            let mut taken = false;
            if task.wires.fault.is_none() {
                let wires = &mut task.wires;
                let mut streams =
                    Streams { qpn, next, taken: false, written: (0, 0), wires, mem, base, block };
                task.progress = kernel.step(&mut streams);
                taken = streams.taken;
                task.work += 1;
                base.steps += 1;
            }
            let too_long = (task.work > base.limit).then_some(Status::TOO_LONG);
            if let Some((piece, _)) = next.filter(|_| taken) {
                (next, used) = (None, true);
                task.used(piece);
            }
            if let Some(status) = task.wires.fault.or(too_long) {
                kernel.reset();
                task.fail(status);
                base.failures += 1;
            }
            // The data is read immediately, and no other packet changes how the kernel uses it.
            if next.is_some() || !alone || !task.wires.has_command() || *left == 0 {
                return used;
            }
            *left -= 1;
        }
    }
}

impl Inbox {
    /// Drops the first packet, which waited here or has just arrived.
    fn drop_front(&mut self) -> Stepped {
        if self.is_empty() {
            return Stepped::Took;
        }
        self.pop();
        Stepped::On
    }
}

#[cfg(test)]
mod tests {
    use remora_transport::rc::strom::Part;

    use super::super::HyperLogLog;
    use super::*;

    #[test]
    fn a_kernel_looks_at_what_passes_when_all_that_came_before_is_done() {
        let mut lane = Lane::new(Box::new(HyperLogLog::default()));
        assert!(lane.looks().is_some());
        assert_eq!(lane.task.progress, Progress::Waits, "it holds what it has seen");
        let piece = Piece { part: Part::new(1, 0, 0, true, [true; 2]), passing: None };
        lane.put(&piece, &[1]);
        assert!(lane.looks().is_none(), "a request waits");
        lane.inbox.clear();
        assert!(lane.looks().is_some());
        lane.task.progress = Progress::Again;
        assert!(lane.looks().is_none(), "it is at work");
        assert_eq!(lane.task.progress, Progress::Again);
        lane.task.progress = Progress::Waits;
        let target = Place { addr: 0, rkey: 0, len: 0 };
        lane.task.wires.message = Some(Message { target, len: 0, filled: 0, ending: None });
        assert!(lane.looks().is_none(), "a message has not left");
    }
}
