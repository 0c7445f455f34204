//! The kernels that are deployed, and the memory that their answers leave from.

use std::collections::VecDeque;

use remora_memory::{Key, Mem, Pd};
use remora_wire::Qpn;

use super::lane::Lane;
use super::lane_ref::At;
use super::streams::{PACKET, Reach};
use super::{BEHIND, Kernel};
use crate::nic::{Nic, NicError};

/// Bytes of a room behind the longest answer's: a kernel may read a little more than it answers, as check values are.
pub const SPARE: u32 = 64;

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
    /// Answers that there is room for until they have arrived, `longest` + [`SPARE`] bytes each. Each lane at work takes one, each
    /// answer on its way another.
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
    /// Queue pairs that it may serve at a time, and how many it serves now.
    pub lanes: (u32, u32),
    /// Answers that there is room for, and how much of that is free.
    pub answers: (u32, u32),
    /// Requests that it has taken.
    pub requests: u64,
    /// Requests that it could not end, and why does the answer say.
    pub failures: u64,
    /// Steps that it has made.
    pub steps: u64,
}

/// Room for one answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The kernel, by place and number.
    pub place: u32,
    pub kernel: u32,
    /// Which.
    pub index: u32,
}

/// A kernel that is deployed.
pub(super) struct Deployed {
    pub lanes: Box<[Lane]>,
    pub base: Base,
}

/// What the lanes of a kernel share.
pub(super) struct Base {
    /// Where it stands among all kernels.
    pub place: u32,
    pub number: u32,
    pub pd: Pd,
    pub opcode: Option<u64>,
    pub grants: Box<[Key]>,
    /// A room for each answer.
    rooms: Box<[Box<[u8]>]>,
    pub longest: u32,
    pub limit: u64,
    /// Blocks that hold no answer, the last one used first: it is the one in the cache.
    pub free: Vec<u32>,
    blocks: u32,
    /// A lane waits for a block.
    pub starves: bool,
    /// It takes nothing new, and is gone when its last answer is.
    pub leaving: bool,
    pub requests: u64,
    pub failures: u64,
    pub steps: u64,
}

impl Deployed {
    fn new(place: u32, number: u32, init: KernelInit) -> Option<Deployed> {
        let blocks = init.answers;
        let fits = init.longest > 0 && !init.kernels.is_empty() && blocks as usize >= init.kernels.len();
        let base = || Base {
            place,
            number,
            pd: init.pd,
            opcode: init.opcode,
            grants: init.grants.into_boxed_slice(),
            rooms: (0..blocks)
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
    fn serves(&self, pd: Pd, opcode: Option<u64>) -> bool {
        self.base.pd == pd && self.base.opcode == opcode && !self.base.leaving
    }

    /// It was removed, and nothing is left of what it did.
    fn is_done(&self) -> bool {
        let idle = || self.lanes.iter().all(|lane| lane.qp.is_none());
        self.base.leaving && self.base.free.len() == self.base.blocks as usize && idle()
    }

    fn facts(&self) -> KernelFacts {
        let (base, busy) = (&self.base, self.lanes.iter().filter(|lane| lane.qp.is_some()).count());
        KernelFacts {
            number: base.number,
            pd: base.pd,
            opcode: base.opcode,
            lanes: (self.lanes.len() as u32, busy as u32),
            answers: (base.blocks, base.free.len() as u32),
            requests: base.requests,
            failures: base.failures,
            steps: base.steps,
        }
    }

    /// Blocks may be free again: lanes that waited for one can go on.
    #[inline]
    pub fn feed(&mut self, ready: &mut VecDeque<At>) {
        if !self.base.can_feed() {
            return;
        }
        self.base.starves = false;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.waits && !std::mem::replace(&mut lane.queued, true) {
                ready.push_back((self.base.place, number as u32));
            }
        }
    }

    /// The lane that serves a queue pair: the one that does already, or one that is free.
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

impl Base {
    /// The bytes of a block.
    #[inline]
    pub fn block(&self, index: u32) -> &[u8] {
        &self.rooms[index as usize]
    }

    /// The same, to be written.
    #[inline]
    pub fn block_mut(&mut self, index: u32) -> &mut [u8] {
        &mut self.rooms[index as usize]
    }

    /// Are more blocks in use than free? Then whose answers are on their way is not asked about later.
    pub fn is_scarce(&self) -> bool {
        self.free.len() < self.blocks as usize / 2
    }

    /// Does a lane wait for a block although there is one?
    #[inline]
    pub fn can_feed(&self) -> bool {
        self.starves && !self.free.is_empty()
    }

    /// What its lanes may touch.
    pub fn reach<'m>(&self, mem: Mem<'m>) -> Reach<'_, 'm> {
        Reach { mem, pd: self.pd, grants: &self.grants }
    }
}

/// All kernels of an engine.
pub(crate) struct Kernels {
    pub(super) deployed: Box<[Option<Deployed>]>,
    next: u32,
    /// Lanes that can go on: the kernel's place, and number there.
    pub(super) ready: VecDeque<At>,
    /// Queue pairs over IRN whose order waits for a lane.
    pub(super) stalled: VecDeque<Qpn>,
    /// A lane has become free since they were looked at.
    pub(super) freed: bool,
    /// Where bytes stand while they are judged.
    pub(super) room: Box<[u8]>,
}

impl Kernels {
    pub fn new(max: u32, max_qps: u32) -> Kernels {
        Kernels {
            deployed: (0..max).map(|_| None).collect(),
            next: 0,
            ready: VecDeque::new(),
            stalled: VecDeque::with_capacity(max_qps as usize),
            freed: false,
            room: vec![0; PACKET + BEHIND].into_boxed_slice(),
        }
    }

