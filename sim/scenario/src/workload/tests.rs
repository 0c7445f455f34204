//! Tests of generated flows: their ends, their mean load, and their independence of the order of hosts.

use std::collections::BTreeSet;

use remora_fabric::topology::{Level, Tree};

use super::*;
use crate::flow::{After, Dependency, End};

const RATE: u64 = 100_000_000_000;

fn network() -> Topology {
    Tree::fat(4, 1, Level::new(RATE, 1_000_000)).unwrap().topology().unwrap()
}

fn made(traffic: Traffic, seed: u64) -> Vec<Flow> {
    generate(&[Workload::of(traffic)], &network(), seed).unwrap()
}

fn at(flow: &Flow) -> u64 {
    let Start::At(start) = flow.start else { panic!("{flow:?} waits") };
    start
}

fn poisson(sizes: NamedSizes, load: f64, ms: u64) -> Traffic {
    Traffic::Poisson { sizes: Sizes::Named(sizes), load, duration: Time(ms * 1_000_000_000) }
}

#[test]
fn poisson_flows_fill_their_load_with_the_mean_size_and_gap() {
    for (sizes, mean, ms) in [
        // Expected mean of AliStorage by hand, from trapezoids; the others by HPCC's generator.
        (NamedSizes::AliStorage, 40_869.8, 400),
        (NamedSizes::WebSearch, 1_711_250.0, 4000),
        (NamedSizes::FbHdp, 120_420.75, 1000),
        (NamedSizes::GoogleRpc, 2_891.62, 10),
        (NamedSizes::IrnUniform, 2_750_000.0, 4000),
        // 0.5 * 968 / ln 31.25 + 0.35 * 199000 / ln 200 + 0.15 * 2800000 / ln 15.
        (NamedSizes::Irn, 168_379.4, 1000),
    ] {
        let distribution = Sizes::Named(sizes).distribution().unwrap();
        assert!((distribution.mean() - mean).abs() < mean * 1e-4, "{sizes:?}: {}", distribution.mean());
        let flows = made(poisson(sizes, 0.5, ms), 1);
        let bytes: u64 = flows.iter().map(|flow| flow.size).sum();
        let expected = 16.0 * 0.5 * RATE as f64 / 8.0 * ms as f64 / 1000.0;
        assert!((bytes as f64 / expected - 1.0).abs() < 0.05, "{sizes:?}: {bytes} of {expected}");
        let count = expected / mean;
        assert!((flows.len() as f64 / count - 1.0).abs() < 0.05, "{sizes:?}: {} of {count}", flows.len());
        assert!(flows.windows(2).all(|pair| at(&pair[0]) <= at(&pair[1])));
        assert!(flows.iter().all(|flow| flow.src != flow.dst));
        let pairs: BTreeSet<(u32, u32)> = flows.iter().map(|flow| (flow.src, flow.dst)).collect();
        assert_eq!(pairs.len(), 16 * 15);
    }
}

#[test]
fn the_parts_of_irns_sizes_have_their_shares() {
    let flows = made(poisson(NamedSizes::Irn, 0.7, 500), 3);
    let share = |low, high| {
        let within = flows.iter().filter(|flow| (low..=high).contains(&flow.size)).count();
        within as f64 / flows.len() as f64
    };
    assert!((share(32, 1000) - 0.5).abs() < 0.01, "{}", share(32, 1000));
    assert!((share(200_001, 3_000_000) - 0.15).abs() < 0.01);
    assert_eq!(share(32, 3_000_000), 1.0);
}

#[test]
fn every_table_is_a_distribution_with_the_ends_of_its_file() {
    for (table, points, last) in [
        (tables::WEBSEARCH, 12, 30_000_000),
        (tables::FB_HDP, 20, 10_000_000),
        (tables::ALI_STORAGE, 9, 2_000_000),
        (tables::GOOGLE_RPC, 843, 15_158_197),
    ] {
        let cdf = tables::cdf(table).unwrap();
        assert_eq!((cdf.points().len(), cdf.size_at(100.0), cdf.size_at(0.0)), (points, last, 1));
    }
}

