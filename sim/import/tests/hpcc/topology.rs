use crate::{says, text, warned};
use remora_fabric::topology::NodeKind;
use remora_import::hpcc::topology::{parse, write};

const FAT: &str = include_str!("../../../scenario/tests/data/fat_k8_100G_OS2_n128_OS1.txt");
const LEAF: &str = include_str!("../../../scenario/tests/data/leaf_spine_128_100G_OS2.txt");

#[test]
fn the_topologies_of_conweave_are_read_and_their_prose_is_ignored() {
    let fat = parse(text(FAT)).unwrap();
    assert!(fat.warnings.is_empty(), "{:?}", fat.warnings);
    assert_eq!((fat.value.nodes.len(), fat.value.hosts().count(), fat.value.links.len()), (208, 128, 384));
    // The same links, in the same order, as in the table that was derived from the file.
    let table = include_str!("../../../scenario/tests/data/topo-fat-k8-128.csv").lines().skip(1);
    for (link, row) in fat.value.links.iter().zip(table) {
        let row: Vec<u64> = row.split(',').map(|word| word.parse().unwrap()).collect();
        assert_eq!([link.a.into(), link.b.into(), link.rate / 1_000_000_000, link.delay / 1000], row[..]);
    }
    let leaf = parse(text(LEAF)).unwrap();
    assert!(leaf.warnings.is_empty(), "{:?}", leaf.warnings);
    assert_eq!((leaf.value.nodes.len(), leaf.value.switches().count()), (144, 16));
}

#[test]
fn switches_stand_anywhere_among_the_nodes_and_lines_end_as_they_like() {
    let read = parse(text("3 1 2\r\n1\r\n0 1 100Gbps 0.001ms 0\r\n2 1 50Mb/s 2 0.25")).unwrap();
    assert_eq!(read.value.nodes, [NodeKind::Host, NodeKind::Switch, NodeKind::Host]);
    let [first, second] = read.value.links[..] else { panic!("two links") };
    assert_eq!((first.rate, first.delay, first.loss), (100_000_000_000, 1_000_000, 0.0));
    // A delay without a unit is in seconds.
    assert_eq!((second.rate, second.delay, second.loss), (50_000_000, 2_000_000_000_000, 0.25));
    assert_eq!(parse(text(&write(&read.value))).unwrap().value, read.value);
}

#[test]
fn each_mistake_has_its_line_and_remedy() {
    for (bad, words) in [
        (
            "3 1 2\n1\n0 1 1Gbps 1ns 0\n",
            "f:3: the file ends where a link should follow: add it or correct the count",
        ),
        ("2 1 1\n1\n0 7 1Gbps 1ns 0", "f:3: the number of a node is 7: choose at most 1"),
        ("2 1 1\n9\n0 1 1Gbps 1ns 0", "f:2: the number of a switch is 9: choose at most 1"),
        ("2 1 1\n1\n0 1 fast 1ns 0", "f:3: `fast` is not a rate: write one like 100Gbps"),
        ("2 1 1\n1\n0 1 1Gbps soon 0", "f:3: `soon` is not a delay: write one like 1000ns"),
        ("2 1 1\n1\n0 1 1Gbps 1ns 2", "f:3: `2` is not an error rate: write one from 0 to 1"),
        ("2 1 1\n1\n0 1 0bps 1ns 0", "f:3: link 0 has 0 bit/s: choose a rate from 1000 to 8000000000000"),
        ("3 1 1\n1\n0 1 1Gbps 1ns 0", "f: host 2 has no link: add one, or list it as a switch"),
        ("", "f:1: the file ends where the count of nodes should follow: add it or correct the count"),
        ("999999999 1 1", "f:1: the count of nodes is 999999999: choose at most 100000"),
        ("0 0 0", "f: no node is a host: list fewer nodes as switches"),
    ] {
        assert_eq!(says(parse(text(bad))), words, "{bad:?}");
    }
}

#[test]
fn links_beyond_the_count_are_named() {
    let read = parse(text("2 1 1\n1\n0 1 1Gbps 1ns 0\n0 1 1Gbps 1ns 0\n")).unwrap();
    assert_eq!(read.value.links.len(), 1);
    assert_eq!(
        warned(&read),
        ["f:4: there are more links than the count of 1; the others are ignored, as in ns-3"]
    );
}

/// Regression: topologies of PowerTCP and SimAI were rejected because of a wrong switch.
#[test]
fn first_lines_of_powertcp_reverie_and_simai_are_read_and_named() {
    const LINKS: &str = "0 2 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 3 100Gbps 1us 0\n";
    let read = |first: &str| parse(text(&format!("{first}\n2 3\n{LINKS}"))).unwrap();
    let plain = read("4 2 3");
    assert_eq!(plain.warnings, []);
    for (first, program) in
        [("4 2 2 3", "PowerTCP's"), ("4 2 2 3 25 100", "Reverie's"), ("4 2 1 1 3 H100", "SimAI's")]
    {
        let other = read(first);
        assert_eq!(other.value, plain.value, "{first}");
        assert!(warned(&other)[0].starts_with(&format!("f:1: the first line is {program}")), "{first}");
    }
    // HPCC's format with its only switch in the first line is not another dialect.
    let one = parse(text("3 1 2 2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n")).unwrap();
    assert_eq!((one.warnings.len(), one.value.links.len()), (0, 2));
}

#[test]
fn a_byte_order_mark_and_lines_that_end_with_carriage_returns_change_nothing() {
    const PLAIN: &str = "3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n";
    let marked = format!("\u{feff}{PLAIN}");
    let expected = parse(text(PLAIN));
    assert_eq!(parse(text(&marked)), expected);
    assert_eq!(parse(text(&PLAIN.replace('\n', "\r"))), expected);
    assert_eq!(says(parse(text("3 1 2\r2\r0 2 fast"))), "f:3: `fast` is not a rate: write one like 100Gbps");
}
