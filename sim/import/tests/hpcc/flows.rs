use crate::{says, text, warned};
use remora_fabric::topology::{Dumbbell, Level};
use remora_import::hpcc::{cdf, flows, trace};
use remora_scenario::format::hpcc::Dialect;
use remora_scenario::workload::distribution::Point;
use remora_scenario::{Flow, Start};

fn starts(flows: &[Flow]) -> Vec<Start> {
    flows.iter().map(|flow| flow.start.clone()).collect()
}

#[test]
fn the_columns_of_the_first_row_tell_the_dialects_apart() {
    let hpcc = flows::parse(text("2\n2 1 3 100 200000000 2\n2 1 3 200 5 2.5"), None).unwrap();
    assert_eq!(hpcc.value.dialect, Dialect::Hpcc);
    let [first, second] = &hpcc.value.flows[..] else { panic!("two flows") };
    let flow = Flow { ports: [10_000, 100], ..Flow::write(0, 2, 1, 200_000_000, 2_000_000_000_000) };
    assert_eq!(*first, flow);
    // Source ports count per pair.
    assert_eq!((second.ports, second.id), ([10_001, 200], 1));
    let conweave = flows::parse(text("2 \n13 47 3 4995 2.000000027\n13 40 2 1 2.000000074\n"), None).unwrap();
    assert_eq!(conweave.value.dialect, Dialect::Conweave);
    let [first, second] = &conweave.value.flows[..] else { panic!("two flows") };
    assert_eq!((first.start.clone(), first.ports), (Start::At(2_000_000_027_000), [10_000, 100]));
    // Source ports count per source, destination ports per destination.
    assert_eq!((second.ports, second.class), ([10_001, 100], 2));
}

#[test]
fn the_flows_of_conweave_get_the_ports_that_its_program_gave_them() {
    let read = flows::parse(text(include_str!("../../../scenario/tests/data/ONE_2MB.txt")), None).unwrap();
    let fct = include_str!("../../../scenario/tests/data/ns3-one-irn-fct.txt");
    for (flow, line) in read.value.flows.iter().zip(fct.lines()) {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let ports = flow.ports.map(u64::from);
        assert_eq!([flow.src.into(), flow.dst.into(), ports[0], ports[1], flow.size], words[..5]);
    }
    // ns-3 reads 2.010000000 as a double and starts 1 ns early; the decimal is exact.
    assert_eq!(read.value.flows[1].start, Start::At(2_010_000_000_000));
}

#[test]
fn stale_digits_in_the_count_do_not_matter() {
    // The digit 2 and a blank, written over an estimate that ended in 5, leave 25.
    let read = flows::parse(text("25 \n0 1 3 9 2.0\n1 0 3 9 2.0\n"), None).unwrap();
    assert_eq!(read.value.flows.len(), 2);
    assert_eq!(warned(&read), ["f:1: the count is 25, and the file has 2 flows; all of them are read"]);
    // Users truncate a file by a smaller count: ns-3 reads that many flows.
    let read = flows::parse(text("1\n0 1 3 9 2.0\n1 0 3 9 2.0\n"), None).unwrap();
    let says = "f:3: there are more flows than the count of 1; the others are ignored, as in ns-3";
    assert_eq!((read.value.flows.len(), warned(&read)), (1, vec![says.to_owned()]));
    let read =
        flows::parse(text(include_str!("../../../scenario/tests/data/T2ms-first-200.txt")), None).unwrap();
    assert_eq!(warned(&read), ["f:1: the count is 19352, and the file has 200 flows; all of them are read"]);
}

#[test]
fn starts_out_of_order_are_sorted_and_stay_in_order_where_they_are_equal() {
    let read = flows::parse(text("3\n0 1 3 7 2.5\n1 0 3 8 2\n2 0 3 9 2.0\n"), None).unwrap();
    let sizes: Vec<u64> = read.value.flows.iter().map(|flow| flow.size).collect();
    assert_eq!(sizes, [8, 9, 7]);
    assert_eq!(starts(&read.value.flows)[2], Start::At(2_500_000_000_000));
    let says = "f:3: this flow starts before the previous one; the flows are sorted";
    assert_eq!(warned(&read), [says]);
}

#[test]
fn sizes_are_64_bits_and_0_is_1_and_prose_behind_the_rows_is_ignored() {
    let read =
        flows::parse(text("2\r\n0 1 3 0 2\r\n0 1 3 9999999999 2\r\nFirst line: flow #"), None).unwrap();
    let sizes: Vec<u64> = read.value.flows.iter().map(|flow| flow.size).collect();
    assert_eq!((sizes, read.warnings.len()), (vec![1, 9_999_999_999], 0));
    assert!(flows::parse(text("0\nprose"), None).unwrap().value.flows.is_empty());
}

