//! Translation of a scenario into the settings of NICs, switches and the simulation.

use std::collections::BTreeSet;

use remora_fabric::engine::Picos;
use remora_fabric::network::{
    Balancing, BufferConfig, ConweaveConfig, Failure, Lasts, MarkConfig, Marks, Network, NetworkConfig,
    PauseConfig, SharedConfig, Thresholds,
};
use remora_fabric::simulation;
use remora_fabric::simulation::{Charging, Connection, SimulationConfig};
use remora_fabric::topology::Topology;
use remora_transport::congestion::{self, Algorithm, dcqcn, timely};
use remora_transport::rc::irn;
use remora_transport::timers::NEVER_NS;

use crate::hash::HashOf;
use crate::path::Paths;
use crate::scenario::{
    self, Balance, Buffering, ControlName, Counted, Hash, Mark, Mmu, OutputFormat, Payload, Pfc, QueuePairs,
    Scenario, TransportName,
};
use crate::{DATA_CLASS, Flow};

/// Default timeout of go-back-N where packets may be lost, in ns: RTO_high of IRN's paper (§4.1).
const RTO: u64 = 320_000;
/// Defaults of IRN's paper (§4.1): RTO_low in ns, and the number of packets in flight up to which it applies.
const RTO_LOW: u64 = 100_000;
const FEW: u32 = 3;
/// Largest number of packets in flight of a queue pair without a cap of its own.
const WINDOW: u32 = 1 << 15;

/// Returns the settings with which the fabric runs a scenario.
///
/// # Errors
/// Fails if the scenario is invalid or asks for something that the fabric does not support. The message is
/// one line that says how to correct it.
pub fn simulation(scenario: &Scenario, topology: &Topology) -> Result<SimulationConfig, String> {
    scenario.check()?;
    refuse(scenario)?;
    let paths = Paths::new(topology)?;
    let frame = u32::from(charging(scenario).full(scenario.mtu));
    let rate = paths.fastest();
    let connection = Connection {
        mtu: scenario.mtu,
        irn: is_irn(scenario).then(|| irn_settings(scenario, &paths, frame).reach()),
        congestion: algorithm(scenario.control.name),
        kept: scenario.host.queue_pairs == QueuePairs::Kept,
        ..Connection::default()
    };
    let nic = remora_nic::Config {
        window: WINDOW,
        any_path_mtu: true,
        ack_every: scenario.transport.packets_per_ack.max(1),
        turn_packets: 1,
        rto_ns: Some(rto(scenario)),
        retries_forever: true,
        irn: irn_settings(scenario, &paths, frame),
        congestion: control(scenario, rate),
        mtu: 4096,
        ..SimulationConfig::default().nic
    };
    Ok(SimulationConfig {
        network: network(scenario, topology, frame),
        nic,
        charging: charging(scenario),
        extra_header: u16::try_from(scenario.transport.extra_header.0).unwrap_or(u16::MAX),
        data_class: DATA_CLASS,
        ack_class: scenario.host.ack_class.unwrap_or(DATA_CLASS),
        icrc: scenario.payload == Payload::Whole,
        whole: scenario.payload == Payload::Whole,
        connection,
        message: MESSAGE.max(scenario.mtu) / scenario.mtu * scenario.mtu,
    })
}

/// Rejects what the fabric does not support although the scenario is valid.
fn refuse(scenario: &Scenario) -> Result<(), String> {
    let mtu = scenario.mtu;
    if !MTUS.contains(&mtu) {
        let least = MTUS.start();
        let most = MTUS.end();
        let remedy = match scenario.output.format {
            OutputFormat::Htsim => format!("give htsim's options `-- -mtu {most}`"),
            OutputFormat::Hpcc | OutputFormat::Conweave => {
                format!("set PACKET_PAYLOAD_SIZE, or give `--set mtu={most}`")
            }
            OutputFormat::Own => format!("set `mtu`, or give `--set mtu={most}`"),
        };
        return Err(format!("the MTU is {mtu}, and the NIC takes {least} to {most} bytes: {remedy}"));
    }
    Ok(())
}

