//! A single flow: the formula, and measurements of other simulators.

use super::*;
use remora_scenario::scenario::{Charging, Transport, TransportName};

/// Returns the completion times in ns of single flows within a rack, within a pod and between pods.
fn measured(charging: Charging, transport: TransportName) -> [f64; 3] {
    [1, 4, 64].map(|dst| {
        let mut scenario = scenario(fat_tree(8), &[(0, dst, 2_000_000)]);
        scenario.charging = charging;
        scenario.transport = Transport { name: transport, ..Transport::default() };
        let row = run(&scenario).remove(0);
        assert!((row.slowdown() - 1.0).abs() < 0.01, "{charging:?} {transport:?}: {}", row.slowdown());
        row.fct as f64 / 1000.0
    })
}

fn within(measured: f64, expected: f64) -> bool {
    (measured / expected - 1.0).abs() < 0.01
}

#[test]
fn every_transport_takes_the_time_of_the_formula() {
    for transport in TransportName::ALL {
        measured(Charging::Ethernet, *transport);
    }
}

/// csg-htsim: 174.335 µs within a rack, 178.516 µs within a pod, 182.696 µs between pods.
#[test]
fn it_takes_what_htsim_measured() {
    let times = measured(Charging::Htsim, TransportName::RocePfc);
    let theirs = [174_335.0, 178_516.0, 182_696.0];
    assert!(times.iter().zip(theirs).all(|(own, theirs)| within(*own, theirs)), "{times:?}");
}

/// conweave-ns3: 170.091, 174.265 and 178.439 µs.
#[test]
fn it_takes_what_ns3_measured() {
    for transport in [TransportName::RocePfc, TransportName::Irn] {
        let times = measured(Charging::Ns3, transport);
        let theirs = [170_091.0, 174_265.0, 178_439.0];
        assert!(times.iter().zip(theirs).all(|(own, theirs)| within(*own, theirs)), "{times:?}");
    }
}
