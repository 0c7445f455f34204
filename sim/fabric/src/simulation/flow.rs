//! The flows of a simulation: their progress, over queue pairs that are created for them or kept.

use std::cmp::Reverse;

use remora_nic::Status;

use super::Simulation;
use super::flows::Running;
use super::spec::{EndAt, FlowEnd};

impl Simulation {
    /// Starts the flows of a host that are due.
    pub(super) fn start_flows(&mut self, host: u32) {
        let now = self.network.now();
        while let Some(waiting) = self.flows.waiting.get_mut(host as usize) {
            let Some(Reverse((start, number))) = waiting.peek().copied() else { return };
            if start > now {
                return;
            }
            waiting.pop();
            self.start_flow(number);
        }
    }

    fn start_flow(&mut self, number: u32) {
        let Some(pair) = self.queue_pairs_of(number) else {
            let now = self.network.now();
            return self.flows.end(number, now, Status::LocalQpOperation);
        };
        self.flows.running[number as usize] = Some(Running { pair, ..Running::default() });
        self.flows.open.insert(number);
        let posts = self.flows.pairs[pair as usize].as_mut().expect("the queue pair was created").add(number);
        self.post(pair);
        if posts != self.flows.specs[number as usize].source {
            self.pump(posts);
        }
    }

    /// Handles a receive that the NIC of a flow's destination has completed.
    pub(super) fn flow_received(&mut self, number: u32) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        running.receives -= 1;
        if spec.tells_received && running.receives == 0 && running.posted == spec.bytes {
            let end = EndAt::Destination;
            let now = self.network.now();
            let status = Status::Success;
            self.flows.ended.push_back(FlowEnd { flow: number, end, at: now, status });
        }
    }

    /// Handles a work request of a flow that the NIC has completed.
    pub(super) fn flow_completed(&mut self, number: u32, status: Status) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        let len = u64::from(self.config.message).min(spec.bytes - running.done);
        running.done += len;
        let pair = running.pair;
        let has_ended = running.done == spec.bytes;
        let pairs = self.flows.pairs[pair as usize].as_mut().expect("a running flow has queue pairs");
        pairs.completed();
        if status != Status::Success {
            return self.fail(pair, status);
        }
        if has_ended {
            pairs.remove(number);
            let now = self.network.now();
            self.flows.end(number, now, status);
            if !self.config.connection.kept {
                return self.destroy(pair);
            }
        }
        self.post(pair);
    }

    /// Ends all flows of a queue pair that has failed.
    fn fail(&mut self, pair: u32, status: Status) {
        let now = self.network.now();
        let pairs = self.flows.pairs[pair as usize].as_mut().expect("the failed queue pair exists");
        for number in pairs.take_flows() {
            self.flows.end(number, now, status);
        }
        self.destroy(pair);
    }
}
