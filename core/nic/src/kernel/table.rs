//! The kernels that are deployed, and the memory that their answers leave from.

use std::collections::VecDeque;

use remora_memory::{Key, Pd};
use remora_wire::Qpn;
use remora_wire::strom::Status;

use super::base::{Base, Block, KernelId, LaneId, SPARE};
use super::lane::{AnswerSender, Lane};
use super::streams::PACKET;
use super::{BEHIND, Kernel};
use crate::config::NicError;

/// What a kernel is deployed with.
pub struct KernelInit {
    /// Its domain: it serves queue pairs of this domain only, and has no rights outside.
    pub pd: Pd,
    /// The RPC op-code that it serves; none: it takes what no other kernel of the domain does.
    pub opcode: Option<u64>,
    /// One for each queue pair that it serves at a time. All of a kind, each on its own.
    pub kernels: Vec<Box<dyn Kernel>>,
    /// The regions that it may read, and write where they allow that.
    pub grants: Vec<Key>,
    /// Blocks for answers, `longest` + [`SPARE`] bytes each. A lane at work takes one, and so does an answer
    /// until it is acknowledged.
    pub answers: u32,
    /// Bytes of the longest answer.
    pub longest: u32,
    /// Steps that one packet of input may cost; then the request ends with an error.
    pub limit: u64,
}

/// What is known of a kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct KernelFacts {
    /// Its number.
    pub number: u32,
    /// Its domain.
    pub pd: Pd,
    /// Its op-code; none: the fallback.
    pub opcode: Option<u64>,
    /// Queue pairs that it may serve at a time.
    pub lanes: u32,
    /// Queue pairs that it serves now.
    pub busy_lanes: u32,
    /// Blocks for answers.
    pub answers: u32,
    /// Blocks for answers that are free.
    pub free_answers: u32,
    /// Requests that it has taken.
    pub requests: u64,
    /// Requests that it ended with an error.
    pub failures: u64,
    /// Steps that it has made.
    pub steps: u64,
}

/// A kernel that is deployed.
pub(super) struct Deployed {
    pub lanes: Box<[Lane]>,
    pub base: Base,
}

impl Deployed {
    pub fn new(id: KernelId, init: KernelInit) -> Option<Deployed> {
        let blocks = init.answers;
        let fits = init.longest > 0 && !init.kernels.is_empty() && blocks as usize >= init.kernels.len();
        let base = || Base {
            id,
            pd: init.pd,
            opcode: init.opcode,
            grants: init.grants.into_boxed_slice(),
            memory: (0..blocks)
                .map(|_| vec![0; init.longest as usize + SPARE as usize].into_boxed_slice())
                .collect(),
            longest: init.longest,
            limit: init.limit.max(1),
            free: (0..blocks).rev().collect(),
            blocks,
            starves: false,
            leaving: false,
            requests: 0,
            failures: 0,
            steps: 0,
        };
        fits.then(|| Deployed { base: base(), lanes: init.kernels.into_iter().map(Lane::new).collect() })
    }

    /// Does it serve an op-code for queue pairs of a domain?
    pub fn serves(&self, pd: Pd, opcode: Option<u64>) -> bool {
        self.base.pd == pd && self.base.opcode == opcode && !self.base.leaving
    }

    /// Is it removed, with no lane at work and no answer on its way?
    fn is_done(&self) -> bool {
        let idle = || self.lanes.iter().all(|lane| lane.qp.is_none());
        self.base.leaving && self.base.free.len() == self.base.blocks as usize && idle()
    }

    pub fn facts(&self) -> KernelFacts {
        let (base, busy) = (&self.base, self.lanes.iter().filter(|lane| lane.qp.is_some()).count());
        KernelFacts {
            number: base.id.number,
            pd: base.pd,
            opcode: base.opcode,
            lanes: self.lanes.len() as u32,
            busy_lanes: busy as u32,
            answers: base.blocks,
            free_answers: base.free.len() as u32,
            requests: base.requests,
            failures: base.failures,
            steps: base.steps,
        }
    }

    /// Asserts that each block is free, held by one lane or with an answer that is not acknowledged.
    fn check(&self) {
        let base = &self.base;
        let held: u32 = self.lanes.iter().map(|lane| lane.check(base.blocks)).sum();
        assert!(
            base.free.len() + held as usize <= base.blocks as usize,
            "free blocks + blocks of lanes <= all blocks: {}, {held}, {}",
            base.free.len(),
            base.blocks
        );
        assert!(base.free.iter().all(|block| *block < base.blocks), "a free block is one of the kernel's");
    }

    /// Blocks may be free again: lanes that waited for one can go on.
    #[inline]
    pub fn feed(&mut self, ready: &mut VecDeque<LaneId>) {
        if !self.base.can_feed() {
            return;
        }
        self.base.starves = false;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.waits && !std::mem::replace(&mut lane.queued, true) {
                ready.push_back(LaneId { place: self.base.id.place, index: index as u32 });
            }
        }
    }

    /// The lane that serves a queue pair, or else a free one.
    pub fn lane_for(&mut self, qp: Qpn, hint: u32) -> Option<u32> {
        let serves = |lane: &Lane| lane.qp == Some(qp);
        if self.lanes.get(hint as usize).is_some_and(serves) {
            return Some(hint);
        }
        let found = self.lanes.iter().position(serves);
        let found = found.or_else(|| self.lanes.iter().position(|lane| lane.qp.is_none()))?;
        self.lanes[found].qp = Some(qp);
        Some(found as u32)
    }
}

