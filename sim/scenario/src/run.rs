//! A run of a scenario: starts the flows and returns a row for each flow that ends.

use std::collections::BTreeMap;

use remora_fabric::engine::Picos;
use remora_fabric::network::{Finding, PortId, Totals};
use remora_fabric::simulation::{EndAt, FlowEnd, FlowSpec, Simulation};
use remora_fabric::topology::Topology;
pub use remora_nic::Status;
use remora_transport::timers::NEVER_NS;

use crate::hash::HashOf;
use crate::path::Paths;
use crate::record::{RecordConfig, Recording, Sink};
use crate::scenario::{Balance, Scenario};
use crate::window::Window;
use crate::{Dependency, End, Flow, Start, setup};

/// A flow that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Flow that has ended.
    pub flow: Flow,
    /// Start of the flow.
    pub start: Picos,
    /// Completion time, in picoseconds: from the start until the sender has the last acknowledgement.
    pub fct: u64,
    /// Completion time on an idle network, in picoseconds, as computed by [`Paths::alone`].
    pub alone: u64,
    /// Outcome of the flow.
    pub status: Status,
}

impl Row {
    /// Returns the slowdown: the completion time divided by the completion time on an idle network.
    pub fn slowdown(&self) -> f64 {
        self.fct as f64 / self.alone.max(1) as f64
    }
}

/// A flow that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfinished {
    /// Flow that has not ended.
    pub flow: Flow,
    /// Start of the flow, or `None` if it has not started.
    pub start: Option<Picos>,
    /// Number of bytes that were acknowledged.
    pub done: u64,
}

/// The progress of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time of the simulation.
    pub now: Picos,
    /// Number of flows that have ended, and of all flows.
    pub flows: (usize, usize),
    /// Number of packets that have arrived at the far end of a link.
    pub hops: u64,
}

/// Time in picoseconds without an arrival at any host, in addition to two round trips, after which a run is
/// stalled. It is several times the longest timeout.
const STALLED: u64 = 1_000_000_000_000;

/// A running scenario.
pub struct Run {
    simulation: Simulation,
    paths: Paths,
    flows: Vec<Flow>,
    /// For each flow number in the simulation: the index of the flow, and its start.
    started: Vec<(usize, Picos)>,
    /// For each flow: its number in the simulation, if it has started.
    numbers: Vec<Option<u32>>,
    has_ended: Vec<bool>,
    ended: usize,
    /// For each end of a flow: indices of the flows that wait for it.
    awaited: BTreeMap<(u64, End), Vec<usize>>,
    /// For each flow: number of ends that it still waits for.
    missing: Vec<u32>,
    until: Picos,
    mtu: u32,
    /// Packed paths by flow id, for flows with a given path.
    given: BTreeMap<u64, u32>,
    hash: Option<HashOf>,
    window: Window,
    recording: Option<Recording>,
    /// Number of packets that have arrived at hosts, and the time at which this number was first seen.
    arrived: (u64, Picos),
}

impl Run {
    /// Creates a run at time 0.
    ///
    /// # Errors
    /// Fails if the scenario is invalid or not supported. The message is one line.
    pub fn new(scenario: &Scenario) -> Result<Run, String> {
        let topology = scenario.topology().map_err(|error| error.to_string())?;
        let flows = scenario.flows(&topology).map_err(|error| error.to_string())?;
        let mut config = setup::simulation(scenario, &topology)?;
        config.nic.max_qps = setup::queue_pairs(scenario, &flows, topology.nodes.len());
        let paths = Paths::new(&topology)?;
        check_paths(&paths, &topology, &flows)?;
        let given = given_paths(scenario, &paths, &flows)?;
        let mut simulation = Simulation::new(topology.clone(), config).map_err(|error| error.to_string())?;
        setup::add_latencies(scenario, &topology, simulation.network_mut());
        simulation.network_mut().set_failures(setup::failures(scenario, &topology)?);
        let window = Window::new(scenario, &paths);
        let mut run = Run {
            simulation,
            paths,
            started: Vec::new(),
            numbers: vec![None; flows.len()],
            has_ended: vec![false; flows.len()],
            ended: 0,
            awaited: BTreeMap::new(),
            missing: vec![0; flows.len()],
            until: scenario.until.map_or(Picos::NEVER, |until| Picos(until.0)),
            mtu: scenario.mtu,
            arrived: (0, Picos(0)),
            given,
            hash: HashOf::scenario(scenario),
            window,
            recording: None,
            flows,
        };
        run.start_all();
        Ok(run)
    }

