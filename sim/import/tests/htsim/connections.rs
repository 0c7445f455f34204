use std::sync::Arc;

use crate::{says, text, warned};
use remora_fabric::topology::Tier;
use remora_import::htsim::connections::{
    Connection, ConnectionStart, ENDLESS, FailedLink, TriggerKind, parse,
};
use remora_scenario::{After, Dependency, End, Flow, Start};

const INCAST: &str = include_str!("../../../scenario/tests/data/inc_128_32_2000000.cm");

const FLOW: Connection = Connection {
    src: 0,
    dst: 1,
    id: Some(1),
    start: ConnectionStart::At(0),
    size: 9,
    send_done: None,
    recv_done: None,
    priority: None,
};

#[test]
fn the_matrices_of_htsim_are_read() {
    let read = parse(text(INCAST)).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    assert_eq!((read.value.nodes, read.value.flows.len()), (128, 32));
    assert_eq!(read.value.flows[0], Connection { src: 127, dst: 0, size: 2_000_000, ..FLOW });
    assert_eq!(read.value.write(), INCAST);
    let permutation = parse(text(include_str!("../../../scenario/tests/data/perm_128_2000000.cm"))).unwrap();
    assert_eq!(permutation.value.flows.len(), 128);
}

#[test]
fn a_start_is_in_ps_and_stays_exact_beyond_a_float() {
    let cm = "# made by hand\nNodes 2\nConnections 2\nSeed 7\n0->1 start 123456789012 size 9\n1->0 start 1.5e3 size 9 prio 4";
    let read = parse(text(cm)).unwrap();
    let starts: Vec<_> = read.value.flows.iter().map(|flow| flow.start).collect();
    // As a 32-bit float, 123456789012 would be 123456790528.
    assert_eq!(starts, [ConnectionStart::At(123_456_789_012), ConnectionStart::At(1500)]);
    assert_eq!(read.value.flows[1].priority, Some(4));
    // Flows without an id get numbers above all ids.
    let ids: Vec<u64> = read.value.flows(&mut Vec::new()).iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(warned(&read), ["f:4: `Seed` is not a count that a matrix has; the line is skipped"]);
}

const TRIGGERED: &str = "Nodes 4\nConnections 5\nTriggers 3\nFailures 1\n\
    0->1 id 1 start 0 size 9 send_done_trigger 1 recv_done_trigger 2\n\
    1->2 id 2 start 0 size 9 send_done_trigger 2\n\
    2->3 id 3 trigger 1 size 9\n\
    3->0 id 4 trigger 2 size 9\n\
    3->1 id 5 trigger 3 size 9\n\
    trigger id 1 oneshot\n\
    trigger id 2 barrier count 2\n\
    trigger id 3 multishot\n\
    failure switch_type AGG switch_id 1 link_id 0\n";

#[test]
fn triggers_become_dependencies() {
    let read = parse(text(TRIGGERED)).unwrap();
    assert_eq!(read.value.triggers[1].kind, TriggerKind::Barrier(2));
    assert_eq!(read.value.failures, [FailedLink { tier: Tier::Agg, switch: 1, link: 0 }]);
    let mut never = Vec::new();
    let flows = read.value.flows(&mut never);
    // Nothing fires trigger 3.
    assert_eq!((flows.len(), never), (4, vec![5]));
    let on_end = |flow, end| Dependency { flow, end };
    let after = |flows, count| Start::After(Arc::new(After { flows, count, delay: 0 }));
    assert_eq!(
        flows[2],
        Flow { start: after(vec![on_end(1, End::Acknowledged)], 1), ..Flow::write(3, 2, 3, 9, 0) }
    );
    assert_eq!(flows[3].start, after(vec![on_end(1, End::Received), on_end(2, End::Acknowledged)], 2));
    assert_eq!(read.value.write(), TRIGGERED);
}

#[test]
fn what_htsim_stumbles_over_is_read_with_a_word() {
    let read = parse(text("Nodes 2\r\nConnections 1\r\n0->1  start 0\tsize 0 msg 3\r\n# done")).unwrap();
    assert_eq!(read.value.flows[0].size, ENDLESS);
    let expected = [
        "f:3: htsim splits at single blanks; more of them or tabs are read as one here",
        "f:3: `msg` is not modelled; it is skipped",
        "f:3: a flow of size 0 never ends, as in htsim",
        "f:4: a comment after the first flow is skipped here, but htsim rejects it",
    ];
    assert_eq!(warned(&read), expected);
}

