//! Flows: who sends how many bytes to whom, over queue pairs that are made for them or kept.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use remora_nic::Status;
use remora_transport::congestion::Algorithm;

use super::Simulation;
use super::queue_pairs::{QueuePairs, Sharing};
use crate::engine::Picos;
use crate::network::FlowKey;

/// How data moves.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// RDMA WRITE by the source.
    #[default]
    Write,
    /// RDMA READ by the destination.
    Read,
    /// SEND by the source.
    Send,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Host that has the data.
    pub source: u32,
    /// Host that gets it.
    pub destination: u32,
    /// Bytes; 0 counts as 1.
    pub bytes: u64,
    /// When it starts.
    pub start: Picos,
    /// How the data moves.
    pub verb: Verb,
    /// Class of its data; that of the configuration, if not given.
    pub class: Option<u8>,
    /// UDP source port of its data; chosen by its number, if not given.
    pub source_port: Option<u16>,
    /// What switches hash of its data and of its acknowledgements, where they hash as another program does;
    /// chosen by hosts and ports, if not given.
    pub keys: Option<[FlowKey; 2]>,
    /// Whoever runs the simulation hears of it when the destination has all bytes, too. The last bytes of a
    /// WRITE then bring immediate data, as programs do it. A READ's destination hears of its end anyway.
    pub tells_received: bool,
    /// Packets in flight at most; as the NIC is configured, if not given.
    pub window: Option<u32>,
    /// The path of its data, as [`crate::network::path`] packs it; chosen by hashes, if not given.
    pub path: Option<u32>,
}

/// Where a flow has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EndAt {
    /// Its destination has all bytes: [`FlowSpec::tells_received`].
    Destination,
    /// The last acknowledgement is there, or the last data of a READ. Nothing of the flow follows.
    Poster,
}

/// A flow has ended at one of its hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Its number.
    pub flow: u32,
    /// Where.
    pub end: EndAt,
    /// When.
    pub at: Picos,
    /// How: all but success means that its queue pair failed.
    pub status: Status,
}

/// How queue pairs are made and connected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Payload bytes of a packet.
    pub mtu: u32,
    /// IRN, with peers that remember so many packets ahead of the order; without it the queue pairs go back
    /// N.
    pub irn: Option<u32>,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Flows between two hosts share one connection, which stays. Otherwise each has its own.
    pub kept: bool,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            mtu: 1024,
            irn: None,
            congestion: Algorithm::None,
            timeout: 10,
            retry_cnt: 7,
            kept: false,
        }
    }
}

/// A flow that runs.
#[derive(Copy, Clone, Debug, Default)]
pub struct Running {
    /// Its queue pairs, an index of [`Flows::pairs`].
    pub pair: u32,
    /// Bytes in work requests that were posted.
    pub posted: u64,
    /// Bytes in work requests that have completed.
    pub done: u64,
    /// Receives that the destination is to complete.
    pub receives: u64,
}

/// The queue pairs by which a host sends data of flows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    /// Those of flows that have started and not ended.
    pub all: u64,
    /// Of these, those with data that was never sent.
    pub unsent: u64,
}

/// All flows.
#[derive(Default)]
pub struct Flows {
    pub specs: Vec<FlowSpec>,
    /// By flow: how far it is; `None`: it has not started, or has ended.
    pub running: Vec<Option<Running>>,
    /// Queue pairs in use.
    pub pairs: Vec<Option<Box<QueuePairs>>>,
    /// Indices of `pairs` that are not in use.
    pub free: Vec<u32>,
    /// Queue pairs that are kept.
    pub kept: BTreeMap<Sharing, u32>,
    /// By host: flows that have not started.
    waiting: Vec<BinaryHeap<Reverse<(Picos, u32)>>>,
    /// Those that run.
    pub open: BTreeSet<u32>,
    ended: VecDeque<FlowEnd>,
    unfinished: usize,
}

impl Flows {
    pub fn add(&mut self, spec: FlowSpec) -> u32 {
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

    pub fn running(&self) -> usize {
        self.unfinished
    }

    pub fn waits_for_start(&self) -> bool {
        self.waiting.iter().map(BinaryHeap::len).sum::<usize>() == self.unfinished
    }

    pub fn next_end(&mut self) -> Option<FlowEnd> {
        self.ended.pop_front()
    }

    pub fn progress(&self, number: u32) -> (&FlowSpec, u64) {
        let done = self.running[number as usize].map_or(0, |running| running.done);
        (&self.specs[number as usize], done)
    }

    pub fn end(&mut self, flow: u32, at: Picos, status: Status) {
        self.running[flow as usize] = None;
        self.open.remove(&flow);
        self.unfinished -= 1;
        self.ended.push_back(FlowEnd { flow, end: EndAt::Poster, at, status });
    }
}

impl Simulation {
    /// Starts the flows of a host whose time has come.
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
            let at = self.network.now();
            return self.flows.end(number, at, Status::LocalQpOperation);
        };
        self.flows.running[number as usize] = Some(Running { pair, ..Running::default() });
        self.flows.open.insert(number);
        let posts = self.flows.pairs[pair as usize].as_mut().expect("it was made").add(number);
        self.post(pair);
        if posts != self.flows.specs[number as usize].source {
            self.pump(posts);
        }
    }

    /// The NIC of a flow's destination has completed a receive.
    pub(super) fn flow_received(&mut self, number: u32) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        running.receives -= 1;
        if spec.tells_received && running.receives == 0 && running.posted == spec.bytes {
            let (end, at, status) = (EndAt::Destination, self.network.now(), Status::Success);
            self.flows.ended.push_back(FlowEnd { flow: number, end, at, status });
        }
    }

    /// The NIC has completed a work request of a flow.
    pub(super) fn flow_completed(&mut self, number: u32, status: Status) {
        let spec = &self.flows.specs[number as usize];
        let Some(running) = &mut self.flows.running[number as usize] else { return };
        let len = u64::from(self.config.message).min(spec.bytes - running.done);
        running.done += len;
        let (pair, has_ended) = (running.pair, running.done == spec.bytes);
        let pairs = self.flows.pairs[pair as usize].as_mut().expect("a flow's own");
        pairs.completed(len);
        if status != Status::Success {
            return self.fail(pair, status);
        }
        if has_ended {
            pairs.remove(number);
            let at = self.network.now();
            self.flows.end(number, at, status);
            if !self.config.connection.kept {
                return self.destroy(pair);
            }
        }
        self.post(pair);
    }

    /// A queue pair has failed: all its flows end.
    fn fail(&mut self, pair: u32, status: Status) {
        let at = self.network.now();
        let pairs = self.flows.pairs[pair as usize].as_mut().expect("that has failed");
        for number in pairs.take_flows() {
            self.flows.end(number, at, status);
        }
        self.destroy(pair);
    }
}
