//! Simulation of a data centre: hosts with real NICs on a simulated network.
//!
//! Every host has a `remora_nic::Nic` with its memory, the code that also runs over real ports. The network
//! moves descriptors, while the bytes of a frame are stored here until the frame arrives. A host runs only
//! when one of its events is due: a frame has arrived, a port is free, or a timer of its NIC expires.

mod charging;
mod far_end;
mod flow;
mod flows;
mod host;
mod observer;
mod peer;
mod posting;
mod queue_pairs;
mod reporting;
mod spec;
mod uplink;

use std::sync::Arc;

use remora_memory::{Access, Biased, Bytes, Range, Table};
use remora_nic::{Command, CompletionKind, CompletionPoller, CqFlags, Nic, Status};
use remora_transport::{Counters, Instant};
use remora_wire::frame::{Class, Egress as _, Endpoint, Ingress, Start};

use crate::engine::Picos;
use crate::frames::Frames;
use crate::network::{Due, Flags, Network, PacketId};
use crate::program::ring;
use crate::topology::{Topology, TopologyError};

pub use charging::Charging;
pub use host::MAX_QPS;
pub use observer::{Observer, Seen, hosts_of};
pub use spec::{Connection, EndAt, FlowEnd, FlowSpec, Senders, Verb};

pub use config::SimulationConfig;
use far_end::FarEnds;
use flows::Flows;
use host::Host;
use peer::UPLINKS_MAX;
pub use state::Simulation;
use uplink::Uplink;

/// Entries of each host's completion queue.
const COMPLETIONS: u32 = 1 << 8;
/// Interval in picoseconds after which a NIC is run again if its due work cannot leave.
const BLOCKED: u64 = 100 * Picos::NANOSECOND;
/// Largest number of timers that a NIC handles in one run.
const BUDGET: usize = 64;

impl Simulation {
    /// Creates a simulation at time 0 without flows.
    ///
    /// # Errors
    /// Fails if [`Network::new`] fails, or if a host has more links than a NIC has ports.
    ///
    /// # Panics
    /// Panics if there is not enough memory.
    pub fn new(topology: Topology, config: SimulationConfig) -> Result<Simulation, TopologyError> {
        let mut network = Network::new(topology, config.network.clone())?;
        check_uplinks(&network)?;
        if config.charging.is_whole_ns() {
            network.round_to_ns();
        }
        let zeros = Bytes::heap(config.message as usize).expect("memory for the data of flows");
        let hosts: Vec<Host> =
            (0..network.hosts() as u32).map(|host| new_host(host, &zeros, &config)).collect();
        let far_ends = FarEnds::new(hosts.len(), config.nic.max_qps);
        let frames = Frames::new(config.connection.mtu as usize);
        let flows = Flows::default();
        let observations = Vec::new();
        Ok(Simulation { network, hosts, frames, flows, far_ends, config, observer: None, observations })
    }

    /// Returns the network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the network for changes, such as link failures, and for its final check.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Returns the configuration.
    pub fn config(&self) -> &SimulationConfig {
        &self.config
    }

    /// Returns the counters of a host's NIC.
    pub fn counters(&self, host: u32) -> Counters {
        *self.hosts[host as usize].engine.enter().counters()
    }

    /// Adds a flow and returns its number.
    ///
    /// # Panics
    /// Panics if the flow names a host that does not exist, has equal ends or starts in the past.
    pub fn add_flow(&mut self, spec: FlowSpec) -> u32 {
        assert!(spec.start >= self.network.now(), "a flow starts in the future");
        let hosts = self.hosts.len() as u32;
        assert!(spec.source < hosts && spec.destination < hosts && spec.source != spec.destination);
        let source = spec.source;
        let start = spec.start;
        let number = self.flows.add(spec);
        self.network.wake(source, start);
        number
    }

    /// Returns true if no event is due up to and including `limit`.
    pub fn is_idle(&mut self, limit: Picos) -> bool {
        let next = self.network.next_time();
        next == Picos::NEVER || next > limit
    }

    /// Returns true if none of the flows that have not ended has started.
    pub fn waits_for_start(&self) -> bool {
        self.flows.waits_for_start()
    }

    /// Returns the number of flows that have not ended.
    pub fn running(&self) -> usize {
        self.flows.running()
    }

    /// Returns a flow, and how many of its bytes the NIC has completed.
    pub fn flow(&self, number: u32) -> (&FlowSpec, u64) {
        self.flows.progress(number)
    }

    /// Runs until a flow ends at one of its hosts or until `limit`. Returns the end of the flow.
    pub fn run(&mut self, limit: Picos) -> Option<FlowEnd> {
        if let Some(ended) = self.flows.next_end() {
            return Some(ended);
        }
        while let Some(due) = self.next_due(limit) {
            match due {
                Due::Arrived(host, packet) => self.deliver(host, packet),
                Due::Free(host) => self.pump(host),
                Due::Wake(host) => self.wake(host),
                Due::Observed => {}
            }
            if let Some(ended) = self.flows.next_end() {
                if cfg!(debug_assertions) && self.running() == 0 {
                    self.check_balance();
                }
                return Some(ended);
            }
        }
        if cfg!(debug_assertions) && self.network.next_time() == Picos::NEVER {
            self.check_balance();
        }
        None
    }

    /// Checks that the network received exactly the packets that the NICs sent, and that each of them is
    /// delivered, lost or in flight.
    fn check_balance(&self) {
        let balance = self.network.balance();
        let by_nics: u64 = (0..self.hosts.len() as u32).map(|host| self.counters(host).sent_pkts).sum();
        assert!(balance.holds() && balance.sent == by_nics, "{balance:?}, and NICs sent {by_nics}");
    }

