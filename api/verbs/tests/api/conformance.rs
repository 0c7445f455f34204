//! The conformance body over real ports, without faults and with faults: random verbs in both directions,
//! compared with a plain model.

use crate::arm::{PATIENCE, Services};
use crate::veth::{self, Veth};
use remora_conformance::{Options, Report, Verb, bad_world, run};
use remora_verbs::{Counters, Device, Mode, Rules, Service, Tally};

fn rc(devices: [&Device; 2]) -> Services {
    Services::new(Service::Rc, devices)
}

fn body(seeds: std::ops::Range<u64>, arm: impl Fn() -> Services) -> Report {
    body_with(false, seeds, arm)
}

fn body_with(irn: bool, seeds: std::ops::Range<u64>, arm: impl Fn() -> Services) -> Report {
    let options = Options { verbs: 3_000, irn, patience: PATIENCE, ..Options::default() };
    let mut sum = Report::default();
    for seed in seeds {
        sum.add(&run(&mut arm(), seed, &options));
    }
    for verb in Verb::ALL {
        assert!(sum.count(verb) > 0, "no {verb:?}");
    }
    sum
}

/// Checks that every case was met, except the cases that need a link that can be cut.
fn complete(report: &Report) {
    let missing: Vec<String> = report.missing();
    let expected = ["Cut", "send RetryExceeded"];
    assert!(missing.iter().all(|name| expected.contains(&name.as_str())), "{missing:?} in {report:?}");
}

fn udp(address: &str) -> Device {
    Device::udp(address).unwrap()
}

/// Runs the body of `random_verbs_over_a_hundred_bad_links` over a real port: every verb takes effect
/// exactly once.
#[test]
fn ten_seeds_over_shm() {
    // More than ten seeds, so that every mishap occurs with any random numbers of the conformance body.
    complete(&body(0..24, || rc([&Device::shm(); 2])));
}

#[test]
fn ten_seeds_over_udp() {
    complete(&body(100..124, || rc([&udp("127.0.0.1:0"); 2])));
}

#[test]
fn some_seeds_over_udp_over_ipv6() {
    body(200..203, || rc([&udp("[::1]:0"); 2]));
}

#[test]
fn some_seeds_with_dedicated_engines() {
    body(300..303, || rc([&Device::shm().mode(Mode::Dedicated); 2]).slow());
    body(310..312, || rc([&udp("127.0.0.1:0").mode(Mode::Dedicated); 2]).slow());
}

/// The result of a run over bad links.
#[derive(Debug, Default)]
struct Bad {
    report: Report,
    counters: Counters,
    faults: Tally,
}

/// Runs the body over links that lose, duplicate, reorder, delay and corrupt frames, differently for each
/// seed. The port of one side does that to the frames that it sends and receives.
fn bad_body(device: &Device, seeds: std::ops::Range<u64>) -> Bad {
    bad_body_with(false, device, seeds)
}

fn bad_body_with(irn: bool, device: &Device, seeds: std::ops::Range<u64>) -> Bad {
    bad_pair(irn, [device, device], seeds, rc)
}

fn bad_pair(
    irn: bool,
    devices: [&Device; 2],
    seeds: std::ops::Range<u64>,
    open: impl Fn([&Device; 2]) -> Services,
) -> Bad {
    // A high rate of mishaps, so that each kind occurs although there are fewer verbs.
    let options = Options { verbs: 2_000, trouble: 0.6, irn, patience: PATIENCE, ..Options::default() };
    let mut sum = Bad::default();
    for seed in seeds {
        let mut devices = devices.map(Device::clone);
        let side = &mut devices[seed as usize % 2];
        *side = side.clone().fault(Rules { seed, ..bad_world(seed).rules });
        let mut arm = open(devices.each_ref()).slow();
        sum.report.add(&run(&mut arm, seed, &options));
        sum.counters.add(&arm.counters());
        sum.faults.sum(&arm.faults());
    }
    sum
}

/// Checks that each kind of fault was injected, and that each kind of recovery was used.
fn all_bad(bad: &Bad) {
    let counters = &bad.counters;
    all_bad_with(bad, &[("implied NAK", counters.implied_nak_seq_err)]);
}

/// Like [`all_bad`], over IRN, whose recovery has other counters.
fn all_bad_with_irn(bad: &Bad) {
    let counters = &bad.counters;
    let own = [
        ("taken ahead of a gap", counters.irn_ahead_pkts),
        ("recovery", counters.irn_recoveries),
        ("timeout of responses", counters.irn_response_timeouts),
        ("response sent again", counters.irn_responses_repeated),
    ];
    all_bad_with(bad, &own);
    assert_eq!(counters.irn_beyond_pkts, 0, "a peer has more packets in flight than the receiver tracks");
}

fn all_bad_with(bad: &Bad, own: &[(&str, u64)]) {
    println!("{bad:?}");
    let Bad { report, counters, faults } = bad;
    complete(report);
    let counted = [
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
        ("timeout", counters.local_ack_timeout_err),
        ("sequence NAK", counters.packet_seq_err),
        ("RNR", counters.rnr_nak_retry_err),
        ("duplicate", counters.duplicate_request),
        ("gap", counters.out_of_sequence),
    ];
    let counted = counted.iter().chain(own);
    let never: Vec<&str> = counted.filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
    assert_eq!(never, Vec::<&str>::new());
}