/// Payload sizes that the NIC supports, in bytes.
const MTUS: std::ops::RangeInclusive<u32> = 256..=4096;

/// Returns a sentence about each setting of the scenario that has another effect here than in the program it
/// is from.
pub fn unheeded(scenario: &Scenario) -> Vec<String> {
    let htsim = matches!(scenario.switch.balance, Balance::Ecmp { hash: Hash::Htsim });
    let all = [(htsim, "htsim's hash takes salts from the seed here, so flows take other paths than there")];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, says)| says.to_owned()).collect()
}

/// Adds the latencies of switches and of hosts' NICs to the delays of the links.
pub fn add_latencies(scenario: &Scenario, topology: &Topology, network: &mut Network) {
    let switch = &scenario.switch;
    for node in 0..topology.nodes.len() as u32 {
        if topology.is_host(node) {
            network.delay_departures(node, scenario.host.latency.0);
            continue;
        }
        let tier = topology.place(node).map(|place| place.tier as usize);
        let of_tier = switch.latency_by_tier.zip(tier).map(|(latency, tier)| latency[tier]);
        network.delay_arrivals(node, of_tier.unwrap_or(switch.latency).0);
    }
}

/// Returns the number of queue pairs that each host needs at the same time: one for each flow, or one for all
/// flows that share a queue pair. The number is rounded up to a power of two from 64 to 65,536.
pub fn queue_pairs(scenario: &Scenario, flows: &[Flow], hosts: usize) -> u32 {
    // A given path belongs to a flow, so flows with given paths cannot share a queue pair.
    let has_paths = matches!(scenario.switch.balance, Balance::Replay { .. });
    let is_fresh = has_paths || scenario.host.queue_pairs == QueuePairs::Fresh;
    let mut count = vec![0_u32; hosts];
    let mut shared = BTreeSet::new();
    let needs_own =
        |flow: &&Flow| is_fresh || shared.insert((flow.src, flow.dst, flow.verb as u8, flow.class));
    for node in flows.iter().filter(needs_own).flat_map(|flow| [flow.src, flow.dst]) {
        if let Some(count) = count.get_mut(node as usize) {
            *count += 1;
        }
    }
    let most = count.into_iter().max().unwrap_or(0);
    (most + RESERVED).next_power_of_two().clamp(64, QUEUE_PAIRS_MAX)
}

/// Queue pair numbers that no flow uses, and the largest number of queue pairs of a NIC.
const RESERVED: u32 = 2;
const QUEUE_PAIRS_MAX: u32 = 1 << 16;

/// Approximate payload of a work request, in bytes. It is rounded down to a whole number of packets.
const MESSAGE: u32 = 256 << 10;

/// Returns the charging of frames in the fabric's type.
pub fn charging(scenario: &Scenario) -> Charging {
    match scenario.charging {
        scenario::Charging::Ethernet => Charging::Ethernet,
        scenario::Charging::Ns3 => Charging::Ns3,
        scenario::Charging::Htsim => Charging::Htsim,
        scenario::Charging::Ideal => Charging::Ideal,
    }
}

/// Returns the bytes that a data packet has beyond a plain RoCE packet, as far as they are charged: IRN's
/// packets have a RETH each.
pub fn additions(config: &SimulationConfig) -> u16 {
    if config.connection.irn.is_some() && config.charging == Charging::Ethernet { RETH } else { 0 }
}

/// Size of a RETH, in bytes.
const RETH: u16 = 16;

/// Returns the times at which links go down and up.
///
/// # Errors
/// Fails if a failure names a link that does not exist.
pub fn failures(scenario: &Scenario, topology: &Topology) -> Result<Vec<Failure>, String> {
    let mut failures = Vec::new();
    for failure in &scenario.failures {
        let [a, b] = failure.ends;
        let link = failure.link(topology).ok_or_else(|| {
            format!("no link joins nodes {a} and {b}: correct `ends` or `nth` of the failure")
        })?;
        failures.push(Failure { at: Picos(failure.at.0), link, up: false });
        failures.extend(failure.until.map(|until| Failure { at: Picos(until.0), link, up: true }));
    }
    Ok(failures)
}

