use remora_import::htsim::options::{Options, parse};
use remora_import::htsim::output::{finished, microseconds};
use remora_scenario::scenario::ControlName;

fn line(words: &str) -> Result<Options, String> {
    parse(&words.split(' ').collect::<Vec<_>>())
}

#[test]
fn the_line_of_the_reference_runs_is_read() {
    let options = line(
        "htsim_roce -nodes 128 -tm FILE.cm -linkspeed 100000 -mtu 1000 -hop_latency 1 -strat ecmp_host -paths 128 \
         -queue_type lossless_input -q 10000 -pfc_thresholds 49 61 -end 100000 -seed 1",
    )
    .unwrap();
    let expected = Options {
        nodes: Some(128),
        matrix: Some("FILE.cm".into()),
        rate: 100_000_000_000,
        mtu: 1000,
        queue: 10_000,
        thresholds: [49, 61],
        end: 100_000_000_000,
        seed: 1,
        ignored: vec!["-paths".into()],
        ..Options::default()
    };
    assert_eq!(options, expected);
    assert_eq!((options.hop_latency, options.lossless, options.sprays), (1_000_000, true, false));
    let other = line("-hop_latency 0.5 -strat ecmp_rr -queue_type random --control dcqcn").unwrap();
    assert_eq!((other.hop_latency, other.lossless, other.sprays), (500_000, false, true));
    assert_eq!((other.control, other.mtu), (ControlName::Dcqcn, 9000));
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    for (words, says) in [
        ("./htsim_ndp -nodes 2", "htsim_ndp runs NDP, which is not modelled: give its options to htsim_roce"),
        ("htsim_swift", "htsim_swift runs Swift, which is not modelled"),
        ("htsim_eqds", "htsim_eqds runs EQDS, which is not modelled"),
        ("htsim_uec", "htsim_uec runs NSCC, which is not modelled"),
        ("-queue_type composite", "-queue_type composite trims packets as NDP does, which is not modelled"),
        (
            "-strat ecmp_ar",
            "-strat ecmp_ar routes adaptively, which is not modelled: write ecmp_host or ecmp_rr",
        ),
        ("-strat pull", "-strat pull is NDP's, which is not modelled"),
        ("-mtu 9001", "-mtu is 9001: choose at most 9000"),
        ("-end", "-end has no value: add us"),
        ("-pfc_thresholds 9 8", "-pfc_thresholds 9 8: write the lower one first"),
        ("-pfc_thresholds 9", "-pfc_thresholds is ``: write a whole number"),
        ("-colour 1", "the option `-colour` is not known: remove it"),
        ("--control swift", "no control is called `swift`: choose one of none, dcqcn, dcqcn-ns3, timely"),
        ("-tiers 1", "-tiers is 1: write 2 or 3"),
    ] {
        let message = line(words).unwrap_err();
        assert!(message.starts_with(says) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_flow_that_ends_is_htsims_line_with_six_digits() {
    assert_eq!(
        finished(0, 64, 1, 182_696_000, 2_000_000),
        "Flow Roce_0_64 1 finished at 182.696 total bytes 2000000\n"
    );
    for (ps, text) in [
        (0, "0"),
        (1, "1e-06"),
        (999_999, "0.999999"),
        (100_000_000, "100"),
        (5_457_970_400, "5457.97"),
        (5_457_975_000, "5457.98"),
        (999_999_500_000, "1e+06"),
        (1_234_567_000_000, "1.23457e+06"),
        (12_500, "0.0125"),
        (123, "0.000123"),
        (12, "1.2e-05"),
        (u64::MAX, "1.84467e+13"),
    ] {
        assert_eq!(microseconds(ps), text, "{ps} ps");
    }
}
