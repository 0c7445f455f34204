//! Send windows: the number of packets in flight.

use remora_scenario::scenario::{Charging, Control, Transport, TransportName};

use super::*;

/// Returns the largest number of packets in flight while flows from all sources send to host 0, and their
/// mean slowdown.
fn under_way(control: Control, sources: &[u32]) -> (usize, f64) {
    let flows: Vec<(u32, u32, u64)> = sources.iter().map(|source| (*source, 0, 1_000_000)).collect();
    let mut scenario = scenario(fat_tree(8), &flows);
    scenario.charging = Charging::Ns3;
    scenario.transport = Transport { name: TransportName::RocePfc, ..Transport::default() };
    scenario.switch.buffer = remora_scenario::units::Size(4_000_000);
    scenario.control = control;
    let mut run = Run::new(&scenario).unwrap();
    let mut slowdowns = Vec::new();
    while let Some(row) = run.advance(Picos(1_000_000 * Picos::MICROSECOND)) {
        slowdowns.push(row.slowdown());
    }
    assert_eq!(slowdowns.len(), sources.len());
    let mean = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
    (run.simulation().network().under_way().1, mean)
}

#[test]
fn a_window_holds_as_many_packets_as_fill_the_longest_path() {
    let window = Control { window: Some(true), ..Control::default() };
    // 156,000 bytes on six links of 1 µs and 100 Gb/s: 156 packets of 1000 bytes. ACKs count as packets, too.
    let (most, slowdown) = under_way(window.clone(), &[64]);
    assert!((140..=156).contains(&most), "{most}");
    assert!(slowdown < 1.01, "{slowdown}");
    let sources: Vec<u32> = (64..72).collect();
    let (most, _) = under_way(window, &sources);
    assert!((1_200..=8 * 156).contains(&most), "{most}");
    let (without, _) = under_way(Control::default(), &sources);
    assert!(without > 2_000, "{without}");
}

#[test]
fn a_window_of_the_pair_is_that_of_the_flows_own_path() {
    let window = |of_pair| Control { window: Some(true), window_of_pair: of_pair, ..Control::default() };
    // Two links within a rack: 52,000 bytes.
    let sources = [1, 2, 3];
    let (most, _) = under_way(window(Some(true)), &sources);
    assert!((130..=3 * 52).contains(&most), "{most}");
    let (most, _) = under_way(window(None), &sources);
    assert!((400..=3 * 156).contains(&most), "{most}");
}