fn is_irn(scenario: &Scenario) -> bool {
    use TransportName as Name;
    match scenario.transport.name {
        Name::Roce | Name::RocePfc | Name::ResilientRoce => false,
        Name::Irn | Name::IrnPfc | Name::IrnGoBackN | Name::IrnWithoutCap | Name::IrnWithoutSack => true,
    }
}

/// Returns the timeout of go-back-N in ns. With PFC nothing is lost, so there is none unless the scenario
/// sets one.
fn rto(scenario: &Scenario) -> u64 {
    let given = scenario.transport.rto.map(|time| time.0 / Picos::NANOSECOND);
    given.unwrap_or(if scenario.transport.name.has_pfc() { NEVER_NS } else { RTO })
}

/// Returns the settings of IRN. The default cap is the bandwidth-delay product of the longest path in full
/// frames (§3.2).
fn irn_settings(scenario: &Scenario, paths: &Paths, frame: u32) -> irn::Settings {
    let transport = &scenario.transport;
    let product = u128::from(paths.fastest()) * u128::from(paths.round_trip(frame)) / 8_000_000_000_000;
    let cap = transport.cap.unwrap_or(product.div_ceil(u128::from(frame)) as u32).max(1);
    let ns =
        |time: Option<crate::units::Time>, default| time.map_or(default, |time| time.0 / Picos::NANOSECOND);
    let without_cap = transport.name == TransportName::IrnWithoutCap;
    irn::Settings {
        cap,
        bitmap: if without_cap { WINDOW } else { cap.max(128) },
        bdp_fc: !without_cap,
        sacked_leave: transport.sacked_leave_cap,
        recovery: match transport.name {
            TransportName::IrnGoBackN => irn::Recovery::GoBackN,
            TransportName::IrnWithoutSack => irn::Recovery::HeadOnly,
            _ => irn::Recovery::Selective,
        },
        rto_low_ns: ns(transport.rto_low, RTO_LOW),
        rto_high_ns: ns(transport.rto_high, RTO),
        few: transport.few_packets.unwrap_or(FEW),
        timers: irn::Timers::Fixed,
        retransmit_delay_ns: transport.retransmission_delay.0 / Picos::NANOSECOND,
        ..irn::Settings::default()
    }
}

fn algorithm(name: ControlName) -> Algorithm {
    match name {
        ControlName::None => Algorithm::None,
        ControlName::Dcqcn | ControlName::DcqcnNs3 => Algorithm::Dcqcn,
        ControlName::Timely | ControlName::TimelyPatched => Algorithm::Timely,
    }
}

/// Returns the settings of congestion control at hosts of this rate in bit/s.
fn control(scenario: &Scenario, rate: u64) -> congestion::Settings {
    let asked = &scenario.control;
    let plain = congestion::Settings { line_rate: rate, ..congestion::Settings::default() };
    let named = match asked.name {
        ControlName::DcqcnNs3 => congestion::Settings::ns3(rate),
        _ => plain,
    };
    let ns = |time: Option<crate::units::Time>, default: u64| {
        time.map_or(default, |time| time.0 / Picos::NANOSECOND)
    };
    let given = dcqcn::Settings {
        k_ns: ns(asked.alpha_interval, named.dcqcn.k_ns),
        decrease_ns: ns(asked.decrease_interval, named.dcqcn.decrease_ns),
        t_ns: ns(asked.increase_interval, named.dcqcn.t_ns),
        g_inverse: asked.gain.map_or(named.dcqcn.g_inverse, |gain| (1.0 / gain.max(1e-9)).round() as u32),
        f: asked.fast_recovery.unwrap_or(named.dcqcn.f),
        r_ai: asked.rate_ai.map_or(named.dcqcn.r_ai, |rate| rate.0),
        r_hai: asked.rate_hai.map_or(named.dcqcn.r_hai, |rate| rate.0),
        clamp_target: asked.clamp_target.unwrap_or(named.dcqcn.clamp_target),
        ..named.dcqcn
    };
    let patched = asked.name == ControlName::TimelyPatched;
    congestion::Settings {
        algorithm: Algorithm::None,
        timely: timely::Settings { patched, ..named.timely },
        min_rate: asked.min_rate.map_or(named.min_rate, |rate| rate.0),
        dcqcn: given,
        window_follows_rate: asked.window == Some(true) && asked.window_follows_rate == Some(true),
        ..named
    }
}

