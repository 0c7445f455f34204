use super::*;
use crate::setup;

#[test]
fn the_paper_s_pauses_begin_at_220_kb() {
    let scenario = load(&Setting::default(), Contender::RocePfc, ControlName::None);
    let topology = scenario.topology().unwrap();
    assert_eq!(topology.hosts().count(), 54);
    let config = setup::simulation(&scenario, &topology).unwrap();
    let remora_fabric::network::BufferConfig::Voq { limit, pause: Some(pause) } = config.network.buffer
    else {
        panic!("{:?}", config.network.buffer);
    };
    // 20 KB are in flight at 40 Gb/s and 2 µs, and further frames cannot be stopped any more.
    assert_eq!(limit, 240_000);
    assert!((214_000..=220_000).contains(&pause.xoff), "{pause:?}");
}

#[test]
fn every_contender_and_control_runs_and_all_metrics_are_above_nothing() {
    let duration = Time(100 * Picos::MICROSECOND);
    let setting = Setting { k: 4, duration, ..Setting::default() };
    for contender in Contender::ALL {
        let outcome = measure(&load(&setting, contender, ControlName::Dcqcn), |_, _| true).unwrap();
        let metrics = outcome.metrics(Picos(0), 0).unwrap();
        assert!(
            outcome.unfinished == 0 && outcome.findings.is_empty(),
            "{contender:?} {:?}",
            outcome.findings
        );
        assert!(metrics.slowdown >= 1.0 && metrics.p99 >= metrics.fct && metrics.fct > 1e-6, "{metrics:?}");
    }
}

#[test]
fn an_incast_s_flows_have_the_lowest_ids() {
    let setting = Setting { duration: Time(50 * Picos::MICROSECOND), ..Setting::default() };
    let scenario = incast(&setting, Contender::Irn, ControlName::None, 10, true);
    let flows = scenario.flows(&scenario.topology().unwrap()).unwrap();
    let incast: Vec<_> = flows.iter().filter(|flow| flow.id < 10).collect();
    assert!(incast.len() == 10 && incast.iter().all(|flow| flow.size == 15_000_000));
    assert!(flows.len() > 20);
}

#[test]
fn an_interval_is_student_s() {
    let (mean, half) = interval(&[1.0, 2.0, 3.0]);
    assert_eq!(mean, 2.0);
    assert!((half - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9, "{half}");
    assert_eq!(interval(&[7.0]), (7.0, 0.0));
}

#[test]
fn the_list_of_signs_names_comparisons_that_exist_and_reasons() {
    let _ = Signs::known();
    assert!(Signs::parse("[[exception]]\nfigure = 1\n").is_err());
    let text = |reason| {
        format!(
            "[[exception]]\nfigure = 1\nwho = \"irn\"\nto = \"roce+pfc\"\ncontrol = \"none\"\nmetric = \"p99 fct\"\nreason = \"{reason}\"\n"
        )
    };
    assert!(Signs::parse(&text("")).unwrap_err().contains("no reason"));
    let signs = Signs::parse(&text("why")).unwrap();
    assert_eq!(signs.reason(1, ["irn", "roce+pfc"], "none", "p99 fct"), Some("why"));
    assert_eq!(signs.reason(2, ["irn", "roce+pfc"], "none", "p99 fct"), None);
}

#[test]
fn a_comparison_has_its_own_controls_or_the_row_s() {
    let resilient = COMPARISONS.iter().find(|row| row.figure == 10).unwrap();
    assert_eq!(
        resilient.sides(ControlName::Timely),
        [(Contender::Irn, ControlName::None), (Contender::Roce, ControlName::Dcqcn)]
    );
    let plain = COMPARISONS[0].sides(ControlName::Timely);
    assert_eq!(plain, [(Contender::Irn, ControlName::Timely), (Contender::RocePfc, ControlName::Timely)]);
}