    /// Advances to the next event, but not beyond `limit`. The observer is called before the event takes
    /// effect.
    #[inline]
    fn next_due(&mut self, limit: Picos) -> Option<Due> {
        let due = self.network.next_due(limit);
        if self.observer.is_some() {
            self.report();
        }
        due
    }

    /// Delivers an arrived frame to a host's NIC.
    fn deliver(&mut self, number: u32, id: PacketId) {
        let packet = self.network.take(id);
        let now = self.network.now().instant();
        let host = &mut self.hosts[number as usize];
        let whole = packet.flags.has(Flags::WHOLE);
        let len = usize::from(packet.len);
        let bytes = self.frames.open(id, whole, len);
        if packet.flags.has(Flags::MARKED) {
            crate::ecn::mark(Start::Ip, bytes);
        }
        let ingress = Ingress {
            bytes,
            start: Start::Ip,
            sealed: self.config.icrc,
            source: Endpoint::default(),
            destination: None,
            origin: None,
        };
        let mut guard = host.engine.enter();
        let (nic, mem) = guard.parts();
        nic.receive(now, mem, &ingress);
        drop(guard);
        self.frames.close(id, whole, len);
        self.complete(number);
        self.pump(number);
    }

    /// Handles the completions of a host's NIC: the flows continue or end.
    fn complete(&mut self, host: u32) {
        while let Some(entry) = self.hosts[host as usize].poller.poll() {
            self.hosts[host as usize].poller.free();
            let flow = entry.completion.id as u32;
            let status = entry.completion.status;
            match entry.completion.kind {
                CompletionKind::Receive | CompletionKind::ReceiveWriteImm if status == Status::Success => {
                    self.flow_received(flow);
                }
                _ => self.flow_completed(flow, status),
            }
        }
    }

    fn wake(&mut self, number: u32) {
        let now = self.network.now();
        let host = &mut self.hosts[number as usize];
        if host.wake_at <= now {
            host.wake_at = Picos::NEVER;
        }
        self.start_flows(number);
        self.pump(number);
    }

    /// Lets a host's NIC send as many packets as its ports accept.
    fn pump(&mut self, number: u32) {
        let host = &mut self.hosts[number as usize];
        let now: Instant = self.network.now().instant();
        let mut guard = host.engine.enter();
        let (nic, mem) = guard.parts();
        if nic.next_deadline() <= now {
            nic.expire(now, now, BUDGET);
        }
        let mut is_busy = false;
        loop {
            let awaited = nic.awaited_queues();
            if !nic.has_work() && awaited == 0 {
                break;
            }
            let mut uplink = Uplink {
                network: &mut self.network,
                frames: &mut self.frames,
                far_ends: &self.far_ends,
                config: &self.config,
                host: number,
                lent: None,
            };
            is_busy = uplink.is_busy();
            if is_busy {
                break;
            }
            let goes_on = awaited != 0 && awaited & !uplink.stopped() != 0;
            if !(nic.has_work() || goes_on) || nic.transmit(now, mem, &mut uplink, 1) == 0 {
                break;
            }
        }
        let mut deadline = Picos::from(nic.next_deadline());
        let awaited = nic.awaited_queues();
        drop(guard);
        if awaited != 0 {
            uplink::expect_awaited(&mut self.network, number, awaited);
        }
        if deadline <= self.network.now() {
            // The due work waits either for a busy port, which reports when it is free, or for the end of a
            // pause.
            deadline = if is_busy { Picos::NEVER } else { self.network.now().after(BLOCKED) };
        }
        if deadline < host.wake_at {
            host.wake_at = deadline;
            self.network.wake(number, deadline);
        }
        self.complete(number);
    }
}

/// Checks that a NIC has enough ports for the links of each host.
fn check_uplinks(network: &Network) -> Result<(), TopologyError> {
    for host in 0..network.hosts() as u32 {
        let links = network.uplinks(host).len();
        if links > UPLINKS_MAX {
            return Err(TopologyError::HostLinks { host: network.node_of(host), links, limit: UPLINKS_MAX });
        }
    }
    Ok(())
}

fn new_host(host: u32, zeros: &Bytes, config: &SimulationConfig) -> Host {
    let memory = remora_memory::Config {
        key_seed: config.network.seed ^ u64::from(host),
        max_regions: 8,
        max_ranges: 16,
        max_pds: 4,
        max_windows: 0,
        on_nic_bytes: 0,
    };
    let table = Arc::new(Table::new(memory).expect("memory for the regions' table"));
    let pd = table.alloc_pd().expect("the first protection domain");
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let key = table.register(pd, &[Range::at(zeros, host::ADDRESS)], access).expect("the first region");
    let endpoint = host::endpoint(host);
    let ack_class = Some(Class::new(config.ack_class));
    let nic = remora_nic::Config {
        endpoint,
        checks_icrc: config.icrc,
        ack_class,
        cnp_class: ack_class,
        ..config.nic
    };
    let engine = Biased::new(&table, Nic::new(nic));
    let entries = ring(COMPLETIONS);
    let mut guard = engine.enter();
    let (nic, mem) = guard.parts();
    let ring = nic.hand(entries.clone());
    let command = Command::CreateCq { ring, flags: CqFlags::default() };
    let cq = nic.ask(Instant(0), mem, command).expect("the first completion queue");
    drop(guard);
    Host { engine, pd, key, cq, poller: CompletionPoller::new(entries), wake_at: Picos::NEVER }
}

mod config;
mod state;
#[cfg(test)]
mod tests;