impl Deployed {
    /// Ends the request in progress of a lane, and those that wait for it, with errors. What cannot be sent
    /// at once is sent later.
    pub fn end_lane(&mut self, index: u32, qp: &mut impl AnswerSender) {
        let lane = &mut self.lanes[index as usize];
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

/// All kernels of an engine.
pub(crate) struct Kernels {
    pub(super) deployed: Box<[Option<Deployed>]>,
    pub(super) next: u32,
    /// Lanes that can go on.
    pub(super) ready: VecDeque<LaneId>,
    /// Queue pairs over IRN whose order waits for a lane.
    pub(super) stalled: VecDeque<Qpn>,
    /// A lane has become free since they were looked at.
    pub(super) freed: bool,
    /// The buffer for bytes that are checked.
    pub(super) check_buffer: Box<[u8]>,
}

impl Kernels {
    pub fn new(max: u32, max_qps: u32) -> Kernels {
        Kernels {
            deployed: (0..max).map(|_| None).collect(),
            next: 0,
            ready: VecDeque::new(),
            stalled: VecDeque::with_capacity(max_qps as usize),
            freed: false,
            check_buffer: vec![0; PACKET + BEHIND].into_boxed_slice(),
        }
    }

    /// Can a lane, or a queue pair that waits for one, go on?
    #[inline]
    pub fn have_work(&self) -> bool {
        !self.ready.is_empty() || self.freed && !self.stalled.is_empty()
    }

    /// The kernel that serves an op-code for queue pairs of a domain; `hint` is the place where the last one
    /// was found.
    pub(super) fn serves(&self, pd: Pd, opcode: u64, hint: u32) -> Option<KernelId> {
        let at = |place: usize, wanted: Option<u64>| {
            let kernel = self.deployed.get(place)?.as_ref()?;
            kernel.serves(pd, wanted).then_some(kernel.base.id)
        };
        let all = |wanted| (0..self.deployed.len()).find_map(|place| at(place, wanted));
        at(hint as usize, Some(opcode)).or_else(|| all(Some(opcode))).or_else(|| all(None))
    }

    /// The kernel with a number, for queue pairs of a domain.
    pub(super) fn id_of(&self, pd: Pd, number: u32) -> Result<KernelId, NicError> {
        let is = |base: &Base| base.id.number == number && base.pd == pd && !base.leaving;
        let found = self.deployed.iter().flatten().find(|kernel| is(&kernel.base));
        found.map(|kernel| kernel.base.id).ok_or(NicError::Unknown)
    }

    /// Does this kernel still take anything?
    pub(super) fn is_there(&self, id: KernelId) -> bool {
        let kernel = self.deployed.get(id.place as usize).and_then(Option::as_ref);
        kernel.is_some_and(|kernel| kernel.base.id.number == id.number && !kernel.base.leaving)
    }

    /// Asserts the invariants of one kernel; `event` is the number of this event, and chooses it.
    pub fn check(&self, event: u64) {
        let places = self.deployed.len().max(1) as u64;
        if let Some(Some(kernel)) = self.deployed.get((event % places) as usize) {
            kernel.check();
        }
    }

    /// Lanes that waited for something of this queue pair's to end may go on.
    pub fn wake(&mut self, qp: Qpn) {
        for (place, kernel) in self.deployed.iter_mut().enumerate() {
            let Some(kernel) = kernel else { continue };
            for (index, lane) in kernel.lanes.iter_mut().enumerate() {
                if lane.qp == Some(qp) && lane.waits && !std::mem::replace(&mut lane.queued, true) {
                    self.ready.push_back(LaneId { place: place as u32, index: index as u32 });
                }
            }
        }
    }

    /// An answer was acknowledged, or will never leave: its block is free.
    pub(super) fn give_back(&mut self, block: Block) {
        let found = self.deployed.get_mut(block.kernel.place as usize).and_then(Option::as_mut);
        let Some(kernel) = found.filter(|kernel| kernel.base.id == block.kernel) else { return };
        kernel.base.free.push(block.index);
        kernel.feed(&mut self.ready);
    }

    /// A queue pair is gone: its lanes are free.
    pub(super) fn forget(&mut self, qp: Qpn) {
        self.stalled.retain(|stalled| *stalled != qp);
        for kernel in self.deployed.iter_mut().flatten() {
            for lane in kernel.lanes.iter_mut().filter(|lane| lane.qp == Some(qp)) {
                kernel.base.free.extend(lane.abandon());
                self.freed = true;
            }
        }
    }

    /// Drops kernels that were removed and whose answers have been acknowledged.
    pub(super) fn sweep(&mut self) {
        let Kernels { deployed, ready, .. } = self;
        for (place, kernel) in deployed.iter_mut().enumerate() {
            if kernel.as_ref().is_some_and(Deployed::is_done) {
                ready.retain(|lane| lane.place as usize != place);
                *kernel = None;
            }
        }
    }

    pub(super) fn find(&mut self, number: u32) -> Result<(usize, &mut Deployed), NicError> {
        let mut all = self.deployed.iter_mut().enumerate();
        all.find_map(|(place, kernel)| {
            kernel.as_mut().filter(|kernel| kernel.base.id.number == number).map(|kernel| (place, kernel))
        })
        .ok_or(NicError::Unknown)
    }
}