    /// Can a lane, or a queue pair that waits for one, go on?
    #[inline]
    pub fn have_work(&self) -> bool {
        !self.ready.is_empty() || self.freed && !self.stalled.is_empty()
    }

    /// Place and number of the kernel that serves an op-code for queue pairs of a domain; `hint` is where the last one was found.
    pub(super) fn serves(&self, pd: Pd, opcode: u64, hint: u32) -> Option<(u32, u32)> {
        let number = |place: usize, wanted: Option<u64>| {
            let kernel = self.deployed.get(place)?.as_ref()?;
            kernel.serves(pd, wanted).then_some((place as u32, kernel.base.number))
        };
        let all = |wanted| (0..self.deployed.len()).find_map(|place| number(place, wanted));
        number(hint as usize, Some(opcode)).or_else(|| all(Some(opcode))).or_else(|| all(None))
    }

    /// Place of the kernel with a number, for queue pairs of a domain.
    pub(super) fn place_of_number(&self, pd: Pd, number: u32) -> Result<u32, NicError> {
        let is = |base: &Base| base.number == number && base.pd == pd && !base.leaving;
        let place =
            self.deployed.iter().position(|kernel| kernel.as_ref().is_some_and(|kernel| is(&kernel.base)));
        place.map(|place| place as u32).ok_or(NicError::Unknown)
    }

    /// Does the kernel with this number still take anything?
    pub(super) fn is_there(&self, place: u32, number: u32) -> bool {
        let kernel = self.deployed.get(place as usize).and_then(Option::as_ref);
        kernel.is_some_and(|kernel| kernel.base.number == number && !kernel.base.leaving)
    }

    /// Lanes that waited for something of this queue pair's to end may go on.
    pub fn wake(&mut self, qp: Qpn) {
        for (place, kernel) in self.deployed.iter_mut().enumerate() {
            let Some(kernel) = kernel else { continue };
            for (number, lane) in kernel.lanes.iter_mut().enumerate() {
                if lane.qp == Some(qp) && lane.waits && !std::mem::replace(&mut lane.queued, true) {
                    self.ready.push_back((place as u32, number as u32));
                }
            }
        }
    }

