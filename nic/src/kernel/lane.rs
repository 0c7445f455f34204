//! A lane: one kernel at work for one queue pair at a time, with what waits for it.

use memory::{Access, Mem};
use transport::rc::strom::Part;
use wire::Qpn;
use wire::strom::{Ending, Status, split};

use super::answer::Source;
use super::inbox::Inbox;
use super::streams::{Input, Message, Reach, Streams, What, Wires};
use super::table::{Block, Deployed, Kernels};
use super::{Kernel, Place, Progress, STEPS};
use crate::queue_pair::QueuePair;
use crate::request::Sge;

/// Bytes of what is looked at ahead, at most.
const FORESEEN: usize = 64;

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

/// How a turn ended.
#[derive(Copy, Clone, Debug, Default)]
struct Turn {
    /// It can go on at once.
    again: bool,
    /// It needs no block.
    spare: Option<u32>,
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
            self.task.present(&piece, bytes);
        }
        self.task.fail(Status::REMOVED);
        self.task.used(&piece);
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

/// What a kernel sees of a piece.
fn input<'p>(piece: &Piece, bytes: &'p [u8]) -> Input<'p> {
    let part = &piece.part;
    let (what, bytes) = match (part.params(), piece.passing) {
        (true, _) => (What::Params, split(bytes).map_or(&[][..], |(_, own)| own)),
        (false, Some(va)) => (What::Passing(va), bytes),
        (false, None) => (What::Data, bytes),
    };
    let Part { opcode, left, .. } = *part;
    Input { what, opcode, tag: part.tag(), first: part.first(), last: part.last(), left, bytes }
}

impl Deployed {
    /// Some steps of a lane, with what has just come to it.
    fn turn(
        &mut self,
        (place, number): (u32, u32),
        qp: &mut QueuePair,
        mem: Mem<'_>,
        mut direct: Option<(Piece, &[u8])>,
    ) -> Turn {
        self.lanes[number as usize].waits = false;
        self.look_ahead(number, mem);
        let mut turn = Turn { again: true, ..Turn::default() };
        for _ in 0..STEPS {
            match self.step((place, number), qp, mem, direct) {
                Stepped::On => continue,
                Stepped::Took => {
                    direct = None;
                    continue;
                }
                Stepped::Waits => self.lanes[number as usize].waits = true,
                Stepped::Idle => {}
            }
            turn.again = false;
            break;
        }
        let lane = &mut self.lanes[number as usize];
        if let Some((piece, bytes)) = direct {
            lane.inbox.push(piece, bytes);
        } else if !turn.again && !lane.waits && lane.is_at_rest() {
            lane.qp = None;
            lane.task.wires.reply = None;
            lane.change();
        }
        if !turn.again && lane.task.wires.message.is_none() {
            turn.spare = lane.block.take();
            if self.leaving {
                lane.abandon();
            }
        }
        turn
    }

