//! The conformance bodies of XRC, UC and UD over real ports, without faults and with faults. XRC delivers
//! exactly once, as RC does. A message of UC or UD arrives whole or not at all.

use crate::arm::{PATIENCE, Services};
use crate::veth::{self, Veth};
use remora_conformance::{Mishap, Options, Report, UnreliableReport, bad_world, run, run_unreliable};
use remora_verbs::{Context, Counters, Device, Mode, Rules, Service, Status, Tally};

/// The results of the seeds of one service.
#[derive(Debug, Default)]
struct Outcome {
    reliable: Report,
    unreliable: UnreliableReport,
    counters: Counters,
    faults: Tally,
}

/// Runs the body of a service, seed by seed. With `bad` links, the port of one side loses, duplicates,
/// reorders, delays and corrupts frames in both directions, differently for each seed.
fn body(service: Service, device: &Device, bad: bool, seeds: std::ops::Range<u64>, verbs: u64) -> Outcome {
    let open = |devices: [&Device; 2]| devices.map(|device| device.open().unwrap());
    body_between(service, [device, device], open, bad, seeds, verbs)
}

/// Runs the body between two devices, which `open` opens in their namespaces.
fn body_between(
    service: Service,
    devices: [&Device; 2],
    open: impl Fn([&Device; 2]) -> [Context; 2],
    bad: bool,
    seeds: std::ops::Range<u64>,
    verbs: u64,
) -> Outcome {
    // A high rate of mishaps, so that each kind occurs although there are few verbs.
    let options = Options { verbs, trouble: 0.6, patience: PATIENCE, ..Options::default() };
    let mut sum = Outcome::default();
    // Over a real port, timing decides which mishaps a seed meets. If ten seeds do not meet each kind, more
    // seeds are run.
    let others = seeds.end + 5_000..seeds.end + 5_015;
    for seed in seeds.clone().chain(others) {
        if seed >= seeds.end && met_all(service, &sum) {
            break;
        }
        let mut devices = devices.map(Device::clone);
        if bad {
            let side = &mut devices[seed as usize % 2];
            *side = side.clone().fault(Rules { seed, ..bad_world(seed).rules });
        }
        let arm = Services::of(service, open(devices.each_ref()));
        let mut arm = if bad { arm.slow() } else { arm };
        if service == Service::XrcInitiator {
            sum.reliable.add(&run(&mut arm, seed, &options));
        } else {
            sum.unreliable.add(&run_unreliable(&mut arm, seed, &options));
        }
        sum.counters.add(&arm.counters());
        sum.faults.sum(&arm.faults());
    }
    sum
}

/// Returns whether each mishap that the service can have was met.
fn met_all(service: Service, outcome: &Outcome) -> bool {
    let met =
        |mishaps: &[Mishap]| mishaps.iter().all(|mishap| outcome.unreliable.mishaps.contains_key(mishap));
    match service {
        Service::Uc => met(&Mishap::ALL),
        Service::Ud => met(&Mishap::OF_DATAGRAMS),
        _ => unmet_of_xrc(outcome).is_empty(),
    }
}

/// Returns the cases that XRC did not meet, except those that need a link that can be cut, or a target that
/// ends in the middle of a message. Only in the latter case a receive of a shared queue is flushed.
fn unmet_of_xrc(outcome: &Outcome) -> Vec<String> {
    let mut missing: Vec<String> = outcome.reliable.missing();
    missing.retain(|name| !["Cut", "send RetryExceeded", "receive WrFlushed"].contains(&name.as_str()));
    missing
}

