//! The table of deployed kernels, and the memory of their answers.

use std::collections::VecDeque;

use remora_memory::{Key, Pd};
use remora_wire::Qpn;
use remora_wire::strom::Status;
use serde::{Deserialize, Serialize};

use super::base::{Base, Block, KernelId, LaneId, SPARE};
use super::lane::{AnswerSender, Lane};
use super::streams::PACKET;
use super::{BEHIND, Kernel};
use crate::config::NicError;
use crate::part_number::PartNumber;

/// The parameters with which a kernel is deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelInit {
    /// Protection domain. The kernel serves queue pairs of this domain only, and has no access outside.
    pub pd: Pd,
    /// RPC opcode of the kernel. `None` makes it the fallback for opcodes without a kernel in the domain.
    pub opcode: Option<u64>,
    /// Code of the kernel, once for each lane. Each lane serves one queue pair at a time.
    pub code: PartNumber,
    /// Keys of the memory regions that the kernel may read, and write if they allow it.
    pub grants: Vec<Key>,
    /// Number of blocks for answers, of `longest` + [`SPARE`] bytes each. A busy lane needs one, and so does
    /// each unacknowledged answer.
    pub answers: u32,
    /// Size of the longest answer in bytes.
    pub longest: u32,
    /// Maximum number of steps per packet of input; beyond it the request ends with an error.
    pub limit: u64,
}

/// The state of a kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// Number of the kernel.
    pub number: u32,
    /// Protection domain of the object.
    pub pd: Pd,
    /// Opcode; `None` for the fallback.
    pub opcode: Option<u64>,
    /// Number of queue pairs that the kernel can serve at the same time.
    pub lanes: u32,
    /// Number of queue pairs that the kernel serves now.
    pub busy_lanes: u32,
    /// Number of blocks for answers.
    pub answers: u32,
    /// Number of free blocks for answers.
    pub free_answers: u32,
    /// Number of accepted requests.
    pub requests: u64,
    /// Number of requests that ended with an error.
    pub failures: u64,
    /// Number of executed steps.
    pub steps: u64,
}

/// A deployed kernel.
pub(super) struct Deployed {
    pub lanes: Box<[Lane]>,
    pub base: Base,
}

