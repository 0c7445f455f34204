//! The flows of a simulation, and their progress.

use remora_nic::Status;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

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
    pub(super) waiting: Vec<BinaryHeap<Reverse<(Picos, u32)>>>,
    /// Flows that have started and not ended.
    pub open: BTreeSet<u32>,
    pub(super) ended: VecDeque<FlowEnd>,
    pub(super) unfinished: usize,
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
