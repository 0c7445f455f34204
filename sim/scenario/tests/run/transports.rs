//! Many flows: what each transport does with congestion and loss.

use super::*;
use remora_fabric::network::Finding;
use remora_scenario::scenario::{Control, ControlName, Failure, Host, Transport, TransportName};

/// Sixteen hosts send 200 KB to one.
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
        // A pause frame that is lost makes a switch lose packets of a lossless class: that is found.
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
    // Host 0's own link.
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

#[test]
fn latencies_of_switches_and_hosts_add_up() {
    let times = [0, 300_000].map(|latency| {
        let mut scenario = scenario(fat_tree(4), &[(0, 15, 1_000)]);
        (scenario.switch.latency, scenario.host.latency) = (Time(latency), Time(latency));
        run(&scenario)[0].fct
    });
    // Five switches and a host, each way.
    assert_eq!(times[1] - times[0], 2 * 6 * 300_000);
}
