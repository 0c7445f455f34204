use super::*;

const MS: u64 = 1_000_000;
const CASES: [(u64, TransportName); 3] =
    [(1, TransportName::Roce), (2, TransportName::Roce), (3, TransportName::Irn)];

/// Returns Jain's index and the sum of the rates in the last quarter, and the longest queue in the second
/// half.
fn end(bottleneck: &Bottleneck, outcome: &Outcome) -> (f64, f64, u64) {
    let rates = outcome.rates(bottleneck.apart_ns + bottleneck.last_ns / 4 * 3);
    let queue = outcome.queue(bottleneck.apart_ns + bottleneck.last_ns / 2);
    (jain(&rates), rates.iter().sum(), queue)
}

#[test]
fn without_control_a_queue_stands_in_the_switch() {
    let bottleneck = Bottleneck::of_two(ControlName::None, 1);
    let (_, sum, queue) = end(&bottleneck, &bottleneck.run().unwrap());
    // A packet has 1122 bytes on the link, of which 1056 are from BTH to ICRC.
    assert!(sum > 0.99 * RATE as f64 * 1056.0 / 1122.0, "{sum}");
    assert!(queue > 1 << 20, "{queue}");
}

#[test]
fn two_flows_with_dcqcn_come_to_a_fair_share_and_the_queue_stays_below_k_max() {
    for (seed, transport) in CASES {
        let bottleneck = Bottleneck { transport, ..Bottleneck::of_two(ControlName::Dcqcn, seed) };
        let outcome = bottleneck.run().unwrap();
        let (jain, sum, queue) = end(&bottleneck, &outcome);
        assert!(jain >= 0.95, "{jain}, seed {seed}");
        assert!(sum > 0.85 * RATE as f64, "{sum}, seed {seed}");
        assert!(queue < K_MAX.0, "{queue}, seed {seed}");
        let counters = &outcome.counters;
        assert!(outcome.marked > 0 && outcome.lost == 0);
        assert_eq!(counters.np_cnp_sent, counters.rp_cnp_handled);
        assert!(counters.np_ecn_marked_roce_packets >= counters.np_cnp_sent && counters.np_cnp_sent > 0);
    }
}

#[test]
fn two_flows_with_patched_timely_come_to_a_fair_share_and_the_queue_shrinks() {
    for (seed, transport) in CASES {
        let bottleneck = Bottleneck { transport, ..Bottleneck::of_two(ControlName::TimelyPatched, seed) };
        let outcome = bottleneck.run().unwrap();
        let (jain, sum, queue) = end(&bottleneck, &outcome);
        assert!(jain >= 0.95, "{jain}, seed {seed}");
        assert!(sum > 0.85 * RATE as f64, "{sum}, seed {seed}");
        // These bytes take the link 100 us, which lies between T_low and T_high.
        assert!(queue < 500_000, "{queue}, seed {seed}");
        assert_eq!((outcome.marked, outcome.lost), (0, 0), "no packet of TIMELY may be marked");
    }
}

#[test]
fn eight_flows_with_dcqcn_share_too() {
    let two = Bottleneck::of_two(ControlName::Dcqcn, 5);
    let bottleneck = Bottleneck { flows: 8, apart_ns: MS, last_ns: 60 * MS, ..two };
    let rates = bottleneck.run().unwrap().rates(bottleneck.apart_ns * 7 + bottleneck.last_ns / 2);
    assert!(jain(&rates) >= 0.95, "{rates:?}");
}

#[test]
fn a_run_is_the_same_twice() {
    let run = |seed| {
        let two = Bottleneck::of_two(ControlName::Dcqcn, seed);
        Bottleneck { last_ns: 4 * MS, ..two }.run().unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn jains_index_is_one_for_equals_and_one_nth_for_one_who_has_all() {
    assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert_eq!(jain(&[]), 1.0);
    assert!((jain(&[1.6, 1.0]) - 0.9494).abs() < 1e-4);
}