fn network(scenario: &Scenario, topology: &Topology, frame: u32) -> NetworkConfig {
    let switch = &scenario.switch;
    let pfc = scenario.transport.name.has_pfc().then(|| switch.pfc.unwrap_or_default());
    let data = data_classes(scenario);
    let pause = pfc.map(|pfc| pause(switch.mmu, &pfc, data));
    let headroom = headroom(switch, topology, pfc.as_ref(), pause, frame);
    NetworkConfig {
        seed: scenario.seed,
        buffer: buffer(scenario, pfc, headroom, frame),
        pause,
        marks: mark_config(scenario, data),
        balancing: match switch.balance {
            Balance::Ecmp { .. } => match HashOf::scenario(scenario) {
                Some(hash) => Balancing::Keyed(hash.keyed()),
                None => Balancing::Flow,
            },
            Balance::Replay { .. } => Balancing::Flow,
            Balance::Spray {} => Balancing::Packet,
            Balance::Flowlet { gap } => Balancing::Flowlet(gap.0),
        },
        urgent: scenario.host.ack_class.filter(|class| *class != DATA_CLASS).map_or(0, |class| 1 << class),
        ..NetworkConfig::default()
    }
}

/// Returns a mask of all traffic classes except that of acknowledgements, if they have their own.
fn data_classes(scenario: &Scenario) -> u8 {
    scenario.host.ack_class.map_or(u8::MAX, |class| if class == DATA_CLASS { u8::MAX } else { !(1 << class) })
}

/// Returns the ECN settings. DCQCN without thresholds gets those of its paper, because it has no effect
/// without marks.
fn mark_config(scenario: &Scenario, classes: u8) -> Option<MarkConfig> {
    let Some(ecn) = &scenario.switch.ecn else {
        let reads_marks = algorithm(scenario.control.name) == Algorithm::Dcqcn;
        let by_rate = vec![(None, Marks::default())];
        return reads_marks.then_some(MarkConfig { by_rate, at_dequeue: false, classes });
    };
    let by_rate = ecn.red.iter().map(|red| (red.rate.map(|rate| rate.0), marks(red))).collect();
    Some(MarkConfig { by_rate, at_dequeue: ecn.at == Mark::Dequeue, classes })
}

fn marks(red: &scenario::Red) -> Marks {
    Marks {
        k_min: red.kmin.0 as usize,
        k_max: red.kmax.0 as usize,
        p_max_thousandths: (red.pmax * 1000.0).round() as u32,
    }
}

fn pause(mmu: Mmu, pfc: &Pfc, data: u8) -> PauseConfig {
    let lasts = match (pfc.expiry, mmu) {
        (Some(expiry), _) => Lasts::Picos(expiry.0),
        (None, Mmu::Clean) => Lasts::Quanta(u16::MAX),
        // `PAUSE_TIME` is 5 µs in ConWeave's program; in HPCC's a pause lasts until the resume frame.
        (None, Mmu::Conweave) => Lasts::Picos(5 * Picos::MICROSECOND),
        (None, Mmu::Hpcc) => Lasts::UntilResume,
    };
    PauseConfig {
        classes: if pfc.counted == Counted::Port { u8::MAX } else { data },
        lasts,
        reaction: pfc.reaction.0,
        charge: if pfc.free { 0 } else { PauseConfig::default().charge },
    }
}