/// Runs the same body with faults on the link. Each kind of fault occurs.
#[test]
fn bad_links_over_shm() {
    let bad = bad_body(&Device::shm(), 400..416);
    all_bad(&bad);
    // Frames without an ICRC cannot be recognised as corrupted, so the port drops them instead.
    assert_eq!(bad.counters.rx_icrc_encapsulated, 0);
}

#[test]
fn bad_links_over_udp() {
    let bad = bad_body(&udp("127.0.0.1:0"), 500..516);
    all_bad(&bad);
    assert!(bad.counters.rx_icrc_encapsulated > 0);
}

#[test]
fn bad_links_with_dedicated_engines() {
    for (device, seed) in [(Device::shm(), 600), (udp("127.0.0.1:0"), 601)] {
        let bad = bad_body(&device.mode(Mode::Dedicated), seed..seed + 1);
        assert!(bad.faults.faults() > 0 && bad.counters.local_ack_timeout_err > 0, "{bad:?}");
    }
}

#[test]
fn ten_seeds_over_shm_with_irn() {
    complete(&body_with(true, 700..724, || rc([&Device::shm(); 2])));
}

#[test]
fn ten_seeds_over_udp_with_irn() {
    complete(&body_with(true, 800..824, || rc([&udp("127.0.0.1:0"); 2])));
}

#[test]
fn bad_links_over_shm_with_irn() {
    all_bad_with_irn(&bad_body_with(true, &Device::shm(), 900..916));
}

#[test]
fn bad_links_over_udp_with_irn() {
    all_bad_with_irn(&bad_body_with(true, &udp("127.0.0.1:0"), 1000..1016));
}

/// AF_XDP between two network namespaces.
struct Wire(Veth);

impl Wire {
    /// Describes NICs on both ends with these addresses.
    fn devices(&self, hosts: [&str; 2]) -> [Device; 2] {
        [0, 1].map(|end| Device::xdp(self.0.interface(end), Some(hosts[end].parse().unwrap())))
    }

    /// Opens each device in its namespace.
    fn api(&self, devices: [&Device; 2]) -> Services {
        Services::of(Service::Rc, [0, 1].map(|end| self.0.open(end, devices[end])))
    }
}

/// Runs four seeds of each machine, which the tests over `udp` complete; [`nightly_seeds_over_xdp`] runs all.
#[test]
fn some_seeds_over_xdp() {
    let wire = remora_netns::require!(Veth::new().map(Wire));
    let devices = wire.devices(veth::V4);
    body(700..704, || wire.api(devices.each_ref()));
    body_with(true, 1200..1204, || wire.api(devices.each_ref()));
}

#[test]
#[ignore = "nightly: half a minute"]
fn nightly_seeds_over_xdp() {
    let wire = remora_netns::require!(Veth::new().map(Wire));
    let devices = wire.devices(veth::V4);
    complete(&body(700..724, || wire.api(devices.each_ref())));
    complete(&body_with(true, 1200..1224, || wire.api(devices.each_ref())));
}

#[test]
fn some_seeds_over_xdp_over_ipv6_and_with_dedicated_engines() {
    let wire = remora_netns::require!(Veth::new().map(Wire));
    let devices = wire.devices(veth::V6);
    body(730..733, || wire.api(devices.each_ref()));
    let dedicated = wire.devices(veth::V4).map(|device| device.mode(Mode::Dedicated));
    body(740..742, || wire.api(dedicated.each_ref()).slow());
}

#[test]
fn some_seeds_between_xdp_and_udp() {
    let wire = remora_netns::require!(Veth::new().map(Wire));
    for (hosts, address, seeds) in
        [(veth::V4, "10.213.7.2:4791", 750..754), (veth::V6, "[fd00:7::2]:4791", 760..763)]
    {
        let [xdp, _] = wire.devices(hosts);
        body(seeds, || wire.api([&xdp, &udp(address)]));
    }
}

/// Runs three bad links of each machine; [`nightly_bad_links_over_xdp`] runs all.
#[test]
fn some_bad_links_over_xdp() {
    let wire = remora_netns::require!(Veth::new().map(Wire));
    for (irn, seeds) in [(false, 800..803), (true, 1100..1103)] {
        let bad = bad_pair(irn, wire.devices(veth::V4).each_ref(), seeds, |devices| wire.api(devices));
        assert!(bad.faults.faults() > 0 && bad.counters.rx_icrc_encapsulated > 0, "{bad:?}");
    }
}

#[test]
#[ignore = "nightly: half a minute"]
fn nightly_bad_links_over_xdp() {
    let wire = remora_netns::require!(Veth::new().map(Wire));
    let bad = bad_pair(false, wire.devices(veth::V4).each_ref(), 800..816, |devices| wire.api(devices));
    all_bad(&bad);
    assert!(bad.counters.rx_icrc_encapsulated > 0);
    let bad = bad_pair(true, wire.devices(veth::V4).each_ref(), 1100..1116, |devices| wire.api(devices));
    all_bad_with_irn(&bad);
}
