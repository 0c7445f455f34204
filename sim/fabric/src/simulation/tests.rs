//! Tests of observers of a simulation.

use std::sync::{Arc, Mutex};

use remora_wire::frame::dissect;
use remora_wire::icrc::{self, Flow};

use super::*;
use crate::network::{
    BufferConfig, MarkConfig, NetworkConfig, PauseConfig, PauseFrame, PortEvent, PortId, Thresholds,
};
use crate::topology::{Level, Tree};
use crate::{Marks, network::EventSet};

/// Time, port, event and bytes of a packet, and the contents of a pause frame.
type Noted = (u64, PortId, PortEvent, Vec<u8>, Option<PauseFrame>);

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Noted>>>);

impl Observer for Notes {
    fn observe(&mut self, seen: &Seen<'_>) {
        let mut packet = Vec::new();
        seen.packet(&mut packet);
        let note = (seen.at().0, seen.port(), seen.event(), packet, seen.pause());
        self.0.lock().unwrap().push(note);
    }
}

const LINK: Level = Level::new(100_000_000_000, Picos::MICROSECOND);

/// Four hosts at one ToR, hosts 4 to 7 at another, two spines. Every packet is marked, and PFC thresholds are
/// low.
fn simulation(whole: bool) -> Simulation {
    let topology = Tree::leaf_spine(2, 2, 4, LINK, LINK).topology().unwrap();
    let pause = Some(Thresholds { xoff: 5_000, xon: 3_000 });
    let network = NetworkConfig {
        buffer: BufferConfig::Fifo { limit: 1 << 20, pause, per_port: false },
        pause: Some(PauseConfig::default()),
        marks: Some(MarkConfig {
            by_rate: vec![(None, Marks { k_min: 0, k_max: 0, p_max_thousandths: 1000 })],
            at_dequeue: true,
            classes: u8::MAX,
        }),
        ..NetworkConfig::default()
    };
    let connection =
        Connection { congestion: remora_transport::congestion::Algorithm::Dcqcn, ..Connection::default() };
    let config = SimulationConfig { network, whole, icrc: whole, connection, ..SimulationConfig::default() };
    Simulation::new(topology, config).unwrap()
}

/// Hosts 0 to 2 send 40,000 bytes each to host 4. Returns the events at the observed directions.
fn run(whole: bool, observed: &[(PortId, EventSet)]) -> (Simulation, Vec<Noted>) {
    let mut simulation = simulation(whole);
    let notes = Notes::default();
    simulation.set_observer(Box::new(notes.clone()));
    observed.iter().for_each(|(port, events)| simulation.observe(*port, *events));
    for source in 0..3 {
        simulation.add_flow(FlowSpec::write(source, 4, 40_000, Picos(0)));
    }
    while simulation.running() > 0 {
        simulation.run(Picos(10_000 * Picos::MICROSECOND)).expect("all flows end");
    }
    let seen = notes.0.lock().unwrap().clone();
    (simulation, seen)
}

/// Direction from host 4 to its switch, by the host's first link.
const HOST_4: PortId = PortId(8);

#[test]
fn a_host_is_seen_to_get_and_to_send_what_its_nic_counts() {
    for whole in [true, false] {
        let both = [(HOST_4, EventSet::DEPARTURES), (HOST_4.reverse(), EventSet::ARRIVALS)];
        let (simulation, seen) = run(whole, &both);
        let counters = simulation.counters(4);
        let count = |event| seen.iter().filter(|note| note.2 == event).count() as u64;
        assert_eq!(count(PortEvent::Arrived), counters.rcvd_pkts);
        assert_eq!(count(PortEvent::Departed), counters.sent_pkts);
        assert!(seen.iter().all(|note| note.1 == HOST_4), "all happens at the host's own port");
        assert!(seen.is_sorted_by_key(|note| note.0));
        assert!(counters.np_cnp_sent > 0 && counters.np_ecn_marked_roce_packets > 0);
    }
}

#[test]
fn frames_are_seen_as_they_are_on_the_wire() {
    let (_, seen) = run(true, &[(HOST_4.reverse(), EventSet::ARRIVALS)]);
    let mut marked = 0;
    for (.., packet, _) in &seen {
        let frame = dissect(Start::Ip, packet).unwrap();
        let (network, udp) = frame.network.unwrap();
        let transport = &packet[packet.len() - usize::from(udp.payload_len)..];
        let covered = &transport[..transport.len() - icrc::LEN];
        assert!(Flow::of(&network, &udp).accepts(network.ip_id(), covered, frame.icrc));
        marked += u64::from(packet[1] & 3 == 3);
    }
    let (simulation, blank) = run(false, &[(HOST_4.reverse(), EventSet::ARRIVALS)]);
    assert_eq!(marked, simulation.counters(4).np_ecn_marked_roce_packets);
    let same = |(a, b): (&Noted, &Noted)| a.0 == b.0 && a.3[..a.3.len() - 4] == b.3[..b.3.len() - 4];
    assert!(seen.len() == blank.len() && seen.iter().zip(&blank).all(same), "but for the ICRC");
}

#[test]
fn pause_frames_are_seen_where_they_leave_and_where_they_arrive() {
    // Ports of the switch of host 4 to both spines.
    let uplinks = [PortId(20), PortId(22)];
    let both = EventSet::DEPARTURES.with(EventSet::ARRIVALS);
    let (simulation, seen) = run(false, &uplinks.map(|uplink| (uplink, both)));
    let mut pauses = 0;
    for uplink in uplinks {
        let pauses_at = |port, event| {
            let is_it = move |note: &&Noted| (note.1, note.2) == (port, event) && note.4.is_some();
            seen.iter().filter(is_it).collect::<Vec<_>>()
        };
        let left = pauses_at(uplink, PortEvent::Departed);
        let came = pauses_at(uplink.reverse(), PortEvent::Arrived);
        assert!(came.len() <= left.len() && left.len() <= came.len() + 1);
        pauses += left.len() as u64;
        for (left, came) in left.iter().zip(&came) {
            assert_eq!(came.0 - left.0, 84 * 80 + Picos::MICROSECOND);
            assert_eq!((left.4, left.3.len()), (came.4, 0));
        }
    }
    let totals = simulation.network().totals();
    assert!(pauses > 2 && pauses <= totals.pauses + totals.resumes, "{pauses}");
}

#[test]
fn queues_are_seen_to_grow_and_to_drain() {
    // Port of the switch to host 4.
    let out = HOST_4.reverse();
    let (_, seen) = run(false, &[(out, EventSet::QUEUES)]);
    let count = |event| seen.iter().filter(|note| note.2 == event).count();
    assert_eq!(count(PortEvent::Enqueued), count(PortEvent::Departed));
    assert!(count(PortEvent::Enqueued) >= 120 && count(PortEvent::Arrived) == 0);
}

#[test]
fn whoever_observes_changes_nothing() {
    let everything: Vec<(PortId, EventSet)> = (0..24)
        .map(|port| (PortId(port), EventSet::DEPARTURES.with(EventSet::ARRIVALS).with(EventSet::QUEUES)))
        .collect();
    let (observed, seen) = run(false, &everything);
    let (plain, nothing) = run(false, &[]);
    assert_eq!(observed.network().totals(), plain.network().totals());
    assert_eq!(observed.network().now(), plain.network().now());
    assert!(!seen.is_empty() && nothing.is_empty());
}
