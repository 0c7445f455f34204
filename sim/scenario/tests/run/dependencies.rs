//! Flows that wait for other flows.

use remora_scenario::scenario::{Transport, TransportName};
use remora_scenario::{After, Dependency, End, Start, Verb};
use std::sync::Arc;

use super::*;

/// Returns the start of a flow that waits for this end of a first flow, and the completion time of the first,
/// in ps.
fn starts(transport: TransportName, verb: Verb, end: End) -> (u64, u64) {
    let first = Flow { verb, ..Flow::write(1, 0, 12, 600_000, 0) };
    let wait = After { flows: vec![Dependency { flow: 1, end }], count: 1, delay: 7 };
    let second = Flow { start: Start::After(Arc::new(wait)), ..Flow::write(2, 3, 4, 1_000, 0) };
    let mut scenario = scenario(fat_tree(4), &[]);
    scenario.transport = Transport { name: transport, ..Transport::default() };
    scenario.workloads = vec![Workload::listed(vec![first, second])];
    let rows = run(&scenario);
    let row = |id| rows.iter().find(|row| row.flow.id == id).expect("both flows end");
    (row(2).start.0 - 7, row(1).fct)
}

#[test]
fn a_flow_that_waits_for_the_receiver_starts_when_that_has_all_bytes() {
    // The acknowledgement crosses six links of a microsecond, with 86 bytes on each.
    let back = 6 * (Picos::MICROSECOND + 86 * 80);
    for transport in [TransportName::RocePfc, TransportName::Irn] {
        for verb in [Verb::Write, Verb::Send] {
            let (start, fct) = starts(transport, verb, End::Received);
            assert_eq!(fct - start, back, "{transport} {verb:?}");
            let (start, fct) = starts(transport, verb, End::Acknowledged);
            assert_eq!(fct, start, "{transport} {verb:?}");
        }
        let (start, fct) = starts(transport, Verb::Read, End::Received);
        assert_eq!(fct, start, "the receiver of a READ is who posts it");
    }
}