/// Returns the headroom in bytes: the given one, or the most that a link of the network needs. ConWeave's
/// program reserves it even without PFC, and does not count the time of the pause frame itself.
fn headroom(
    switch: &scenario::Switch,
    topology: &Topology,
    pfc: Option<&Pfc>,
    pause: Option<PauseConfig>,
    frame: u32,
) -> u32 {
    let pause = match switch.mmu {
        Mmu::Conweave => Some(PauseConfig { charge: 0, reaction: 0, ..PauseConfig::default() }),
        Mmu::Clean | Mmu::Hpcc => pause,
    };
    let needs = |pause: PauseConfig| {
        topology.links.iter().map(|link| pause.headroom(link.rate, link.delay, frame)).max().unwrap_or(0)
    };
    let given = pfc.and_then(|pfc| pfc.headroom).map(|size| bytes(size.0));
    given.or(pause.map(needs)).unwrap_or(0)
}

fn bytes(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn buffer(scenario: &Scenario, pfc: Option<Pfc>, headroom: u32, frame: u32) -> BufferConfig {
    let switch = &scenario.switch;
    let limit = bytes(switch.buffer.0);
    let thresholds = pfc.map(|pfc| {
        let xoff = pfc.xoff.map_or(limit.saturating_sub(headroom), |size| bytes(size.0));
        let xon = pfc.xon.map_or(xoff.saturating_sub(2 * frame), |size| bytes(size.0));
        Thresholds { xoff, xon }
    });
    match switch.kind {
        Buffering::Fifo => BufferConfig::Fifo {
            limit,
            pause: thresholds,
            per_port: pfc.is_some_and(|pfc| pfc.counted == Counted::Port),
        },
        Buffering::Voq => BufferConfig::Voq { limit, pause: thresholds },
        Buffering::Shared if switch.mmu == Mmu::Conweave => {
            BufferConfig::Conweave(conweave(scenario, headroom, frame))
        }
        Buffering::Shared => BufferConfig::Shared(shared(scenario, pfc.is_some(), headroom, frame)),
    }
}

/// Returns the settings of a shared buffer with dynamic thresholds: plain, or with the constants of HPCC's
/// program.
fn shared(scenario: &Scenario, pauses: bool, headroom: u32, frame: u32) -> SharedConfig {
    let switch = &scenario.switch;
    let (reserve, ingress, hysteresis) = match switch.mmu {
        Mmu::Hpcc => (4096, 256 >> 3, 3072),
        Mmu::Clean | Mmu::Conweave => (0, alpha(switch.alpha), 2 * frame),
    };
    // Without PFC, a class of an input may fill all free memory.
    let ingress = if pauses || switch.mmu == Mmu::Clean { ingress } else { 256 << 8 };
    SharedConfig {
        size: switch.buffer.0,
        reserve: switch.reserve.map_or(reserve, |size| bytes(size.0)),
        headroom,
        ingress_alpha: ingress,
        hysteresis,
        lossless: if pauses { data_classes(scenario) } else { 0 },
    }
}

/// Returns the settings of ConWeave's shared buffer. An input is paused above 1/16 of the free memory.
fn conweave(scenario: &Scenario, headroom: u32, frame: u32) -> ConweaveConfig {
    let switch = &scenario.switch;
    ConweaveConfig {
        size: switch.buffer.0,
        reserve: switch.reserve.map_or(frame, |size| bytes(size.0)),
        headroom,
        ingress_alpha: 256 >> 4,
        egress_alpha: alpha(switch.alpha),
        classes: data_classes(scenario),
    }
}

/// Converts a threshold to units of 1/256. Default: 1.
fn alpha(given: Option<f64>) -> u32 {
    given.map_or(256, |alpha| (alpha * 256.0).round() as u32)
}

/// Returns the operation in the fabric's type.
pub fn verb(verb: crate::Verb) -> simulation::Verb {
    match verb {
        crate::Verb::Write => simulation::Verb::Write,
        crate::Verb::Read => simulation::Verb::Read,
        crate::Verb::Send => simulation::Verb::Send,
    }
}