impl Deployed {
    pub(crate) fn new(id: KernelId, init: &KernelInit, code: Vec<Box<dyn Kernel>>) -> Option<Deployed> {
        let blocks = init.answers;
        let fits = init.longest > 0 && !code.is_empty() && blocks as usize >= code.len();
        let base = || Base {
            id,
            pd: init.pd,
            opcode: init.opcode,
            grants: init.grants.clone().into_boxed_slice(),
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
        fits.then(|| Deployed { base: base(), lanes: code.into_iter().map(Lane::new).collect() })
    }

    /// Returns true if the kernel serves the opcode for queue pairs of the domain.
    pub(crate) fn serves(&self, pd: Pd, opcode: Option<u64>) -> bool {
        self.base.pd == pd && self.base.opcode == opcode && !self.base.leaving
    }

    /// Returns true if the kernel was removed, no lane is busy and no answer is in flight.
    fn is_done(&self) -> bool {
        let idle = || self.lanes.iter().all(|lane| lane.qp.is_none());
        self.base.leaving && self.base.free.len() == self.base.blocks as usize && idle()
    }

    pub(crate) fn facts(&self) -> KernelFacts {
        let base = &self.base;
        let busy = self.lanes.iter().filter(|lane| lane.qp.is_some()).count();
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

    /// Asserts that each block is free, held by one lane or used by an unacknowledged answer.
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

    /// Wakes lanes that waited for a block, if one is free.
    #[inline]
    pub(crate) fn feed(&mut self, ready: &mut VecDeque<LaneId>) {
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

    /// Returns the lane that serves a queue pair, or else a free one.
    pub(crate) fn lane_for(&mut self, qp: Qpn, hint: u32) -> Option<u32> {
        let serves = |lane: &Lane| lane.qp == Some(qp);
        if self.lanes.get(hint as usize).is_some_and(serves) {
            return Some(hint);
        }
        let index = self.lanes.iter().position(serves);
        let index = index.or_else(|| self.lanes.iter().position(|lane| lane.qp.is_none()))?;
        self.lanes[index].qp = Some(qp);
        Some(index as u32)
    }
}

impl Deployed {
    /// Ends the current request of a lane, and those that wait, with errors. Unsent errors are sent later.
    pub(crate) fn end_lane(&mut self, index: u32, qp: &mut impl AnswerSender) {
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

/// The kernels of an engine.
pub(crate) struct Kernels {
    pub(super) deployed: Box<[Option<Deployed>]>,
    pub(super) next: u32,
    /// Lanes that can go on.
    pub(super) ready: VecDeque<LaneId>,
    /// IRN queue pairs whose next packet waits for a lane.
    pub(super) stalled: VecDeque<Qpn>,
    /// A lane has become free since `stalled` was last processed.
    pub(super) freed: bool,
    /// Buffer for data that is checked.
    pub(super) check_buffer: Box<[u8]>,
}

impl Kernels {
    pub(crate) fn new(max: u32, max_qps: u32) -> Kernels {
        Kernels {
            deployed: (0..max).map(|_| None).collect(),
            next: 0,
            ready: VecDeque::new(),
            stalled: VecDeque::with_capacity(max_qps as usize),
            freed: false,
            check_buffer: vec![0; PACKET + BEHIND].into_boxed_slice(),
        }
    }

    /// Returns true if a lane, or a queue pair that waits for one, can continue.
    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        !self.ready.is_empty() || self.freed && !self.stalled.is_empty()
    }

    /// Returns the kernel that serves an opcode for queue pairs of a domain; `hint` is the last known table
    /// index.
    pub(super) fn serves(&self, pd: Pd, opcode: u64, hint: u32) -> Option<KernelId> {
        let kernel_at = |place: usize, wanted: Option<u64>| {
            let kernel = self.deployed.get(place)?.as_ref()?;
            kernel.serves(pd, wanted).then_some(kernel.base.id)
        };
        let all = |wanted| (0..self.deployed.len()).find_map(|place| kernel_at(place, wanted));
        kernel_at(hint as usize, Some(opcode)).or_else(|| all(Some(opcode))).or_else(|| all(None))
    }

    /// Returns the kernel with a number, for queue pairs of a domain.
    pub(super) fn id_of(&self, pd: Pd, number: u32) -> Result<KernelId, NicError> {
        let is = |base: &Base| base.id.number == number && base.pd == pd && !base.leaving;
        let kernel = self.deployed.iter().flatten().find(|kernel| is(&kernel.base));
        kernel.map(|kernel| kernel.base.id).ok_or(NicError::Unknown)
    }

    /// Returns true if the kernel still accepts requests.
    pub(super) fn is_there(&self, id: KernelId) -> bool {
        let kernel = self.deployed.get(id.place as usize).and_then(Option::as_ref);
        kernel.is_some_and(|kernel| kernel.base.id.number == id.number && !kernel.base.leaving)
    }

    /// Asserts the invariants of one kernel, chosen by the number `event` of this event.
    pub(crate) fn check(&self, event: u64) {
        let places = self.deployed.len().max(1) as u64;
        if let Some(Some(kernel)) = self.deployed.get((event % places) as usize) {
            kernel.check();
        }
    }

    /// Wakes the lanes that waited for a message of this queue pair to complete.
    pub(crate) fn wake(&mut self, qp: Qpn) {
        for (place, kernel) in self.deployed.iter_mut().enumerate() {
            let Some(kernel) = kernel else { continue };
            for (index, lane) in kernel.lanes.iter_mut().enumerate() {
                if lane.qp == Some(qp) && lane.waits && !std::mem::replace(&mut lane.queued, true) {
                    self.ready.push_back(LaneId { place: place as u32, index: index as u32 });
                }
            }
        }
    }

    /// Frees the block of an answer that was acknowledged or will never be sent.
    pub(super) fn give_back(&mut self, block: Block) {
        let kernel = self.deployed.get_mut(block.kernel.place as usize).and_then(Option::as_mut);
        let Some(kernel) = kernel.filter(|kernel| kernel.base.id == block.kernel) else { return };
        kernel.base.free.push(block.index);
        kernel.feed(&mut self.ready);
    }

    /// Frees the lanes of a destroyed queue pair.
    pub(super) fn forget(&mut self, qp: Qpn) {
        self.stalled.retain(|stalled| *stalled != qp);
        for kernel in self.deployed.iter_mut().flatten() {
            for lane in kernel.lanes.iter_mut().filter(|lane| lane.qp == Some(qp)) {
                kernel.base.free.extend(lane.abandon());
                self.freed = true;
            }
        }
    }

    /// Drops removed kernels whose answers were all acknowledged.
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
