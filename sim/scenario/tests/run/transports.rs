//! Many flows: the behaviour of each transport under congestion and loss.

use super::*;
use remora_fabric::network::Finding;
use remora_scenario::format::own;
use remora_scenario::scenario::{Control, ControlName, Failure, Host, QueuePairs, Transport, TransportName};
use remora_scenario::workload::Traffic;
use remora_scenario::{Source, Verb};

/// Returns a scenario in which sixteen hosts send 200 KB each to one host.
fn incast(name: TransportName) -> Scenario {
    let flows: Vec<_> = (1..17).map(|src| (src * 7 % 128, 0, 200_000)).collect();
    let transport = Transport { name, ..Transport::default() };
    Scenario { transport, ..scenario(fat_tree(8), &flows) }
}

#[test]
fn every_transport_and_control_ends_an_incast() {
    for name in TransportName::ALL {
        for control in ControlName::ALL {
            let mut scenario = incast(*name);
            scenario.control = Control { name: *control, ..Control::default() };
            scenario.switch.ecn = (*control != ControlName::None).then(marks);
            let rows = run(&scenario);
            assert_eq!(rows.len(), 16, "{name} {control}");
        }
    }
}

fn marks() -> remora_scenario::scenario::Ecn {
    use remora_scenario::scenario::{Ecn, Mark, Red};
    use remora_scenario::units::Size;
    let red = Red { rate: None, kmin: Size(20_000), kmax: Size(100_000), pmax: 0.1 };
    Ecn { at: Mark::Enqueue, red: vec![red] }
}

#[test]
fn pauses_lose_nothing_and_without_them_switches_do() {
    let lost = |name| {
        let mut run = Run::new(&incast(name)).unwrap();
        while run.advance(Picos::NEVER).is_some() {}
        let totals = *run.totals();
        assert!(run.findings().0.is_empty());
        (totals.lost().packets, totals.pauses)
    };
    let (with, pauses) = lost(TransportName::RocePfc);
    assert!(with == 0 && pauses > 0);
    let (without, pauses) = lost(TransportName::Roce);
    assert!(without > 0 && pauses == 0);
    assert!(lost(TransportName::Irn).0 > 0);
}

#[test]
fn random_loss_on_every_link_ends_all_flows_of_every_transport() {
    for name in TransportName::ALL {
        let mut scenario = incast(*name);
        scenario.loss = 0.001;
        scenario.transport.rto = Some(Time(320 * Picos::MICROSECOND));
        let mut run = Run::new(&scenario).unwrap();
        let ended = std::iter::from_fn(|| run.advance(Picos::NEVER)).count();
        assert_eq!((ended, run.unfinished().count()), (16, 0), "{name}");
        // If a pause frame is lost, a switch drops packets of a lossless class; the watcher reports it.
        let (findings, _) = run.findings();
        assert!(
            findings.iter().all(|finding| matches!(finding, Finding::LosslessDrop { .. })),
            "{findings:?}"
        );
    }
}

#[test]
fn one_seed_gives_one_run() {
    let once = |seed| {
        let mut scenario = incast(TransportName::Irn);
        (scenario.seed, scenario.loss) = (seed, 0.001);
        run(&scenario)
    };
    assert_eq!(once(5), once(5));
    assert_ne!(once(5), once(6));
}

#[test]
fn acknowledgements_of_a_class_of_their_own_pass_data() {
    let mut scenario = incast(TransportName::RocePfc);
    scenario.host = Host { ack_class: Some(0), ..Host::default() };
    assert_eq!(run(&scenario).len(), 16);
}

#[test]
fn a_failed_only_path_ends_the_run() {
    let mut scenario = scenario(fat_tree(4), &[(0, 15, 2_000_000), (1, 14, 2_000)]);
    // The link of host 0.
    scenario.failures =
        vec![Failure { ends: [0, 16], nth: 0, at: Time(20 * Picos::MICROSECOND), until: None }];
    let mut run = Run::new(&scenario).unwrap();
    let mut ended = 0;
    while !run.is_over() {
        let limit = run.progress().now.after(100 * Picos::MICROSECOND);
        ended += std::iter::from_fn(|| run.advance(limit)).count();
    }
    let open: Vec<_> = run.unfinished().collect();
    assert_eq!((ended, open.len(), open[0].flow.id), (1, 1, 0));
    assert!(run.is_stalled());
}

