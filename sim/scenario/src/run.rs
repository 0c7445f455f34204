//! A run of a scenario: flows start, and rows come out as they end.

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
    /// The flow.
    pub flow: Flow,
    /// When it started.
    pub start: Picos,
    /// Picoseconds until its sender had the last acknowledgement.
    pub fct: u64,
    /// Picoseconds that it takes alone.
    pub alone: u64,
    /// How it ended.
    pub status: Status,
}

impl Row {
    /// Its time over the time that it takes alone.
    pub fn slowdown(&self) -> f64 {
        self.fct as f64 / self.alone.max(1) as f64
    }
}

/// A flow that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfinished {
    /// The flow.
    pub flow: Flow,
    /// When it started; `None`: it has not.
    pub start: Option<Picos>,
    /// Bytes that were acknowledged.
    pub done: u64,
}

/// How far a run is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time.
    pub now: Picos,
    /// Flows that have ended, and all.
    pub flows: (usize, usize),
    /// Packets that arrived at the far end of a link.
    pub hops: u64,
}

/// Picoseconds without a packet at any host, beside two round trips, after which no flow goes on any more:
/// several of the longest timeouts.
const STALLED: u64 = 1_000_000_000_000;

/// A scenario that runs.
pub struct Run {
    simulation: Simulation,
    paths: Paths,
    flows: Vec<Flow>,
    /// The flow of each number in the simulation, and when it started.
    started: Vec<(usize, Picos)>,
    /// By flow: its number in the simulation.
    numbers: Vec<Option<u32>>,
    has_ended: Vec<bool>,
    ended: usize,
    /// By a flow's end: the flows that wait for it.
    awaited: BTreeMap<(u64, End), Vec<usize>>,
    /// By flow: how many others must end before it starts.
    missing: Vec<u32>,
    until: Picos,
    mtu: u32,
    /// By a flow's id: its path, if it is given.
    given: BTreeMap<u64, u32>,
    hash: Option<HashOf>,
    window: Window,
    recording: Option<Recording>,
    /// Packets that had arrived at hosts, and when that was looked at first.
    arrived: (u64, Picos),
}

impl Run {
    /// A run at its start.
    ///
    /// # Errors
    /// What the scenario asks for and cannot be, in one line.
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

    /// Gives what is asked for to `sink`; to be called before time passes. `scenario` is the run's own.
    ///
    /// # Errors
    /// Those of [`Recording::begin`].
    pub fn record(
        &mut self,
        scenario: &Scenario,
        asked: &RecordConfig<'_>,
        sink: Box<dyn Sink>,
    ) -> Result<(), String> {
        let (flows, paths, simulation) = (&self.flows, &self.paths, &mut self.simulation);
        self.recording = Some(Recording::begin(asked, scenario, flows, paths, simulation, sink)?);
        Ok(())
    }

    /// The run is over: gives the last of what was recorded to its sink.
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
        let host = |node| self.simulation.network().host_at(node).expect("flows join hosts");
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

    /// Goes on until a flow ends, or until `limit`. Returns that flow.
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

    /// Goes on until a flow ends, or until `limit`. What is sampled meanwhile is sampled.
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

    /// Starts the flows that have waited for this end of a flow as the last. It comes once.
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

    /// Has every flow ended, or the time that was given? Or does no flow go on any more?
    pub fn is_over(&mut self) -> bool {
        self.ended == self.flows.len() || self.simulation.is_idle(self.until) || self.is_stalled()
    }

    /// Has no packet arrived at any host for a second, though flows have started?
    pub fn is_stalled(&mut self) -> bool {
        let (now, arrived) = (self.simulation.network().now(), self.totals().arrived.packets);
        if arrived != self.arrived.0 || self.simulation.waits_for_start() {
            self.arrived = (arrived, now);
        }
        now.since(self.arrived.1) > STALLED + 4 * self.paths.longest_delay()
    }

    /// Has the transport no timeout, as go-back-N with pauses? Then a loss at the end of a flow stops it.
    pub fn lacks_timeout(&self) -> bool {
        let config = self.simulation.config();
        config.connection.irn.is_none() && config.nic.rto_ns == Some(NEVER_NS)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            now: self.simulation.network().now(),
            flows: (self.ended, self.flows.len()),
            hops: self.simulation.network().totals().hops,
        }
    }

    /// The flows that have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = Unfinished> + '_ {
        let open = (0..self.flows.len()).filter(|index| !self.has_ended[*index]);
        open.map(|index| {
            let number = self.numbers[index];
            let done = number.map_or(0, |number| self.simulation.flow(number).1);
            let start = number.map(|number| self.started[number as usize].1);
            Unfinished { flow: self.flows[index].clone(), start, done }
        })
    }

    /// Bytes that the NIC of a host has sent so far, each packet from BTH to ICRC; 0 for a switch.
    pub fn sent_bytes(&self, node: u32) -> u64 {
        let host = self.simulation.network().host_at(node);
        host.map_or(0, |host| self.simulation.counters(host).sent_bytes)
    }

    /// Bytes that wait at a node for its links to a neighbour, as packets are charged.
    pub fn waiting_bytes(&self, node: u32, neighbour: u32) -> u64 {
        let network = self.simulation.network();
        let ports = (0..).map_while(|number| network.port_of(node, number));
        let leads = |port: &PortId| network.name_of(port.reverse()).0 == neighbour;
        ports.filter(leads).map(|port| u64::from(network.port(port).queued)).sum()
    }

    /// What the network did.
    pub fn totals(&self) -> &Totals {
        self.simulation.network().totals()
    }

    /// What should not have happened, as far as it is kept, and how much more there is. All packets are
    /// counted once more.
    pub fn findings(&mut self) -> (Vec<Finding>, u64) {
        self.simulation.network_mut().check();
        let findings = self.simulation.network().findings();
        (findings.kept().to_vec(), findings.more())
    }

    /// The data center.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }
}

/// The paths that the scenario gives, by the ids of flows.
fn given_paths(scenario: &Scenario, paths: &Paths, flows: &[Flow]) -> Result<BTreeMap<u64, u32>, String> {
    let Balance::Replay { paths: given } = &scenario.switch.balance else { return Ok(BTreeMap::new()) };
    let by_id: BTreeMap<u64, &Flow> = flows.iter().map(|flow| (flow.id, flow)).collect();
    let mut packed = BTreeMap::new();
    for path in given {
        let id = path.flow;
        let flow =
            by_id.get(&id).ok_or_else(|| format!("a path is given for flow {id}, which is not there"))?;
        let choices = paths.choices(flow.src, flow.dst, &path.above);
        packed.insert(id, choices.map_err(|says| format!("the path of flow {id}: {says}: mend it"))?);
    }
    Ok(packed)
}

/// Does a path lead from each flow's source to its destination?
fn check_paths(paths: &Paths, topology: &Topology, flows: &[Flow]) -> Result<(), String> {
    for flow in flows {
        for node in [flow.src, flow.dst] {
            if !topology.is_host(node) {
                return Err(format!("flow {} names node {node}, which is no host: mend the flow", flow.id));
            }
        }
        if paths.of(flow.src, flow.dst).is_empty() {
            let (src, dst) = (flow.src, flow.dst);
            return Err(format!("no path leads from host {src} to host {dst}: add a link or drop the flow"));
        }
    }
    Ok(())
}