    /// Starts recording to `sink`. Must be called before the run advances. `scenario` is the scenario of the
    /// run.
    ///
    /// # Errors
    /// Fails if [`Recording::begin`] fails.
    pub fn record(
        &mut self,
        scenario: &Scenario,
        asked: &RecordConfig<'_>,
        sink: Box<dyn Sink>,
    ) -> Result<(), String> {
        let flows = &self.flows;
        let paths = &self.paths;
        let simulation = &mut self.simulation;
        self.recording = Some(Recording::begin(asked, scenario, flows, paths, simulation, sink)?);
        Ok(())
    }

    /// Ends the recording and writes what is still pending to its sink.
    pub fn end_recording(&mut self) {
        if let Some(recording) = self.recording.take() {
            recording.end(&self.simulation);
        }
    }

    fn start_all(&mut self) {
        for index in 0..self.flows.len() {
            let Start::After(after) = self.flows[index].start.clone() else { continue };
            self.missing[index] = after.count.max(1);
            for Dependency { flow, end } in &after.flows {
                self.awaited.entry((*flow, *end)).or_default().push(index);
            }
        }
        for index in 0..self.flows.len() {
            if let Start::At(start) = self.flows[index].start {
                self.start(index, Picos(start));
            }
        }
    }

    fn start(&mut self, index: usize, start: Picos) {
        let flow = &self.flows[index];
        let host = |node| self.simulation.network().host_at(node).expect("both ends of a flow are hosts");
        let spec = FlowSpec {
            source: host(flow.src),
            destination: host(flow.dst),
            bytes: flow.size,
            start,
            verb: setup::verb(flow.verb),
            class: Some(flow.class),
            source_port: (flow.ports[0] != 0).then_some(flow.ports[0]),
            tells_received: self.awaited.contains_key(&(flow.id, End::Received)),
            window: self.window.of(&self.paths, flow, self.mtu),
            keys: self.hash.and_then(|hash| hash.keys(flow)),
            path: self.given.get(&flow.id).copied(),
        };
        let number = self.simulation.add_flow(spec);
        self.numbers[index] = Some(number);
        self.started.push((index, start));
    }

    /// Advances the run until a flow ends or until `limit`. Returns the flow that has ended.
    pub fn advance(&mut self, limit: Picos) -> Option<Row> {
        let end = loop {
            let end = self.run_and_sample(limit.min(self.until))?;
            self.start_dependents(self.started[end.flow as usize].0, End::Received, end.at);
            if end.end == EndAt::Poster {
                break end;
            }
        };
        let (index, start) = self.started[end.flow as usize];
        self.has_ended[index] = true;
        self.ended += 1;
        self.start_dependents(index, End::Acknowledged, end.at);
        let flow = self.flows[index].clone();
        let config = self.simulation.config();
        let charging = config.charging;
        let extra = config.extra_header + setup::additions(config);
        let alone = self.paths.alone(flow.src, flow.dst, flow.size, self.mtu, charging, extra);
        Some(Row { start, fct: end.at.since(start), alone, status: end.status, flow })
    }

    /// Advances the run until an end of a flow or until `limit`, and takes the samples that are due
    /// meanwhile.
    fn run_and_sample(&mut self, limit: Picos) -> Option<FlowEnd> {
        loop {
            let next = self.recording.as_ref().map_or(Picos::NEVER, Recording::next);
            if let Some(end) = self.simulation.run(limit.min(next)) {
                return Some(end);
            }
            let recording = self.recording.as_ref().filter(|_| next <= limit)?;
            recording.sample(&self.simulation);
            if self.simulation.is_idle(limit) {
                return None;
            }
        }
    }

    /// Starts the flows for which this end of a flow was the last condition. Called once for each end.
    fn start_dependents(&mut self, index: usize, end: End, now: Picos) {
        for waits in self.awaited.remove(&(self.flows[index].id, end)).unwrap_or_default() {
            self.missing[waits] = self.missing[waits].saturating_sub(1);
            if self.missing[waits] == 0
                && self.numbers[waits].is_none()
                && let Start::After(after) = self.flows[waits].start.clone()
            {
                self.start(waits, now.after(after.delay));
            }
        }
    }

