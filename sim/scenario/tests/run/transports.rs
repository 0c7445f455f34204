//! Many flows: what each transport does with congestion and loss.

use super::*;
use remora_fabric::network::Finding;
use remora_scenario::scenario::{Control, ControlName, Host, Transport, TransportName};

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