#[test]
fn each_mistake_has_its_line_and_remedy() {
    let flow = |line: &str| format!("Nodes 2\nConnections 1\n{line}");
    for (bad, words) in [
        (flow("0->1 start 0"), "f:3: the flow has no size: add `size BYTES`"),
        (flow("0->1 size 9"), "f:3: the flow has no start: add `start PS` or `trigger N`"),
        (
            flow("0->1 id 1 start 0 trigger 1 size 9"),
            "f:3: the flow has a start and a trigger: keep one of them",
        ),
        (flow("0->1 trigger 1 size 9"), "f:3: a flow with a trigger has no id: add `id N`"),
        (flow("0->1 id 0 start 0 size 9"), "f:3: id is 0: choose an id from 1"),
        (flow("0->2 start 0 size 9"), "f:3: host 2 does not exist, as Nodes is 2: correct one of them"),
        (flow("0->x start 0 size 9"), "f:3: `x` is not a host: write `SRC->DST`"),
        (flow("1->1 start 0 size 9"), "f:3: host 1 sends to itself: name another host"),
        (flow("0->1 start soon size 9"), "f:3: start is `soon`: write a time in ps"),
        (
            flow("0->1 start 0 size 9 colour 3"),
            "f:3: `colour` is not a keyword of a flow: remove or correct it",
        ),
        (
            flow("0->1 start 0 size 9\nhello"),
            "f:4: `hello` does not begin a flow, trigger or failure: remove or correct the line",
        ),
        (
            flow("0->1 start 0 size 9\n1->0 start 0 size 9"),
            "f: Connections is 1, and the file has 2: correct the count",
        ),
        (
            flow("0->1 id 7 start 0 size 9 send_done_trigger 4"),
            "f: trigger 4 is used but not specified: add its line",
        ),
        (flow("trigger id 1"), "f:3: the trigger has no type: add oneshot, multishot or barrier"),
        (flow("trigger id 1 barrier"), "f:3: the barrier has no count: add `count N`, at least 1"),
        (flow("trigger oneshot"), "f:3: the trigger has no id: add `id N`"),
        (
            flow("failure switch_type SPINE switch_id 1 link_id 1"),
            "f:3: switch_type is TOR, AGG or CORE: write one of them",
        ),
        (
            flow("failure switch_id 1"),
            "f:3: a failure has switch_type, switch_id and link_id: add what is missing",
        ),
        ("Connections 0".to_owned(), "f: Nodes is 0: write 2 to 100000"),
        ("Nodes x".to_owned(), "f:1: Nodes is `x`: write a whole number"),
    ] {
        assert_eq!(says(parse(text(&bad))), words, "{bad:?}");
    }
    let twice = "Nodes 2\nConnections 2\n0->1 id 3 start 0 size 9\n1->0 id 3 start 0 size 9";
    assert_eq!(says(parse(text(twice))), "f: two flows have the id 3: give each its own");
}

/// Regression: a byte-order mark hid the first key of a configuration, or made a file unreadable.
///
/// Regression: lines that end with only a carriage return, and blanks around the arrow, were rejected.
#[test]
fn blanks_around_an_arrow_marks_and_carriage_returns_change_nothing() {
    const PLAIN: &str =
        "Nodes 8\nConnections 3\n0->5 start 0 size 9\n5->0 start 0 size 9\n1->2 start 0 size 9";
    let expected = parse(text(PLAIN)).unwrap().value;
    let blanks =
        PLAIN.replacen("0->5", "0 -> 5", 1).replacen("5->0", "5-> 0", 1).replacen("1->2", "1 ->2", 1);
    assert_eq!(parse(text(&blanks)).unwrap().value, expected);
    let marked = format!("\u{feff}{PLAIN}");
    assert_eq!(parse(text(&marked)).unwrap().value, expected);
    assert_eq!(parse(text(&PLAIN.replace('\n', "\r"))).unwrap().value, expected);
}

#[test]
fn a_line_that_is_passed_over_is_named() {
    let read = parse(text("Nodes 8\nConnection 1\nConnections 1\n0->5 start 0 size 9")).unwrap();
    assert_eq!(warned(&read), ["f:2: `Connection` is not a count that a matrix has; the line is skipped"]);
}

#[test]
fn a_size_that_is_too_large_says_so() {
    let size = "99999999999999999999";
    let matrix = format!("Nodes 8\nConnections 1\n0->5 start 0 size {size}");
    let expected = format!("f:3: size is {size}: choose at most 18446744073709551615");
    assert_eq!(says(parse(text(&matrix))), expected);
}