#[test]
fn a_host_sends_the_same_whoever_else_takes_part() {
    let traffic = poisson(NamedSizes::WebSearch, 0.5, 100);
    let few = Workload { hosts: Some(vec![3, 1, 2]), ..Workload::of(traffic.clone()) };
    let turned = Workload { hosts: Some(vec![2, 3, 1]), ..few.clone() };
    let sent = |workload: &Workload| {
        let flows = generate(std::slice::from_ref(workload), &network(), 9).unwrap();
        let from_host_3 = |flow: &Flow| (flow.src == 3).then(|| (at(flow), flow.size));
        flows.iter().filter_map(from_host_3).collect::<Vec<_>>()
    };
    let all = sent(&Workload::of(traffic));
    assert!(all.len() > 10);
    assert_eq!((sent(&few), sent(&turned)), (all.clone(), all));
}

#[test]
fn the_flows_of_a_seed_never_change() {
    // Literal values: a change of them changes every published run.
    let flows = made(poisson(NamedSizes::Irn, 0.7, 1), 1);
    let first: Vec<_> = flows[..3].iter().map(|flow| (flow.src, flow.dst, flow.size, at(flow))).collect();
    assert_eq!(first, [(0, 5, 1240, 1_178_392), (8, 2, 783, 4_694_598), (14, 15, 430_355, 5_561_954)]);
    assert_ne!(made(poisson(NamedSizes::Irn, 0.7, 1), 2), flows);
}

#[test]
fn a_permutation_sends_and_receives_once_at_each_host() {
    let flows = made(Traffic::Permutation { size: Size(5) }, 4);
    let all: BTreeSet<u32> = (0..16).collect();
    assert_eq!(flows.iter().map(|flow| flow.src).collect::<BTreeSet<_>>(), all);
    assert_eq!(flows.iter().map(|flow| flow.dst).collect::<BTreeSet<_>>(), all);
    assert!(flows.len() == 16 && flows.iter().all(|flow| flow.src != flow.dst && at(flow) == 0));
    assert_ne!(made(Traffic::Permutation { size: Size(5) }, 5), flows);
}

#[test]
fn an_incast_has_its_senders_and_a_repeated_one_its_load() {
    let incast =
        |destination, repeat| Traffic::Incast { senders: 8, size: Size(10_000), to: destination, repeat };
    let once = made(incast(Some(3), None), 1);
    let senders: BTreeSet<u32> = once.iter().map(|flow| flow.src).collect();
    assert!(senders.len() == 8 && !senders.contains(&3) && once.iter().all(|flow| flow.dst == 3));
    let repeat = Some(Repeat { load: 0.2, duration: Time(100_000_000_000) });
    let flows = made(incast(None, repeat), 1);
    let bytes: u64 = flows.iter().map(|flow| flow.size).sum();
    let expected = 16.0 * 0.2 * RATE as f64 / 8.0 / 10.0;
    assert!((bytes as f64 / expected - 1.0).abs() < 0.05, "{bytes} of {expected}");
    assert_eq!(flows.iter().map(|flow| flow.dst).collect::<BTreeSet<_>>().len(), 16);
    let error = generate(&[Workload::of(incast(Some(3), None))], &network(), 1);
    assert!(error.is_ok());
    let many = Traffic::Incast { senders: 16, size: Size(1), to: Some(3), repeat: None };
    let error = generate(&[Workload::of(many)], &network(), 1).unwrap_err();
    assert_eq!(error, WorkloadError::TooFewHosts { needs: 17, has: 16 });
}

#[test]
fn all_to_all_is_every_pair_once() {
    let flows = made(Traffic::AllToAll { size: Size(5) }, 1);
    let pairs: BTreeSet<(u32, u32)> = flows.iter().map(|flow| (flow.src, flow.dst)).collect();
    assert_eq!((flows.len(), pairs.len()), (240, 240));
    // The first flows of all hosts have different receivers, and so on for each step.
    assert_eq!((flows[0].dst, flows[15].dst, flows[30].dst), (1, 2, 3));
}

