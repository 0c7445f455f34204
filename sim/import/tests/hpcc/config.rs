use crate::{says, text, warned};
use remora_import::hpcc::config::{Config, ONE, Value};
use remora_scenario::units::Rate;

#[test]
fn the_configurations_of_conweave_are_read_without_a_word_but_one() {
    for file in [
        include_str!("../../../scenario/tests/data/ns3-T2ms-irn-config.txt"),
        include_str!("../../../scenario/tests/data/ns3-I32-pfc-config.txt"),
    ] {
        let read = Config::parse(text(file)).unwrap();
        // Integers written as decimals: the program reads the part before the point.
        let says = ["f:13: QLEN_MON_START is a whole number; 2.0 is read as 2, as in ns-3", "QLEN_MON_END"];
        let warned = warned(&read);
        assert!(warned.len() == 2 && warned[0] == says[0] && warned[1].contains(says[1]), "{warned:?}");
        assert_eq!((read.value.integer("QLEN_MON_START", 0), read.value.integer("BUFFER_SIZE", 0)), (2, 9));
        assert_eq!(read.value.map("PMAX_MAP").get(&100_000_000_000), Some(&(ONE / 5)));
        assert_eq!(read.value.rate("RATE_AI"), Some(Rate(40_000_000)));
        assert_eq!(read.value.text("FCT_OUTPUT_FILE"), Some("fct.txt"));
    }
}

#[test]
fn prose_in_braces_is_skipped_even_where_it_names_keys() {
    let doc = "CC_MODE 3 {Specifying different CC. 1: DCQCN, 3: HPCC, CC_MODE 7 }\n\
               TRACE_FILE mix/trace.txt {nodes to monitor, dumped to TRACE_OUTPUT_FILE}\nHAS_WIN 1 {one}";
    let read = Config::parse(text(doc)).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    assert_eq!((read.value.integer("CC_MODE", 0), read.value.integer("HAS_WIN", 0)), (3, 1));
    assert_eq!(read.value.text("TRACE_FILE"), Some("mix/trace.txt"));
    assert_eq!(Config::parse(text("CC_MODE 1 {no end")).unwrap().value.integer("CC_MODE", 0), 1);
}

#[test]
fn the_later_value_counts_and_unknown_keys_are_named_once() {
    let read =
        Config::parse(text("CC_MODE 3\nFOO_BAR 1 2\nCC_MODE 7\r\nFOO_BAR 3\nRATE_BOUND 1 9\n")).unwrap();
    assert_eq!(read.value.integer("CC_MODE", 0), 7);
    let expected =
        ["f:2: the key FOO_BAR is not known; it is skipped", "f:5: `9` is not a key; it is skipped"];
    assert_eq!(warned(&read), expected);
}

#[test]
fn a_map_has_as_many_pairs_as_it_says() {
    let read = Config::parse(text("KMAX_MAP 2 25000000000 400 50000000000 800 CC_MODE 1")).unwrap();
    let map = read.value.map("KMAX_MAP");
    assert_eq!(
        map.into_iter().collect::<Vec<_>>(),
        [(25_000_000_000, 400 * ONE), (50_000_000_000, 800 * ONE)]
    );
    assert_eq!(read.value.get("CC_MODE"), Some(&Value::Integer(1)));
}

#[test]
fn each_mistake_of_a_value_has_its_line_and_remedy() {
    for (bad, words) in [
        (
            "CC_MODE",
            "f:1: the file ends where the value of CC_MODE should follow: add it or correct the count",
        ),
        ("CC_MODE one", "f:1: CC_MODE is `one`: write a whole number"),
        ("\nRATE_AI fast", "f:2: RATE_AI is `fast`: write a rate like 100Mb/s"),
        ("EWMA_GAIN x", "f:1: the value of EWMA_GAIN is `x`: write a number like 0.5"),
        (
            "KMIN_MAP 2 5 5",
            "f:1: the file ends where a rate of KMIN_MAP should follow: add it or correct the count",
        ),
        ("KMIN_MAP 2000", "f:1: the value of KMIN_MAP is 2000: choose at most 1000"),
    ] {
        assert_eq!(says(Config::parse(text(bad))), words, "{bad:?}");
    }
}

/// SimAI's and astra-sim's configurations have such a stop time.
///
/// Regression: a stop time of 4e13 s was rejected as not a number.
#[test]
fn numbers_that_are_too_large_mean_without_an_end() {
    let text = text("\u{feff}SIMULATOR_STOP_TIME 40000000000000.00\nQLEN_MON_END 99999999999999999999\n");
    let read = Config::parse(text).unwrap();
    assert_eq!(read.value.decimal("SIMULATOR_STOP_TIME", 0), u64::MAX);
    assert_eq!(read.value.integer("QLEN_MON_END", 0), u64::MAX);
    let says: Vec<_> = read.warnings.iter().map(ToString::to_string).collect();
    let expected = "f:2: QLEN_MON_END is 99999999999999999999; it is read as 18446744073709551615";
    assert_eq!(says, [expected]);
}