#[test]
fn more_flows_than_a_host_has_queue_pairs_run_and_what_is_refused_says_so() {
    let flows: Vec<_> = (0..6_000).map(|flow| (1 + flow % 15, 0, 100)).collect();
    let many = Scenario {
        transport: Transport { name: TransportName::RocePfc, ..Transport::default() },
        ..scenario(fat_tree(4), &flows)
    };
    assert_eq!(run(&many).len(), 6_000);
    for mtu in [255, 4_097, 9_000] {
        let wide = Scenario { mtu, ..scenario(fat_tree(4), &[(0, 1, 1)]) };
        assert!(Run::new(&wide).err().unwrap().contains("256 to 4096"));
    }
}

/// Returns the times at which two simultaneous flows between the same hosts end, in the order of their ids.
fn two_flows_of_a_pair(queue_pairs: QueuePairs) -> [u64; 2] {
    let mut scenario = scenario(fat_tree(4), &[(0, 15, 500_000), (0, 15, 500_000)]);
    scenario.host.queue_pairs = queue_pairs;
    let rows = run(&scenario);
    [0, 1].map(|id| rows.iter().find(|row| row.flow.id == id).unwrap().fct)
}

#[test]
fn flows_of_a_pair_of_hosts_share_a_connection_that_is_kept_in_turn() {
    let [first, second] = two_flows_of_a_pair(QueuePairs::Kept);
    assert!(second as f64 > 1.7 * first as f64, "{first} {second}");
    let [first, second] = two_flows_of_a_pair(QueuePairs::Fresh);
    assert!((second as f64) < 1.1 * first as f64, "{first} {second}");
}

#[test]
fn kept_connections_take_more_flows_than_they_have_slots_of_every_verb() {
    for verb in [Verb::Write, Verb::Read, Verb::Send] {
        let flows: Vec<_> = (0..600).map(|flow| (flow % 3, 3 + flow % 2, 100 + u64::from(flow))).collect();
        let mut scenario = scenario(fat_tree(4), &flows);
        scenario.host.queue_pairs = QueuePairs::Kept;
        let listed = scenario.workloads[0].clone();
        let Traffic::Flows { mut flows } = listed.traffic else { unreachable!("they are listed") };
        flows.iter_mut().for_each(|flow| flow.0.verb = verb);
        scenario.workloads = vec![Workload::listed(flows.into_iter().map(|flow| flow.0).collect())];
        let rows = run(&scenario);
        assert_eq!(rows.len(), 600, "{verb:?}");
        // Flows of one connection end in order.
        for src in 0..3 {
            let ids: Vec<u64> = rows
                .iter()
                .filter(|row| (row.flow.src, row.flow.dst) == (src, 3))
                .map(|row| row.flow.id)
                .collect();
            assert!(ids.is_sorted(), "{verb:?} {ids:?}");
        }
    }
}

#[test]
fn pauses_slow_a_flow_off_the_congested_path_and_irn_does_not() {
    let text = include_str!("../../../../examples/victim.toml");
    let mut scenario = own::parse(Source::new("victim.toml", text)).unwrap().value;
    let slowdown = |name| {
        scenario.transport.name = name;
        let mut run = Run::new(&scenario).unwrap();
        let rows: Vec<Row> = std::iter::from_fn(|| run.advance(Picos::NEVER)).collect();
        rows.iter().find(|row| row.flow.src == 7).unwrap().slowdown()
    };
    let [pauses, irn] = [TransportName::RocePfc, TransportName::Irn].map(slowdown);
    assert!(pauses > 3.0 && irn < 1.2, "{pauses} {irn}");
}

#[test]
fn latencies_of_switches_and_hosts_add_up() {
    let times = [0, 300_000].map(|latency| {
        let mut scenario = scenario(fat_tree(4), &[(0, 15, 1_000)]);
        (scenario.switch.latency, scenario.host.latency) = (Time(latency), Time(latency));
        run(&scenario)[0].fct
    });
    // Five switches and a host in each direction.
    assert_eq!(times[1] - times[0], 2 * 6 * 300_000);
}
