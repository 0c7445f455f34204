//! Deployment and attachment of kernels by the program, and scheduling of their lanes.

use remora_memory::Mem;
use remora_transport::Outcome;
use remora_transport::rc::strom::Part;
use remora_transport::state::Service;
use remora_wire::Qpn;

use super::answer::{end_lane_for, go_on_lane};
use super::base::{KernelId, LaneId};
use super::placement::Invocation;
use super::serve::hand_over;
use super::streams::PACKET;
use super::table::{Deployed, KernelFacts, KernelInit};
use crate::config::NicError;
use crate::nic::Nic;
use crate::part_number::PartNumber;

impl Nic {
    /// Deploys a kernel and returns its number.
    pub(crate) fn deploy_kernel(&mut self, init: &KernelInit) -> Result<u32, NicError> {
        let code = self.parts.kernels(init.code)?;
        let kernels = self.shared.kernels_mut();
        kernels.sweep();
        let taken = |kernel: &Deployed| kernel.serves(init.pd, init.opcode);
        if kernels.deployed.iter().flatten().any(taken) {
            return Err(NicError::Busy);
        }
        let place = kernels.deployed.iter().position(Option::is_none).ok_or(NicError::Full)?;
        let deployed = Deployed::new(KernelId { place: place as u32, number: kernels.next }, init, code)
            .ok_or(NicError::TooSmall)?;
        kernels.next += 1;
        let lanes: usize = kernels.deployed.iter().flatten().map(|kernel| kernel.lanes.len()).sum();
        let number = deployed.base.id.number;
        kernels.ready.reserve(lanes + deployed.lanes.len());
        kernels.deployed[place] = Some(deployed);
        Ok(number)
    }

    /// Returns the deployed kernels.
    pub(crate) fn kernels(&mut self) -> Vec<KernelFacts> {
        self.shared.kernels_mut().sweep();
        self.shared.kernels().deployed.iter().flatten().map(Deployed::facts).collect()
    }

    /// Replaces the code of a kernel, once for each lane. A lane switches when its old code rests.
    pub(crate) fn replace_kernel(&mut self, number: u32, code: PartNumber) -> Result<(), NicError> {
        let others = self.parts.kernels(code)?;
        let (_, kernel) = self.shared.kernels_mut().find(number)?;
        if kernel.lanes.len() != others.len() {
            return Err(NicError::TooSmall);
        }
        for (lane, other) in kernel.lanes.iter_mut().zip(others) {
            lane.replace(other);
        }
        Ok(())
    }

    /// Removes a kernel, whose requests in progress end with an error. `Busy` until all its answers are
    /// acknowledged.
    pub(crate) fn remove_kernel(&mut self, number: u32) -> Result<(), NicError> {
        let (place, kernel) = self.shared.kernels_mut().find(number)?;
        kernel.base.leaving = true;
        for index in 0..kernel.lanes.len() as u32 {
            self.end_lane(LaneId { place: place as u32, index });
        }
        let kernels = self.shared.kernels_mut();
        kernels.sweep();
        if kernels.deployed[place].is_some() { Err(NicError::Busy) } else { Ok(()) }
    }

    /// Ends the current request of a lane whose kernel is being removed.
    fn end_lane(&mut self, lane: LaneId) {
        let kernel = self.shared.kernels().deployed[lane.place as usize].as_ref();
        let Some(qp) = kernel.and_then(|kernel| kernel.lanes[lane.index as usize].qp) else { return };
        let Some(index) = self.index(qp) else { return };
        if let Some(qp) = &mut self.qps[index as usize] {
            end_lane_for(qp, self.shared.kernels_mut(), lane);
        }
        self.attend(index);
    }

    /// Attaches a kernel to the incoming WRITEs of a queue pair. `None` detaches it.
    pub(crate) fn attach_kernel(&mut self, qp: Qpn, kernel: Option<u32>) -> Result<(), NicError> {
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        let tap = match kernel {
            None => None,
            Some(number) => Some(self.shared.kernels().id_of(qp.id().pd, number)?),
        };
        if !qp.machine().is_rc() && !qp.machine().is_irn() {
            return Err(NicError::NotThisService);
        }
        qp.use_strom().tap = tap;
        Ok(())
    }

    /// Passes a message, or a piece of one, to a kernel as if it came from the peer of a queue pair.
    pub(crate) fn invoke_kernel(
        &mut self,
        mem: Mem<'_>,
        qp: Qpn,
        invocation: &Invocation,
    ) -> Result<(), NicError> {
        let len = invocation.bytes.len() as u32;
        if invocation.bytes.len() > PACKET || len > invocation.left {
            return Err(NicError::TooSmall);
        }
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        if qp.offloads().strom.is_none() {
            return Err(NicError::NotThisService);
        }
        let shared = &mut self.shared;
        shared.kernels_mut().serves(qp.id().pd, invocation.opcode, u32::MAX).ok_or(NicError::Unknown)?;
        let ends = [invocation.first, len == invocation.left];
        let part = Part::new(invocation.opcode, invocation.tag, invocation.left, invocation.params, ends);
        let outcome = hand_over(qp, mem, &part, &invocation.bytes, shared);
        self.attend(index);
        if outcome == Outcome::NotReady { Err(NicError::Busy) } else { Ok(()) }
    }

    /// Lets a kernel check the data of the peer's READs. `None` removes the check.
    pub(crate) fn check_reads(&mut self, qp: Qpn, kernel: Option<u32>) -> Result<(), NicError> {
        let index = self.index(qp).ok_or(NicError::Unknown)?;
        let Some(qp) = &mut self.qps[index as usize] else { return Err(NicError::Unknown) };
        let kernels = self.shared.kernels_mut();
        let checker = match kernel {
            None => None,
            Some(number) => Some(kernels.id_of(qp.id().pd, number)?),
        };
        let reliable = qp.id().service == Service::Rc && (qp.machine().is_rc() || qp.machine().is_irn());
        if !reliable || qp.has_prism() || checker.is_some_and(|checker| kernels.checker_of(checker).is_none())
        {
            return Err(NicError::NotThisService);
        }
        let strom = qp.use_strom();
        // Replacing the checker resets the retry deadline.
        (strom.checker, strom.recheck) = (checker, None);
        Ok(())
    }

    /// Runs the lanes that can continue, then the queue pairs that waited for lanes. Returns the number of
    /// turns.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_kernels(&mut self, mem: Mem<'_>) -> usize {
        let mut turns = 0;
        for _ in 0..self.shared.kernels().ready.len() {
            let Some((lane, qp)) = self.shared.kernels_mut().next_ready() else { break };
            let Some(index) = qp.and_then(|qp| self.index(qp)) else { continue };
            if let Some(qp) = &mut self.qps[index as usize] {
                go_on_lane(qp, self.shared.kernels_mut(), lane, mem);
                turns += 1;
            }
            self.attend(index);
        }
        if std::mem::take(&mut self.shared.kernels_mut().freed) {
            for _ in 0..self.shared.kernels().stalled.len() {
                let Some(number) = self.shared.kernels_mut().stalled.pop_front() else { break };
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