    /// An answer has arrived, or will never leave.
    pub(super) fn give_back(&mut self, block: Block) {
        let found = self.deployed.get_mut(block.place as usize).and_then(Option::as_mut);
        let Some(kernel) = found.filter(|kernel| kernel.base.number == block.kernel) else { return };
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

    /// Those that were removed while answers were on their way are gone once these have arrived.
    fn sweep(&mut self) {
        let Kernels { deployed, ready, .. } = self;
        for (place, kernel) in deployed.iter_mut().enumerate() {
            if kernel.as_ref().is_some_and(Deployed::is_done) {
                ready.retain(|(other, _)| *other as usize != place);
                *kernel = None;
            }
        }
    }

    fn find(&mut self, number: u32) -> Result<(usize, &mut Deployed), NicError> {
        let mut all = self.deployed.iter_mut().enumerate();
        all.find_map(|(place, kernel)| {
            kernel.as_mut().filter(|kernel| kernel.base.number == number).map(|kernel| (place, kernel))
        })
        .ok_or(NicError::Unknown)
    }
}

impl Nic {
    /// Deploys a kernel; its number. It serves from now on.
    ///
    /// # Errors
    /// [`NicError::Full`]: as many as there may be. [`NicError::Busy`]: the op-code is taken. [`NicError::TooSmall`]: there are fewer
    /// answers than lanes, or no lanes.
    pub fn deploy_kernel(&mut self, init: KernelInit) -> Result<u32, NicError> {
        let kernels = &mut self.shared.kernels;
        kernels.sweep();
        let taken = |kernel: &Deployed| kernel.serves(init.pd, init.opcode);
        if kernels.deployed.iter().flatten().any(taken) {
            return Err(NicError::Busy);
        }
        let place = kernels.deployed.iter().position(Option::is_none).ok_or(NicError::Full)?;
        let deployed = Deployed::new(place as u32, kernels.next, init).ok_or(NicError::TooSmall)?;
        kernels.next += 1;
        let lanes: usize = kernels.deployed.iter().flatten().map(|kernel| kernel.lanes.len()).sum();
        let number = deployed.base.number;
        kernels.ready.reserve(lanes + deployed.lanes.len());
        kernels.deployed[place] = Some(deployed);
        Ok(number)
    }

    /// The kernels that are deployed.
    pub fn kernels(&self) -> impl Iterator<Item = KernelFacts> {
        self.shared.kernels.deployed.iter().flatten().map(Deployed::facts)
    }

    /// Puts other kernels in place of those that are deployed under a number, as many as there are lanes. Each lane changes when
    /// it is at rest; until then it goes on with the old one.
    ///
    /// # Errors
    /// [`NicError::Unknown`], [`NicError::TooSmall`] if they are not as many.
    pub fn replace_kernel(&mut self, number: u32, others: Vec<Box<dyn Kernel>>) -> Result<(), NicError> {
        let (_, kernel) = self.shared.kernels.find(number)?;
        if kernel.lanes.len() != others.len() {
            return Err(NicError::TooSmall);
        }
        for (lane, other) in kernel.lanes.iter_mut().zip(others) {
            lane.replace(other);
        }
        Ok(())
    }

    /// Removes a kernel. It takes nothing new, and what it had begun ends with an error to whoever asked.
    ///
    /// # Errors
    /// [`NicError::Unknown`]. [`NicError::Busy`]: answers are still on their way from its memory. Its place is free when they have
    /// arrived; who wants to know when that is asks again.
    pub fn remove_kernel(&mut self, number: u32) -> Result<(), NicError> {
        let (place, kernel) = self.shared.kernels.find(number)?;
        kernel.base.leaving = true;
        for lane in 0..kernel.lanes.len() as u32 {
            self.end_lane((place as u32, lane));
        }
        let kernels = &mut self.shared.kernels;
        kernels.sweep();
        if kernels.deployed[place].is_some() { Err(NicError::Busy) } else { Ok(()) }
    }

    /// A lane of a kernel that is being removed ends what it does.
    fn end_lane(&mut self, at: (u32, u32)) {
        let kernel = self.shared.kernels.deployed[at.0 as usize].as_ref();
        let Some(qp) = kernel.and_then(|kernel| kernel.lanes[at.1 as usize].qp) else { return };
        let Some(index) = self.index(qp) else { return };
        if let Some(qp) = &mut self.qps[index as usize] {
            qp.end_lane(&mut self.shared.kernels, at);
        }
        self.attend(index);
    }
}
