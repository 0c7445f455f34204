//! A lane: one kernel at work for one queue pair at a time, with what waits for it.

use remora_memory::{Access, Mem};
use remora_transport::rc::strom::Part;
use remora_wire::Qpn;
use remora_wire::strom::{Ending, Status, split};

use super::answer::Source;
use super::inbox::Inbox;
use super::streams::{Message, Streams, Wires};
use super::table::{Base, Block};
use super::{Check, Kernel, Look, Place, Progress, STEPS};
use crate::queue_pair::QueuePair;

/// Bytes of what is looked at ahead, at most.
const PREFETCH_MAX: usize = 64;

/// What comes to a lane beside its bytes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Piece {
    pub part: Part,
    /// Address of bytes that are placed in memory too.
    pub passing: Option<u64>,
}

/// A kernel, its streams and what waits for it.
pub(super) struct Lane {
    kernel: Box<dyn Kernel>,
    /// What the program put in its place.
    next: Option<Box<dyn Kernel>>,
    /// What it took the place of: it goes when the program has the floor, not on the data path.
    old: Option<Box<dyn Kernel>>,
    /// Whom it serves.
    pub qp: Option<Qpn>,
    /// It waits for a block, or for room in the queue pair's window.
    pub waits: bool,
    /// It is in the line of those that can go on.
    pub queued: bool,
    inbox: Inbox,
    block: Option<u32>,
    task: Task,
}

/// What it is doing.
struct Task {
    wires: Wires,
    progress: Progress,
    /// Steps since the last input.
    work: u64,
    /// The kernel has seen what is in front.
    presented: bool,
    /// The message in front has not ended.
    unfinished: bool,
    /// What is left of the message in front is dropped.
    skips: bool,
}

/// What came of a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stepped {
    /// It can go on.
    On,
    /// What was handed to it has been used.
    Took,
    /// It cannot go on until something else has ended.
    Waits,
    /// It has nothing to do.
    Idle,
}

impl Lane {
    pub fn new(kernel: Box<dyn Kernel>) -> Lane {
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

    /// Another kernel from the next rest on.
    pub fn replace(&mut self, other: Box<dyn Kernel>) {
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

    /// Whom it served is gone. Returns the block that it held.
    pub fn abandon(&mut self) -> Option<u32> {
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

    /// The request in front ends with an error.
    pub fn fail(&mut self, status: Status) {
        self.kernel.reset();
        self.task.fail(status);
    }

    /// Its kernel is being removed: whoever's request waits next is told. False: nobody waits.
    pub fn refuse_next(&mut self) -> bool {
        let Some((piece, bytes)) = self.inbox.front() else { return false };
        if !self.task.presented && !self.task.skips {
            self.task.present(piece, bytes);
        }
        self.task.fail(Status::REMOVED);
        self.task.used(piece);
        self.inbox.pop();
        true
    }

    /// Does it hold nothing of whom it serves?
    fn is_at_rest(&self) -> bool {
        let task = &self.task;
        task.progress == Progress::Rests && !task.unfinished && !task.skips && self.inbox.is_empty()
    }
}

impl Task {
    fn fail(&mut self, status: Status) {
        // An answer that was begun has not left: the error takes its place.
        self.wires.answered &= self.wires.message.is_none_or(|message| message.ending.is_none());
        self.wires.clear();
        self.progress = Progress::Rests;
        self.skips |= self.unfinished;
        self.work = 0;
        if !std::mem::replace(&mut self.wires.answered, true) {
            let to = Place { addr: 0, rkey: 0, room: 0 };
            let ending = Some(Ending { status, tag: self.wires.tag });
            self.wires.message = Some(Message { to, len: 0, filled: 0, ending });
        }
    }

    /// Its block is another's from now on. A kernel that rests holds nothing, so what it has read is not kept either.
    #[inline]
    fn leave(&mut self, base: &Base, block: u32) {
        match self.progress {
            Progress::Rests => self.wires.forget(),
            _ => self.wires.keep(base, block),
        }
    }

    /// The message that a piece belongs to ends with it, or goes on.
    fn used(&mut self, piece: &Piece) {
        self.presented = false;
        if piece.passing.is_some() {
            return;
        }
        self.unfinished = !piece.part.last();
        self.skips &= !piece.part.last();
    }

    /// The kernel has not seen this piece yet. True: a request begins with it.
    fn present(&mut self, piece: &Piece, bytes: &[u8]) -> bool {
        self.presented = true;
        self.work = 0;
        // What passes is no part of a request: over IRN it may come between the packets of one.
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
                    self.wires.reply = Some(Place { addr: head.va, rkey: head.rkey, room: head.dma_len });
                }
                Err(_) => self.wires.fault = Some(Status::BAD_PARAMS),
            }
        }
        true
    }
}