#[test]
fn each_mistake_of_a_flow_has_its_line_and_remedy() {
    let link = Level::new(1_000_000_000, 0);
    let topology = Dumbbell { left: 1, right: 1, hosts: link, middle: link }.topology().unwrap();
    for (bad, words) in [
        ("1\n0 2 3 9 2", "f:2: node 2 is not a host of the topology: name a host"),
        ("1\n0 0 3 9 2", "f:2: host 0 sends to itself: name another host"),
        ("1\n0 1 8 9 2", "f:2: the class of a flow is 8: choose at most 7"),
        ("1\n0 1 3 9 late", "f:2: `late` is not a start: write seconds like 2.000000027"),
        ("1\n0 1 3 -9 2", "f:2: `-9` is not the size of a flow: write a whole number"),
        (
            "2\n0 1 3 9 2\n0 1 3",
            "f:3: the file ends where the size of a flow should follow: add it or correct the count",
        ),
        ("2\n0 1 3 9 2\nprose", "f:3: `prose` is not the number of a host: write a whole number"),
    ] {
        assert_eq!(says(flows::parse(text(bad), Some(&topology))), words, "{bad:?}");
    }
    let columns = says(flows::parse(text("1\n0 1 3 9\n"), None));
    assert!(columns.starts_with("f:2: the first flow has 4 columns: write `src dst pg dport size start`"));
}

#[test]
fn a_trace_file_ends_in_prose_and_names_nodes_that_are_not_there() {
    let read = trace::parse(text("4\n0 1 2 3 \n\nFirst line: tracing node #\nNode IDs..."), 3).unwrap();
    assert_eq!(read.value, [0, 1, 2]);
    assert_eq!(warned(&read), ["f:2: there are only 3 nodes; others are left out, as in ns-3"]);
    assert_eq!(
        says(trace::parse(text("2\n0\n"), 3)),
        "f:2: the file ends where a node should follow: add it or correct the count"
    );
}

#[test]
fn a_distribution_rises_from_0_to_100() {
    let read = cdf::parse(text("0 0\n4000 22.93\r\n8000 69.21\n2000000 100")).unwrap();
    assert_eq!(read.value.points()[1], Point { bytes: 4000.0, percent: 22.93 });
    // A third of the way from 0 to 4000 bytes, and 1 byte at least.
    assert_eq!((read.value.size_at(22.93 / 3.0), read.value.size_at(0.0)), (1333, 1));
    assert_eq!((read.value.size_at(100.0), read.value.size_at(69.21)), (2_000_000, 8000));
    for (bad, words) in [
        ("0 0\n10 50\n10 100", "f:3: bytes and percent must both be larger than in the line above"),
        ("0 0\n10 50\n20 50", "f:3: bytes and percent must both be larger than in the line above"),
        ("0 1\n10 100", "f:2: the percentages must range from 0 to 100"),
        ("0 0\n10 99", "f:2: the percentages must range from 0 to 100"),
        ("0 0", "f:1: a distribution has at least two lines"),
        ("0 0\n10", "f:2: the file ends where a line of `bytes percent` should follow"),
        ("0 0\nnan 100", "f:2: `nan` is not a number"),
    ] {
        assert!(says(cdf::parse(text(bad))).starts_with(words), "{bad:?}");
    }
}

/// Regression: flows of ns3-rdma ran with their start times as sizes.
#[test]
fn flows_of_ns3_rdma_are_named() {
    let refused = |row: &str| says(flows::parse(text(&format!("1\n{row}")), None));
    let columns = "the columns are those of ns3-rdma, `src dst pg packets start end`";
    let remedy = "write `src dst pg dport size start`";
    assert_eq!(refused("0 1 3 100 2.0 9.5"), format!("f:2: a flow has the size 2.0: {columns}; {remedy}"));
    assert_eq!(
        refused("0 1 3 10000000 2 9.5"),
        format!(
            "f:2: the destination port of a flow is 10000000: choose at most 65535; if {columns}, {remedy}"
        )
    );
    let whole = flows::parse(text("2\n0 1 3 100 2 9\n2 1 3 300 3 9.5"), None).unwrap();
    assert_eq!(
        warned(&whole),
        [format!("f:2: all sizes are below the seconds of the starts; if {columns}, {remedy}")]
    );
}

#[test]
fn a_byte_order_mark_in_front_of_flows_changes_nothing() {
    let rows = "1\n2 1 3 100 200000000 2";
    let marked = format!("\u{feff}{rows}");
    assert_eq!(flows::parse(text(&marked), None), flows::parse(text(rows), None));
    let cr = rows.replace('\n', "\r");
    assert_eq!(flows::parse(text(&cr), None), flows::parse(text(rows), None));
}
