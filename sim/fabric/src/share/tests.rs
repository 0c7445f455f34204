use super::*;
use remora_transport::congestion::Algorithm;

const MS: u64 = 1_000_000;

/// Jain's index and the sum of the rates in the last quarter, and the longest queue in the second half.
fn end(scenario: &Scenario, outcome: &Outcome) -> (f64, f64, usize) {
    let rates = outcome.rates(scenario.apart_ns + scenario.last_ns / 4 * 3);
    let queue = outcome.queue(scenario.apart_ns + scenario.last_ns / 2);
    (jain(&rates), rates.iter().sum(), queue)
}

#[test]
fn without_control_a_queue_stands_in_the_switch() {
    let scenario = Scenario::two_flows(Algorithm::None, 1);
    let (_, sum, queue) = end(&scenario, &run(&scenario));
    assert!(sum > 0.95 * RATE as f64);
    assert!(queue > 1 << 20, "{queue}");
}

#[test]
fn two_flows_with_dcqcn_come_to_a_fair_share_and_the_queue_stays_below_k_max() {
    for (seed, irn) in [(1, None), (2, None), (3, Some(irn::Settings::default()))] {
        let scenario = Scenario { irn, ..Scenario::two_flows(Algorithm::Dcqcn, seed) };
        let outcome = run(&scenario);
        let (jain, sum, queue) = end(&scenario, &outcome);
        assert!(jain >= 0.95, "{jain}, seed {seed}");
        assert!(sum > 0.85 * RATE as f64, "{sum}, seed {seed}");
        assert!(queue < Marks::default().k_max, "{queue}, seed {seed}");
        let counters = &outcome.counters;
        assert!(outcome.marked > 0 && outcome.dropped == 0);
        assert_eq!(counters.np_cnp_sent, counters.rp_cnp_handled);
        assert!(counters.np_ecn_marked_roce_packets >= counters.np_cnp_sent && counters.np_cnp_sent > 0);
    }
}

#[test]
fn two_flows_with_timely_come_to_a_fair_share_and_the_queue_shrinks() {
    for (seed, irn) in [(1, None), (2, None), (3, Some(irn::Settings::default()))] {
        let scenario = Scenario { irn, ..Scenario::two_flows(Algorithm::Timely, seed) };
        let outcome = run(&scenario);
        let (jain, sum, queue) = end(&scenario, &outcome);
        assert!(jain >= 0.95, "{jain}, seed {seed}");
        assert!(sum > 0.85 * RATE as f64, "{sum}, seed {seed}");
        // 100 us of the link: between T_low and T_high.
        assert!(queue < 500_000, "{queue}, seed {seed}");
        assert_eq!((outcome.marked, outcome.dropped), (0, 0), "nothing of TIMELY's may be marked");
    }
}

#[test]
fn eight_flows_with_dcqcn_share_too() {
    let scenario =
        Scenario { flows: 8, apart_ns: MS, last_ns: 60 * MS, ..Scenario::two_flows(Algorithm::Dcqcn, 5) };
    let rates = run(&scenario).rates(scenario.apart_ns * 7 + scenario.last_ns / 2);
    assert!(jain(&rates) >= 0.95, "{rates:?}");
}

#[test]
fn a_scenario_run_twice_is_the_same() {
    let scenario = |seed| Scenario { last_ns: 4 * MS, ..Scenario::two_flows(Algorithm::Dcqcn, seed) };
    assert_eq!(run(&scenario(1)), run(&scenario(1)));
    assert_ne!(run(&scenario(1)).trace, run(&scenario(2)).trace);
}

#[test]
fn jains_index_is_one_for_equals_and_one_nth_for_one_who_has_all() {
    assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert_eq!(jain(&[]), 1.0);
    assert!((jain(&[1.6, 1.0]) - 0.9494).abs() < 1e-4);
}
