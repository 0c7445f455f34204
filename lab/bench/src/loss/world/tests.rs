use super::*;

const IRN: Settings = Settings {
    cap: 110,
    bitmap: 128,
    bdp_fc: true,
    sacked_leave: false,
    eager: false,
    recovery: Recovery::Selective,
    rto_low_ns: 100_000,
    rto_high_ns: 320_000,
    few: 3,
    timers: remora_verbs::irn::Timers::ByPort,
    retransmit_delay_ns: 0,
};

fn goodput(irn: Option<Settings>, loss: f64) -> f64 {
    run(&exchange_scenario(irn, loss, 6_000, 7)).unwrap().goodput()
}

#[test]
fn the_path_holds_a_hundred_packets_and_the_cap_is_the_papers() {
    assert_eq!(IRN, Settings::default());
    // A window as long as the path keeps the path busy, and one of half its length does not.
    let window = |cap| goodput(Some(Settings { cap, ..IRN }), 0.0);
    let full = window(110);
    let half = window(50);
    assert!((0.40..0.55).contains(&(half / full)), "{half} of {full}");
    // A packet of 1122 bytes has 1024 bytes of payload, and acknowledgements of at least 84 bytes share the
    // link.
    let most = 2.0 * RATE as f64 * 1024.0 / (1122.0 + 84.0);
    assert!(full > 0.95 * most && full < most, "{full} of {most}");
}

/// Requirement: at 1 % loss IRN keeps 0.6 of its lossless goodput and has 1.25 times that of go-back-N; at 5
/// % it has twice that of go-back-N.
#[test]
fn irn_keeps_most_of_its_goodput_at_one_percent_and_beats_go_back_n() {
    let [lossless, one, five] = [0.0, 0.01, 0.05].map(|loss| goodput(Some(IRN), loss));
    let [back_one, back_five] = [0.01, 0.05].map(|loss| goodput(None, loss));
    assert!(one >= 0.6 * lossless, "{one} of {lossless}");
    assert!(one >= 1.25 * back_one, "{one} and {back_one}");
    assert!(five >= 2.0 * back_five, "{five} and {back_five}");
}

#[test]
fn irn_without_sack_state_or_with_go_back_n_is_worse() {
    for loss in [0.01, 0.05] {
        let whole = goodput(Some(IRN), loss);
        for recovery in [Recovery::HeadOnly, Recovery::GoBackN] {
            let part = goodput(Some(Settings { recovery, ..IRN }), loss);
            assert!(part < whole, "{recovery:?} at {loss}: {part}, IRN {whole}");
        }
    }
}

#[test]
fn without_bdp_fc_many_senders_lose_more_and_finish_later() {
    let run = |bdp_fc| run(&incast_scenario(Settings { bdp_fc, ..IRN }, 16, 1_024, 3)).unwrap();
    let with = run(true);
    let without = run(false);
    assert!(with.lost > 0, "the buffer holds the packets of all senders");
    assert!(without.lost > with.lost, "{} and {} lost", without.lost, with.lost);
    assert!(without.took > with.took, "{} and {} ps", without.took, with.took);
}

#[test]
fn an_experiment_run_twice_is_the_same() {
    let exchange = |seed| run(&exchange_scenario(Some(IRN), 0.02, 1_000, seed)).unwrap();
    assert_eq!(exchange(5), exchange(5));
    assert_ne!(exchange(5), exchange(6));
    let incast = |seed| run(&incast_scenario(IRN, 4, 500, seed)).unwrap();
    assert_eq!(incast(5), incast(5));
    assert_ne!(incast(5), incast(6));
}