impl Lane {
    /// Some steps, with what has just come to it. True: it can go on at once.
    pub fn turn(
        &mut self,
        base: &mut Base,
        qp: &mut QueuePair,
        mem: Mem<'_>,
        mut direct: Option<(&Piece, &[u8])>,
    ) -> bool {
        self.waits = false;
        if self.inbox.len() > 1 {
            self.look_ahead(base, mem);
        }
        let (mut again, mut left) = (true, STEPS);
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
        qp: &mut QueuePair,
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
        // One request at a time: whoever is at work on one gets the next when its answer has left.
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
        let at_work = AtWork { kernel: &mut **kernel, task, block: index, qpn: qp.number, alone };
        match at_work.step(base, mem, next, left) {
            true => inbox.drop_front(),
            false => Stepped::On,
        }
    }

    /// There is nothing to do.
    #[inline]
    fn rest(&mut self, base: &mut Base) -> Stepped {
        let Task { wires, progress, unfinished, .. } = &self.task;
        let done = wires.message.is_none() && (wires.answered || *unfinished);
        if *progress == Progress::Waits || done {
            return Stepped::Idle;
        }
        // It rests, and has begun a message or owes an answer.
        self.fail(Status::FAILED);
        base.failures += 1;
        Stepped::On
    }

    /// The message that the lane has made leaves, if it is complete. False: there is no room for it.
    #[inline]
    pub fn send(&mut self, base: &Base, qp: &mut QueuePair) -> bool {
        self.task.wires.settle();
        let Some(message) = self.task.wires.complete() else { return true };
        let block = self.block.filter(|_| message.len > 0);
        let from = block.map(|index| Source {
            block: Block { place: base.place, kernel: base.number, index },
            scarce: base.is_scarce(),
        });
        if !qp.send_message(message, from) {
            return false;
        }
        if let Some(block) = block {
            self.block = None;
            self.task.leave(base, block);
        }
        self.task.wires.message = None;
        true
    }

    /// Asks for what a request will read first to come near. None: its kernel does not know.
    #[inline]
    pub fn prefetch(
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

    /// Several requests wait, and what they will read first is near by now: what they will read then shall be too.
    #[inline(never)]
    fn look_ahead(&mut self, base: &Base, mem: Mem<'_>) {
        let (from, to) = (self.inbox.prefetched, self.inbox.len());
        for at in from..to {
            let Some((piece, bytes)) = self.inbox.short(at) else { continue };
            let Some((_, params)) = split(bytes).ok().filter(|_| piece.part.params()) else { continue };
            let Some((va, len)) = self.kernel.prefetch_hint(params, None) else { break };
            let mut seen = [0; PREFETCH_MAX];
            let span = base.reach(mem).span(va, len as usize, Access::NONE);
            if let (Some(span), Some(seen)) = (span, seen.get_mut(..len as usize)) {
                span.read(seen);
                self.prefetch(base, params, Some(seen), mem);
            }
        }
        self.inbox.prefetched = to;
    }

    /// Its kernel, if that judges what is READ.
    pub fn checks(&mut self) -> Option<&mut dyn Check> {
        self.kernel.checks()
    }

    /// Its kernel, if that only looks at what passes, and everything that came before has been done.
    #[inline]
    pub fn looks(&mut self) -> Option<&mut dyn Look> {
        let Task { wires, progress, .. } = &mut self.task;
        let busy = *progress == Progress::Again || wires.has_command() || wires.message.is_some();
        let look = self.kernel.looks().filter(|_| !busy && self.inbox.is_empty())?;
        // From now on it holds something of whom it serves.
        *progress = Progress::Waits;
        Some(look)
    }

    /// A packet waits. The caller has seen that there is room.
    pub fn put(&mut self, piece: &Piece, bytes: &[u8]) {
        self.inbox.push(piece, bytes);
    }

    /// Has it room for another packet?
    pub fn has_room(&self) -> bool {
        self.inbox.has_room()
    }

    /// Do many packets wait?
    pub fn is_crowded(&self) -> bool {
        self.inbox.is_half_full()
    }
}

/// A kernel that is about to make a step.
struct AtWork<'l> {
    kernel: &'l mut dyn Kernel,
    task: &'l mut Task,
    block: u32,
    qpn: Qpn,
    /// Nothing waits behind what is handed to it.
    alone: bool,
}

impl AtWork<'_> {
    /// The DMA engine does what the last step asked for, and the kernel makes the next one; the same again, up to `left` times, while
    /// nothing else is to be looked at. True: what waits has been used.
    #[inline(always)]
    fn step(self, base: &mut Base, mem: Mem<'_>, mut next: Option<(&Piece, &[u8])>, left: &mut u32) -> bool {
        let AtWork { kernel, task, block, qpn, alone } = self;
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
            // What was read is there at once, and nobody else has a say in what the kernel does with it.
            if next.is_some() || !alone || !task.wires.has_command() || *left == 0 {
                return used;
            }
            *left -= 1;
        }
    }
}

impl Inbox {
    /// What was in front is used: it waited here, or had just come.
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
        let to = Place { addr: 0, rkey: 0, room: 0 };
        lane.task.wires.message = Some(Message { to, len: 0, filled: 0, ending: None });
        assert!(lane.looks().is_none(), "a message has not left");
    }
}
