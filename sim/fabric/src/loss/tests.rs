use super::*;
use remora_transport::rc::irn::Recovery;

const IRN: Machine = Machine::Irn(irn::Settings {
    cap: 110,
    bitmap: 128,
    bdp_fc: true,
    sacked_leave: false,
    eager: false,
    recovery: Recovery::Selective,
    rto_low_ns: 100_000,
    rto_high_ns: 320_000,
    few: 3,
    timers: irn::Timers::ByPort,
    retransmit_delay_ns: 0,
});

fn with(recovery: Recovery) -> Machine {
    Machine::Irn(irn::Settings { recovery, ..irn::Settings::default() })
}

fn goodput(machine: &Machine, loss: f64) -> f64 {
    exchange(machine, loss, 6_000, 7).goodput()
}

#[test]
fn the_path_holds_a_hundred_packets_and_the_cap_is_the_papers() {
    assert_eq!(IRN, Machine::Irn(irn::Settings::default()));
    // A window of exactly the path keeps it busy, and one of half does not.
    let window = |cap| goodput(&Machine::Irn(irn::Settings { cap, ..irn::Settings::default() }), 0.0);
    let (full, half) = (window(110), window(50));
    assert!((0.40..0.55).contains(&(half / full)), "{half} of {full}");
    // 1024 of 1084 bytes are payload, and acknowledgements share the link.
    assert!(full > 2.0 * 0.85 * RATE as f64 && full < 2.0 * RATE as f64, "{full}");
}

#[test]
fn irn_keeps_most_of_its_goodput_at_one_percent_and_beats_go_back_n() {
    let [lossless, one, five] = [0.0, 0.01, 0.05].map(|loss| goodput(&IRN, loss));
    let [back_one, back_five] = [0.01, 0.05].map(|loss| goodput(&Machine::GoBackN, loss));
    assert!(one >= 0.6 * lossless, "{one} of {lossless}");
    assert!(one >= 1.25 * back_one, "{one} and {back_one}");
    assert!(five >= 2.0 * back_five, "{five} and {back_five}");
}

#[test]
fn irn_without_sack_state_or_with_go_back_n_is_worse() {
    for loss in [0.01, 0.05] {
        let whole = goodput(&IRN, loss);
        for recovery in [Recovery::HeadOnly, Recovery::GoBackN] {
            let part = goodput(&with(recovery), loss);
            assert!(part < whole, "{recovery:?} at {loss}: {part}, IRN {whole}");
        }
    }
}

#[test]
fn a_recovery_that_ends_though_a_nack_was_lost_keeps_more_goodput() {
    for loss in [0.001, 0.01] {
        let [eager, waits] = [true, false].map(|eager| {
            let machine = Machine::Irn(irn::Settings { eager, ..irn::Settings::default() });
            (0..4).map(|seed| exchange(&machine, loss, 10_000, seed).goodput()).sum::<f64>()
        });
        println!("at {loss}: {:.4} of what the authors' own code keeps", waits / eager);
        assert!(waits > eager, "at {loss}: {waits} and {eager}");
    }
}

#[test]
fn without_bdp_fc_many_senders_lose_more_and_finish_later() {
    let run = |bdp_fc| {
        let settings = irn::Settings { bdp_fc, bitmap: 2_048, ..irn::Settings::default() };
        incast(&Machine::Irn(settings), 16, 1_024, 3)
    };
    let (with, without) = (run(true), run(false));
    assert!(with.lost > 0, "the buffer holds what all of them send");
    assert!(without.lost > with.lost, "{} and {} lost", without.lost, with.lost);
    assert!(without.took_ns > with.took_ns, "{} and {} ns", without.took_ns, with.took_ns);
}

#[test]
fn an_experiment_run_twice_is_the_same() {
    assert_eq!(exchange(&IRN, 0.02, 1_000, 5), exchange(&IRN, 0.02, 1_000, 5));
    assert_ne!(exchange(&IRN, 0.02, 1_000, 5).trace, exchange(&IRN, 0.02, 1_000, 6).trace);
    assert_eq!(incast(&IRN, 4, 500, 5), incast(&IRN, 4, 500, 5));
}