    fn step(
        &mut self,
        (place, number): (u32, u32),
        qp: &mut QueuePair,
        mem: Mem<'_>,
        direct: Option<(Piece, &[u8])>,
    ) -> Stepped {
        if !self.send((place, number), qp) {
            return Stepped::Waits;
        }
        if self.leaving {
            let refused = self.lanes[number as usize].refuse_next();
            return if refused { Stepped::On } else { Stepped::Idle };
        }
        let Lane { kernel, inbox, task, block, .. } = &mut self.lanes[number as usize];
        let (piece, bytes) = match inbox.front().or(direct) {
            Some((piece, bytes)) => (Some(piece), bytes),
            None => (None, &[][..]),
        };
        let busy = task.progress == Progress::Again || task.wires.has_command();
        // One request at a time: whoever is at work on one gets the next when its answer has left.
        let engaged = |piece: &Piece| busy && task.wires.is_engaged() && piece.part.first();
        let piece = piece.filter(|piece| task.presented || !engaged(piece));
        if task.skips && piece.is_none_or(|piece| piece.passing.is_none()) {
            let Some(piece) = piece else { return Stepped::Idle };
            task.used(&piece);
            return self.drop_front(number);
        }
        if piece.is_none() && !busy {
            return self.rest(number);
        }
        let Some(index) = block.or_else(|| self.free.pop()) else {
            self.starves = true;
            return Stepped::Waits;
        };
        *block = Some(index);
        let addr = self.answers.addr + u64::from(index) * u64::from(self.longest);
        let block = Sge { addr, len: self.longest, ..self.answers };
        let reach = Reach { mem, pd: self.pd, grants: &self.grants };
        task.wires.execute(reach, &block);
        if task.wires.complete().is_some() {
            return Stepped::On;
        }
        if let Some(piece) = &piece
            && !task.presented
        {
            self.requests += u64::from(task.present(piece, bytes));
        }
        let mut taken = false;
        if task.wires.fault.is_none() {
            let (input, wires) = (piece.as_ref().map(|piece| input(piece, bytes)), &mut task.wires);
            let mut streams =
                Streams { qpn: qp.number, input, taken: false, written: (0, 0), wires, reach, block };
            task.progress = kernel.step(&mut streams);
            taken = streams.taken;
            task.work += 1;
            self.steps += 1;
        }
        let too_long = (task.work > self.limit).then_some(Status::TOO_LONG);
        let used = piece.filter(|_| taken);
        if let Some(piece) = &used {
            task.used(piece);
        }
        if let Some(status) = task.wires.fault.or(too_long) {
            kernel.reset();
            task.fail(status);
            self.failures += 1;
        }
        if used.is_some() { self.drop_front(number) } else { Stepped::On }
    }

    /// There is nothing to do.
    fn rest(&mut self, number: u32) -> Stepped {
        let lane = &mut self.lanes[number as usize];
        let Task { wires, progress, unfinished, .. } = &lane.task;
        let done = wires.message.is_none() && (wires.answered || *unfinished);
        if *progress == Progress::Waits || done {
            return Stepped::Idle;
        }
        // It rests, and has begun a message or owes an answer.
        lane.fail(Status::FAILED);
        self.failures += 1;
        Stepped::On
    }

    /// What was in front is used.
    fn drop_front(&mut self, number: u32) -> Stepped {
        let inbox = &mut self.lanes[number as usize].inbox;
        if inbox.is_empty() {
            return Stepped::Took;
        }
        inbox.pop();
        Stepped::On
    }

    /// The message that the lane has made leaves, if it is complete. False: there is no room for it.
    pub fn send(&mut self, (place, number): (u32, u32), qp: &mut QueuePair) -> bool {
        let lane = &mut self.lanes[number as usize];
        let Some(message) = lane.task.wires.complete() else { return true };
        lane.task.wires.settle();
        let block = lane.block.filter(|_| message.len > 0);
        let from = block.map(|index| Source {
            memory: self.block(index),
            block: Block { place, kernel: self.number, index },
            scarce: self.is_scarce(),
        });
        if !qp.send_message(&message, from) {
            return false;
        }
        let lane = &mut self.lanes[number as usize];
        lane.task.wires.message = None;
        if message.len > 0 {
            lane.block = None;
        }
        true
    }
}

impl Deployed {
    /// Asks for what a request will read first to come near. None: its kernel does not know.
    fn foresee(&self, number: u32, params: &[u8], seen: Option<&[u8]>, mem: Mem<'_>) -> Option<(u64, u32)> {
        let (va, len) = self.lanes[number as usize].kernel.foresee(params, seen)?;
        if let Some(span) = self.reach(mem).span(va, len as usize, Access::NONE) {
            span.prefetch();
        }
        Some((va, len))
    }

