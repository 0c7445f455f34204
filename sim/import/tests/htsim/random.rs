//! Written files read back unchanged, and no text makes a parser panic.

use crate::text;
use proptest::prelude::*;
use remora_fabric::topology::Tier;
use remora_import::htsim::connections::{
    self, Connection, ConnectionStart, Connections, FailedLink, Trigger, TriggerKind,
};
use remora_import::htsim::topology::{self, TierText, TreeFile};

fn connection() -> impl Strategy<Value = Connection> {
    let ids = (
        any::<bool>(),
        proptest::option::of(1u64..4),
        proptest::option::of(1u64..4),
        proptest::option::of(any::<u64>()),
    );
    (0u32..9, 1u32..9, 1u64.., any::<u64>(), proptest::option::of(1u64..4), ids).prop_map(
        |(src, step, size, time, trigger, (has_id, send_done, recv_done, priority))| Connection {
            src,
            dst: (src + step) % 9,
            id: (has_id || trigger.is_some()).then_some(0),
            start: trigger.map_or(ConnectionStart::At(time), ConnectionStart::Trigger),
            size,
            send_done,
            recv_done,
            priority,
        },
    )
}

fn matrices() -> impl Strategy<Value = Connections> {
    let failure = (0usize..3, 0u32..99, 0u32..99);
    let failures = proptest::collection::vec(failure, 0..4);
    (proptest::collection::vec(connection(), 0..20), failures, 1u32..5).prop_map(
        |(mut flows, failures, count)| {
            (1..).zip(&mut flows).for_each(|(id, flow)| flow.id = flow.id.map(|_| id));
            let kinds = [TriggerKind::OneShot, TriggerKind::MultiShot, TriggerKind::Barrier(count)];
            let failed = |(tier, switch, link)| FailedLink {
                tier: [Tier::Tor, Tier::Agg, Tier::Core][tier],
                switch,
                link,
            };
            Connections {
                nodes: 9,
                flows,
                triggers: (1..).zip(kinds).map(|(id, kind)| Trigger { id, kind }).collect(),
                failures: failures.into_iter().map(failed).collect(),
            }
        },
    )
}

fn trees() -> impl Strategy<Value = TreeFile> {
    let numbers = (1u64..5, 1u64..5, 1u64..4, 1u64..3, 1u64..3, 1u64..400, proptest::option::of(1u64..99));
    numbers.prop_map(|(pods, tors, aggs, over, bundle, speed, queue)| {
        let up = aggs * bundle;
        let tier = TierText { speed: Some(speed), latency: Some(500), ..TierText::default() };
        let tor = TierText {
            radix_down: Some(up * over),
            radix_up: Some(up),
            oversubscribed: Some(over),
            queue_up: queue,
            ..tier.clone()
        };
        let agg = TierText {
            radix_down: Some(tors * bundle),
            radix_up: Some(tors * bundle),
            bundle: Some(bundle),
            ..tier.clone()
        };
        let core =
            TierText { radix_down: Some(pods * bundle), bundle: Some(bundle), switch_latency: queue, ..tier };
        let pod = tors * up * over;
        TreeFile { nodes: (pods * pod) as u32, pod: pod as u32, tiers: vec![tor, agg, core] }
    })
}

proptest! {
    #[test]
    fn a_matrix_reads_back(value in matrices()) {
        let read = connections::parse(text(&value.write())).unwrap();
        prop_assert_eq!((read.value, read.warnings), (value, vec![]));
    }

    #[test]
    fn a_tree_reads_back_and_has_its_hosts(value in trees()) {
        let read = topology::parse(text(&value.write())).unwrap();
        let tree = read.value.network().unwrap().tree;
        prop_assert_eq!(tree.topology().unwrap().hosts().count(), value.nodes as usize);
        prop_assert_eq!((read.value, read.warnings), (value, vec![]));
    }

    #[test]
    fn no_text_makes_a_parser_panic(
        words in proptest::collection::vec("[0-9]{1,4}|0->1|start|size|id|trigger|oneshot|failure|Nodes|Tier|Tiers|Podsize|Radix_(Up|Down)|\\PC{1,3}|\n", 0..80)
    ) {
        let joined = words.join(" ");
        let _ = (connections::parse(text(&joined)), topology::parse(text(&joined)));
    }
}
