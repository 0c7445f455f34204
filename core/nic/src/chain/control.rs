//! WAIT and ENABLE, in the send queue of any queue pair.

use remora_memory::Pd;
use remora_transport::Status;
use remora_wire::Qpn;

use crate::completion_queue::NOBODY;
use crate::nic::{Nic, Shared};
use crate::queue_pair::QueuePair;
use crate::wqe::{Wqe, WqeOpcode, flag};
use std::collections::VecDeque;

/// ENABLEs of one turn that wait to reach their queues, at most; at the bound the next one waits for its queue's next turn.
const ENABLES: usize = 256;

/// What queue pairs have for each other.
pub(crate) struct Control {
    /// For each queue pair that waits: the one before it in the same line.
    before: Box<[u32]>,
    /// Queue pairs that shall look again.
    released: VecDeque<u32>,
    enables: VecDeque<(Qpn, u64)>,
    /// For each place: the queue pair there that is enabled by others, and its domain.
    enabled: Box<[Option<(Qpn, Pd)>]>,
}

/// May a work request start?
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    Later,
    Never(Status),
}

impl Control {
    pub fn new(places: usize) -> Control {
        Control {
            before: vec![NOBODY; places].into(),
            released: VecDeque::with_capacity(places),
            enables: VecDeque::with_capacity(ENABLES),
            enabled: vec![None; places].into(),
        }
    }

    /// Has anything to be done outside of the queue pair whose turn it is?
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.released.is_empty() || !self.enables.is_empty()
    }

    pub fn set_enabled(&mut self, index: u32, pd: Option<(Qpn, Pd)>) {
        self.enabled[index as usize] = pd;
    }

    fn release(&mut self, mut index: u32) {
        while index != NOBODY {
            // Each queue pair stands in one line at most, so that there is always room.
            self.released.push_back(index);
            index = std::mem::replace(&mut self.before[index as usize], NOBODY);
        }
    }
}

impl Shared {
    /// The queue's count has come to what somebody waits for.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_waiting(&mut self, cq: u32) {
        if let Some(queue) = self.completion_queue(cq) {
            let last = queue.release();
            self.control.release(last);
        }
    }
}

impl QueuePair {
    /// May this work request start, of which more must be known than itself, with so much under way before it?
    #[cold]
    #[inline(never)]
    pub(crate) fn may_start(&mut self, wqe: &Wqe, outstanding: usize, shared: &mut Shared) -> Start {
        match wqe.opcode() {
            WqeOpcode::WAIT => self.wait(wqe, shared),
            WqeOpcode::ENABLE if outstanding > 0 && wqe.flags() & flag::FENCE != 0 => Start::Later,
            WqeOpcode::ENABLE => self.enable(wqe, shared),
            _ if outstanding > 0 && crate::queue_pair::waits_for_all(wqe) => Start::Later,
            _ => Start::Now,
        }
    }

    fn wait(&mut self, wqe: &Wqe, shared: &mut Shared) -> Start {
        let Some(cq) = u32::try_from(wqe.remote).ok() else {
            return Start::Never(Status::LocalQpOperation);
        };
        let index = shared.place(self.number);
        let may_wait = shared.may_wait_for(cq, self.pd);
        let Some(queue) = shared.completion_queue(cq) else { return Start::Never(Status::LocalQpOperation) };
        if !may_wait {
            return Start::Never(Status::LocalProtection);
        }
        if queue.written() >= wqe.swap_add {
            return Start::Now;
        }
        if !self.waiting {
            self.waiting = true;
            let before = queue.wait(index, wqe.swap_add);
            shared.control.before[index as usize] = before;
        }
        Start::Later
    }

    fn enable(&mut self, wqe: &Wqe, shared: &mut Shared) -> Start {
        let Some(number) = u32::try_from(wqe.remote).ok().filter(|number| number >> 24 == 0).map(Qpn::new)
        else {
            return Start::Never(Status::LocalQpOperation);
        };
        if number == self.number {
            let may = self.send.enable(wqe.swap_add);
            return if may { Start::Now } else { Start::Never(Status::LocalQpOperation) };
        }
        let known = shared.control.enabled[shared.place(number) as usize];
        match known {
            Some((there, pd)) if there == number && pd == self.pd => {}
            Some((there, _)) if there == number => return Start::Never(Status::LocalProtection),
            _ => return Start::Never(Status::LocalQpOperation),
        }
        let control = &mut shared.control;
        if control.enables.len() == ENABLES {
            return Start::Later;
        }
        control.enables.push_back((number, wqe.swap_add));
        Start::Now
    }
}

impl Nic {
    /// What queue pairs had for each other reaches them.
    #[cold]
    #[inline(never)]
    pub(crate) fn pass_on(&mut self) {
        while let Some((number, count)) = self.shared.control.enables.pop_front() {
            // A queue pair that is gone since takes nothing.
            let _ = self.enable(number, count);
        }
        while let Some(index) = self.shared.control.released.pop_front() {
            if let Some(qp) = &mut self.qps[index as usize] {
                qp.waiting = false;
                self.attend(index);
            }
        }
    }

    /// A queue pair goes: its place in the line of those that wait is free.
    pub(crate) fn forget_waiting(&mut self, qp: &QueuePair, index: u32) {
        self.shared.control.set_enabled(index, None);
        if qp.waiting {
            self.shared.release_all_waiting();
            self.pass_on();
        }
    }
}