fn never(counted: &[(&'static str, u64)]) -> Vec<&'static str> {
    counted.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect()
}

const NOTHING: Vec<&str> = Vec::new();

/// Checks that each kind of fault was injected.
fn all_faults(faults: &Tally) {
    let counted = [
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
    ];
    assert_eq!(never(&counted), NOTHING);
}

/// Checks that every case of XRC was met.
fn all_of_xrc(outcome: &Outcome, bad: bool) {
    println!("{outcome:?}");
    assert_eq!(unmet_of_xrc(outcome), NOTHING);
    let counters = &outcome.counters;
    if bad {
        all_faults(&outcome.faults);
        let counted = [
            ("timeout", counters.local_ack_timeout_err),
            ("sequence NAK", counters.packet_seq_err),
            ("RNR", counters.rnr_nak_retry_err),
            ("duplicate", counters.duplicate_request),
            ("gap", counters.out_of_sequence),
        ];
        assert_eq!(never(&counted), NOTHING);
    }
}

/// Checks that each verb was sent and has arrived, and that each mishap was met.
fn all_of(outcome: &Outcome, verbs: &[&str], mishaps: &[Mishap], bad: bool) {
    println!("{outcome:?}");
    let report = &outcome.unreliable;
    assert!(verbs.iter().all(|verb| report.sent.contains_key(verb)), "{:?}", report.sent);
    assert!(verbs.iter().all(|verb| *verb == "Write" || report.arrived.contains_key(verb)));
    let unmet: Vec<&Mishap> = mishaps.iter().filter(|mishap| !report.mishaps.contains_key(mishap)).collect();
    assert_eq!(unmet, Vec::<&Mishap>::new());
    for status in [Status::Success, Status::LocalProtection, Status::LocalQpOperation, Status::WrFlushed] {
        assert!(report.statuses.contains_key(&status), "no {status:?}");
    }
    assert!(report.arrivals() > report.messages() / 10);
    if bad {
        all_faults(&outcome.faults);
        assert!(outcome.counters.rx_dropped_messages > 0 && report.arrivals() < report.messages());
    }
}

const OF_UC: [&str; 4] = ["Send", "SendImm", "Write", "WriteImm"];
const OF_UD: [&str; 2] = ["Send", "SendImm"];

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

#[test]
fn xrc_over_shm() {
    all_of_xrc(&body(Service::XrcInitiator, &Device::shm(), false, 0..10, 1_500), false);
    all_of_xrc(&body(Service::XrcInitiator, &Device::shm(), true, 10..20, 1_500), true);
}

#[test]
fn xrc_over_udp() {
    all_of_xrc(&body(Service::XrcInitiator, &udp(), false, 100..110, 1_500), false);
    all_of_xrc(&body(Service::XrcInitiator, &udp(), true, 110..120, 1_500), true);
}

#[test]
fn uc_over_shm() {
    all_of(&body(Service::Uc, &Device::shm(), false, 200..210, 1_000), &OF_UC, &Mishap::ALL, false);
    all_of(&body(Service::Uc, &Device::shm(), true, 210..220, 1_000), &OF_UC, &Mishap::ALL, true);
}

#[test]
fn uc_over_udp() {
    all_of(&body(Service::Uc, &udp(), false, 300..310, 1_000), &OF_UC, &Mishap::ALL, false);
    let bad = body(Service::Uc, &udp(), true, 310..320, 1_000);
    all_of(&bad, &OF_UC, &Mishap::ALL, true);
    assert!(bad.counters.rx_icrc_encapsulated > 0 && bad.counters.out_of_sequence > 0);
}

#[test]
fn ud_over_shm() {
    let mishaps = &Mishap::OF_DATAGRAMS;
    all_of(&body(Service::Ud, &Device::shm(), false, 400..410, 1_000), &OF_UD, mishaps, false);
    all_of(&body(Service::Ud, &Device::shm(), true, 410..420, 1_000), &OF_UD, mishaps, true);
}

#[test]
fn ud_over_udp() {
    let mishaps = &Mishap::OF_DATAGRAMS;
    all_of(&body(Service::Ud, &udp(), false, 500..510, 1_000), &OF_UD, mishaps, false);
    let bad = body(Service::Ud, &udp(), true, 510..520, 1_000);
    all_of(&bad, &OF_UD, mishaps, true);
    assert!(bad.counters.rx_icrc_encapsulated > 0);
}

/// Runs a service between two network namespaces, with AF_XDP at both ends of a veth pair. An error means
/// that the namespaces cannot be created.
fn over_xdp(
    service: Service,
    seeds: std::ops::Range<u64>,
    verbs: u64,
) -> Result<[Outcome; 2], remora_netns::Error> {
    let veth = Veth::new()?;
    let devices = [0, 1].map(|end| Device::xdp(veth.interface(end), Some(veth::V4[end].parse().unwrap())));
    let open = |devices: [&Device; 2]| [0, 1].map(|end| veth.open(end, devices[end]));
    let middle = (seeds.start + seeds.end) / 2;
    let run = |bad, seeds| body_between(service, devices.each_ref(), open, bad, seeds, verbs);
    Ok([run(false, seeds.start..middle), run(true, middle..seeds.end)])
}

#[test]
fn xrc_over_xdp() {
    let [good, bad] = remora_netns::require!(over_xdp(Service::XrcInitiator, 700..720, 1_500));
    all_of_xrc(&good, false);
    all_of_xrc(&bad, true);
}

#[test]
fn uc_over_xdp() {
    let [good, bad] = remora_netns::require!(over_xdp(Service::Uc, 800..820, 1_000));
    all_of(&good, &OF_UC, &Mishap::ALL, false);
    all_of(&bad, &OF_UC, &Mishap::ALL, true);
}

#[test]
fn ud_over_xdp() {
    let [good, bad] = remora_netns::require!(over_xdp(Service::Ud, 900..920, 1_000));
    all_of(&good, &OF_UD, &Mishap::OF_DATAGRAMS, false);
    all_of(&bad, &OF_UD, &Mishap::OF_DATAGRAMS, true);
}

#[test]
fn some_seeds_with_dedicated_engines() {
    for (seed, service) in [(600, Service::XrcInitiator), (601, Service::Uc), (602, Service::Ud)] {
        for device in [Device::shm(), udp()] {
            let options = Options { verbs: 400, patience: PATIENCE, ..Options::default() };
            let device = device.mode(Mode::Dedicated);
            let mut arm = Services::new(service, [&device, &device]).slow();
            if service == Service::XrcInitiator {
                assert!(run(&mut arm, seed, &options).verbs() >= 400);
            } else {
                assert!(run_unreliable(&mut arm, seed, &options).messages() >= 400);
            }
        }
    }
}