    /// Several requests wait, and what they will read first is near by now: what they will read then shall be too.
    fn look_ahead(&mut self, number: u32, mem: Mem<'_>) {
        let inbox = &self.lanes[number as usize].inbox;
        let (from, to) = (inbox.foreseen, inbox.len());
        if to < 2 {
            return;
        }
        for at in from..to {
            let Some((piece, bytes)) = self.lanes[number as usize].inbox.short(at) else { continue };
            let Some((_, params)) = split(bytes).ok().filter(|_| piece.part.params()) else { continue };
            let kernel = &self.lanes[number as usize].kernel;
            let Some((va, len)) = kernel.foresee(params, None) else { break };
            let mut seen = [0; FORESEEN];
            let span = self.reach(mem).span(va, len as usize, Access::NONE);
            if let (Some(span), Some(seen)) = (span, seen.get_mut(..len as usize)) {
                span.read(seen);
                self.foresee(number, params, Some(seen), mem);
            }
        }
        self.lanes[number as usize].inbox.foreseen = to;
    }

    fn reach<'r>(&'r self, mem: Mem<'r>) -> Reach<'r> {
        Reach { mem, pd: self.pd, grants: &self.grants }
    }
}

impl Kernels {
    /// A request whose kernel knows what it will read first waits in its lane until the packets that came with it have been looked at:
    /// so many wait for memory together. False: it is to be handed over now. The caller has seen that there is room.
    pub(super) fn put_off(&mut self, at: (u32, u32), mem: Mem<'_>, piece: Piece, bytes: &[u8]) -> bool {
        let Some(kernel) = &mut self.deployed[at.0 as usize] else { return false };
        let Some((_, params)) = split(bytes).ok().filter(|_| piece.part.params()) else { return false };
        if kernel.foresee(at.1, params, None, mem).is_none() {
            return false;
        }
        let lane = &mut kernel.lanes[at.1 as usize];
        lane.inbox.push(piece, bytes);
        if !std::mem::replace(&mut lane.queued, true) {
            self.ready.push_back(at);
        }
        true
    }

    /// Do so many packets wait for a lane that it should begin, though more may come together with them? Or else whoever has many
    /// requests on their way would be refused.
    pub(super) fn is_crowded(&self, (place, number): (u32, u32)) -> bool {
        let kernel = self.deployed[place as usize].as_ref();
        kernel.is_some_and(|kernel| kernel.lanes[number as usize].inbox.is_half_full())
    }

    /// Has a lane room for another packet?
    pub(super) fn has_room(&self, (place, number): (u32, u32)) -> bool {
        let kernel = self.deployed[place as usize].as_ref();
        kernel.is_some_and(|kernel| kernel.lanes[number as usize].inbox.has_room())
    }

    /// Gives a lane its turn, with what has just come to it. The caller has seen that there is room for that.
    pub(super) fn drive(
        &mut self,
        at: (u32, u32),
        qp: &mut QueuePair,
        mem: Mem<'_>,
        direct: Option<(Piece, &[u8])>,
    ) {
        let Some(kernel) = &mut self.deployed[at.0 as usize] else { return };
        let turn = kernel.turn(at, qp, mem, direct);
        let lane = &mut kernel.lanes[at.1 as usize];
        if turn.again && !std::mem::replace(&mut lane.queued, true) {
            self.ready.push_back(at);
        }
        self.freed = true;
        if let Some(index) = turn.spare {
            let block = Block { place: at.0, kernel: kernel.number, index };
            self.give_back(block);
        }
    }

    /// The next lane that can go on, and whom it serves.
    pub(super) fn next_ready(&mut self) -> Option<((u32, u32), Option<Qpn>)> {
        let at = self.ready.pop_front()?;
        let kernel = self.deployed[at.0 as usize].as_mut();
        let lane = kernel.and_then(|kernel| kernel.lanes.get_mut(at.1 as usize));
        let qp = lane.and_then(|lane| {
            lane.queued = false;
            lane.qp
        });
        Some((at, qp))
    }
}