#[test]
fn an_all_reduce_sends_each_chunk_when_it_has_it() {
    let hosts = Some(vec![0, 1, 2]);
    let ring = Workload { hosts, ..Workload::of(Traffic::RingAllReduce { size: Size(10) }) };
    let flows = generate(&[ring], &network(), 1).unwrap();
    assert_eq!(flows.len(), 3 * 4);
    // Chunks of 4, 3 and 3 bytes; host i sends chunk i first.
    let first: Vec<_> = flows[..3].iter().map(|flow| (flow.src, flow.dst, flow.size, at(flow))).collect();
    assert_eq!(first, [(0, 1, 4, 0), (1, 2, 3, 0), (2, 0, 3, 0)]);
    // Host 1 then sends chunk 0, which it received from host 0 by flow 0.
    let wait = Dependency { flow: 0, end: End::Received };
    let start = Start::After(Arc::new(After { flows: vec![wait], count: 1, delay: 0 }));
    assert_eq!(flows[4], Flow { start, ..Flow::write(4, 1, 2, 4, 0) });
    // Each chunk travels over two of the three hops, once in each half of the rounds.
    let bytes: u64 = flows.iter().map(|flow| flow.size).sum();
    assert_eq!(bytes, 10 * 2 * 2);
}

#[test]
fn workloads_keep_their_ids_apart_and_their_waits_together() {
    let wait = After { flows: vec![Dependency { flow: 4, end: End::Acknowledged }], count: 1, delay: 7 };
    let waits = Flow { start: Start::After(Arc::new(wait)), ..Flow::write(9, 1, 0, 5, 0) };
    let listed = Workload::listed(vec![waits, Flow::write(4, 0, 1, 5, 6)]);
    let later = Workload { start: Time(100), ..listed.clone() };
    let flows = generate(&[listed, later], &network(), 1).unwrap();
    let ids: Vec<u64> = flows.iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [4, 14, 9, 19]);
    assert_eq!((at(&flows[0]), at(&flows[1])), (6, 106));
    let Start::After(after) = &flows[3].start else { panic!("it waits") };
    assert_eq!(after.flows[0].flow, 14);
}

#[test]
fn each_mistake_of_a_workload_is_named() {
    let listed =
        |flow: Flow| generate(&[Workload::listed(vec![flow])], &network(), 1).unwrap_err().to_string();
    let says = "the workload names node 16, which is not a host of the network: name a host";
    assert_eq!(listed(Flow::write(0, 16, 1, 5, 0)), says);
    assert_eq!(listed(Flow::write(0, 1, 1, 5, 0)), "host 1 sends to itself: name another host");
    let on_itself = After { flows: vec![Dependency { flow: 0, end: End::Received }], count: 1, delay: 0 };
    let waits = Flow { start: Start::After(Arc::new(on_itself)), ..Flow::write(0, 1, 2, 5, 0) };
    let says = "flow 0 waits for flows that do not exist: name flows of its workload";
    assert_eq!(listed(waits), says);
    let one = Flow::write(0, 1, 2, 5, 0);
    let twice = generate(&[Workload::listed(vec![one.clone(), one])], &network(), 1).unwrap_err();
    assert_eq!(twice.to_string(), "two flows have the id 0: give each its own");
    let many = Traffic::Poisson { sizes: Sizes::Fixed(Size(1)), load: 10.0, duration: Time(u64::MAX) };
    let many = generate(&[Workload::of(many)], &network(), 1).unwrap_err();
    assert_eq!(many, WorkloadError::TooMany);
    let outside = Workload { hosts: Some(vec![0, 17]), ..Workload::of(Traffic::AllToAll { size: Size(1) }) };
    assert_eq!(generate(&[outside], &network(), 1), Err(WorkloadError::UnknownHost { host: 17 }));
}
