//! The flows of a simulation: their progress, over queue pairs that are created for them or kept.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use remora_nic::Status;

use super::Simulation;
use super::queue_pairs::{QueuePairs, Sharing};
use super::spec::{EndAt, FlowEnd, FlowSpec};
use crate::engine::Picos;

/// A flow that has started and not ended.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Running {
    /// Queue pairs of the flow: an index of [`Flows::pairs`].
    pub pair: u32,
    /// Bytes in posted work requests.
    pub posted: u64,
    /// Bytes in completed work requests.
    pub done: u64,
    /// Number of receives that the destination has not completed.
    pub receives: u64,
}

/// The flows of a simulation.
#[derive(Default)]
pub(crate) struct Flows {
    pub specs: Vec<FlowSpec>,
    /// For each flow: its progress, or `None` if it has not started or has ended.
    pub running: Vec<Option<Running>>,
    /// Queue pairs in use.
    pub pairs: Vec<Option<Box<QueuePairs>>>,
    /// Unused indices of `pairs`.
    pub free: Vec<u32>,
    /// Kept queue pairs, as indices of `pairs`.
    pub kept: BTreeMap<Sharing, u32>,
    /// For each host: flows that have not started.
    waiting: Vec<BinaryHeap<Reverse<(Picos, u32)>>>,
    /// Flows that have started and not ended.
    pub open: BTreeSet<u32>,
    ended: VecDeque<FlowEnd>,
    unfinished: usize,
}

impl Flows {
    pub(crate) fn add(&mut self, spec: FlowSpec) -> u32 {
        let number = self.specs.len() as u32;
        let source = spec.source as usize;
        if self.waiting.len() <= source {
            self.waiting.resize_with(source + 1, BinaryHeap::new);
        }
        self.waiting[source].push(Reverse((spec.start, number)));
        self.specs.push(FlowSpec { bytes: spec.bytes.max(1), ..spec });
        self.running.push(None);
        self.unfinished += 1;
        number
    }

    pub(crate) fn running(&self) -> usize {
        self.unfinished
    }

    pub(crate) fn waits_for_start(&self) -> bool {
        self.waiting.iter().map(BinaryHeap::len).sum::<usize>() == self.unfinished
    }

    pub(crate) fn next_end(&mut self) -> Option<FlowEnd> {
        self.ended.pop_front()
    }

    pub(crate) fn progress(&self, number: u32) -> (&FlowSpec, u64) {
        let done = self.running[number as usize].map_or(0, |running| running.done);
        (&self.specs[number as usize], done)
    }

    pub(crate) fn end(&mut self, flow: u32, time: Picos, status: Status) {
        self.running[flow as usize] = None;
        self.open.remove(&flow);
        self.unfinished -= 1;
        self.ended.push_back(FlowEnd { flow, end: EndAt::Poster, at: time, status });
    }
}

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