    /// Returns true if all flows have ended, if the end time of the scenario is reached, or if no flow makes
    /// progress any more.
    pub fn is_over(&mut self) -> bool {
        self.ended == self.flows.len() || self.simulation.is_idle(self.until) || self.is_stalled()
    }

    /// Returns true if flows have started but no packet has arrived at any host for a second.
    pub fn is_stalled(&mut self) -> bool {
        let now = self.simulation.network().now();
        let arrived = self.totals().arrived.packets;
        if arrived != self.arrived.0 || self.simulation.waits_for_start() {
            self.arrived = (arrived, now);
        }
        now.since(self.arrived.1) > STALLED + 4 * self.paths.longest_delay()
    }

    /// Returns true if the transport has no timeout, like go-back-N with PFC. Then a loss at the end of a
    /// flow stalls the flow.
    pub fn lacks_timeout(&self) -> bool {
        let config = self.simulation.config();
        config.connection.irn.is_none() && config.nic.rto_ns == Some(NEVER_NS)
    }

    /// Returns the progress of the run.
    pub fn progress(&self) -> Progress {
        Progress {
            now: self.simulation.network().now(),
            flows: (self.ended, self.flows.len()),
            hops: self.simulation.network().totals().hops,
        }
    }

    /// Returns the flows that have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = Unfinished> + '_ {
        let open = (0..self.flows.len()).filter(|index| !self.has_ended[*index]);
        open.map(|index| {
            let number = self.numbers[index];
            let done = number.map_or(0, |number| self.simulation.flow(number).1);
            let start = number.map(|number| self.started[number as usize].1);
            Unfinished { flow: self.flows[index].clone(), start, done }
        })
    }

    /// Returns the number of bytes that the NIC of a host has sent, counted from BTH to ICRC; 0 for a switch.
    pub fn sent_bytes(&self, node: u32) -> u64 {
        let host = self.simulation.network().host_at(node);
        host.map_or(0, |host| self.simulation.counters(host).sent_bytes)
    }

    /// Returns the number of bytes queued at `node` for its links to `neighbour`, as frames are charged.
    pub fn waiting_bytes(&self, node: u32, neighbour: u32) -> u64 {
        let network = self.simulation.network();
        let ports = (0..).map_while(|number| network.port_of(node, number));
        let leads = |port: &PortId| network.name_of(port.reverse()).0 == neighbour;
        ports.filter(leads).map(|port| u64::from(network.port(port).queued)).sum()
    }

    /// Returns the counters of the network.
    pub fn totals(&self) -> &Totals {
        self.simulation.network().totals()
    }

    /// Returns the violated invariants, as far as they were kept, and the number of further ones. Counts all
    /// packets once more before.
    pub fn findings(&mut self) -> (Vec<Finding>, u64) {
        self.simulation.network_mut().check();
        let findings = self.simulation.network().findings();
        (findings.kept().to_vec(), findings.more())
    }

    /// Returns the underlying simulation.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }
}

/// Returns the given paths in packed form, by flow id.
fn given_paths(scenario: &Scenario, paths: &Paths, flows: &[Flow]) -> Result<BTreeMap<u64, u32>, String> {
    let Balance::Replay { paths: given } = &scenario.switch.balance else { return Ok(BTreeMap::new()) };
    let by_id: BTreeMap<u64, &Flow> = flows.iter().map(|flow| (flow.id, flow)).collect();
    let mut packed = BTreeMap::new();
    for path in given {
        let id = path.flow;
        let flow =
            by_id.get(&id).ok_or_else(|| format!("a path is given for flow {id}, which does not exist"))?;
        let choices = paths.choices(flow.src, flow.dst, &path.above);
        packed.insert(id, choices.map_err(|says| format!("the path of flow {id}: {says}: correct it"))?);
    }
    Ok(packed)
}

/// Checks that both ends of each flow are hosts and that a path joins them.
fn check_paths(paths: &Paths, topology: &Topology, flows: &[Flow]) -> Result<(), String> {
    for flow in flows {
        for node in [flow.src, flow.dst] {
            if !topology.is_host(node) {
                return Err(format!(
                    "flow {} names node {node}, which is not a host: correct the flow",
                    flow.id
                ));
            }
        }
        if paths.of(flow.src, flow.dst).is_empty() {
            let src = flow.src;
            let dst = flow.dst;
            return Err(format!("no path leads from host {src} to host {dst}: add a link or drop the flow"));
        }
    }
    Ok(())
}
