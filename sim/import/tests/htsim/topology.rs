use crate::{says, text, warned};
use remora_fabric::topology::{Level, Tier, Tree};
use remora_import::htsim::topology::parse;
use remora_scenario::units::Time;

const TINY: &str = include_str!("../../../scenario/tests/data/leaf_spine_tiny.topo");
const LARGE: &str = include_str!("../../../scenario/tests/data/fat_tree_1024.topo");

#[test]
fn the_topologies_of_htsim_are_the_trees_that_it_builds() {
    let tiny = parse(text(TINY)).unwrap();
    assert!(tiny.warnings.is_empty(), "{:?}", tiny.warnings);
    let link = Level::new(100_000_000_000, 1_000_000);
    // 32 hosts, 4 ToRs with 8 hosts and 2 uplinks each: 2 spines.
    let tree = tiny.value.network().unwrap().tree;
    assert_eq!(tree, Tree::leaf_spine(4, 2, 8, link, link));
    let large = parse(text(LARGE)).unwrap();
    assert!(large.warnings.is_empty(), "{:?}", large.warnings);
    let network = large.value.network().unwrap();
    assert_eq!(network.tree, Tree::fat(16, 1, link).unwrap());
    assert_eq!((network.latency, network.queue), ([Time(0); 3], None));
    for read in [tiny, large] {
        assert_eq!(parse(text(&read.value.write())).unwrap().value, read.value);
    }
}

const BUNDLED: &str = "Nodes 16\nTiers 3\nPodsize 8\nTier 0\ndownlink_speed_gbps 100\nDOWNLINK_LATENCY_NS 500\n\
    Radix_Down 4\nRadix_Up 4\nQueue_Up 90000\nTier 1\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 600\n\
    Radix_Down 4\nRadix_Up 4\nBundle 2\nSwitch_Latency_ns 30\nColour 3\nTier 2\nDownlink_speed_Gbps 200\n\
    Downlink_Latency_ns 700\nRadix_Down 4\nBundle 4\nQueue_Down 100000\n";

#[test]
fn speed_latency_and_bundle_belong_to_the_links_below_a_tier() {
    let text_of = BUNDLED.replace("Radix_Up 4\nBundle 2", "Radix_Up 4\nOversubscribed 1\nBundle 2");
    // 16 uplinks of ToRs at 100 are 8 uplinks of aggs at 200: one core per agg, with only one of the four
    // links.
    let single = text_of.replace("Bundle 4", "Bundle 1");
    assert!(
        says(parse(text(&single)))
            .contains("4 links upwards to 1 cores with Bundle 1: correct Radix_Up or Bundle")
    );
    let good = text_of
        .replace("Downlink_speed_Gbps 200", "Downlink_speed_Gbps 100")
        .replace("Radix_Down 4\nBundle 4", "Radix_Down 4\nBundle 2");
    let read = parse(text(&good)).unwrap();
    assert_eq!(warned(&read), ["f:18: the key Colour is not known; it is skipped"]);
    let network = read.value.network().unwrap();
    assert_eq!((network.latency, network.queue), ([Time(0), Time(30_000), Time(0)], Some(100_000)));
    let tree = network.tree;
    assert_eq!((tree.pods, tree.tors_per_pod, tree.aggs_per_pod, tree.cores_per_agg), (2, 2, 2, 2));
    assert_eq!(tree.below[1], Level { bundle: 2, ..Level::new(100_000_000_000, 600_000) });
    let topology = tree.topology().unwrap();
    assert_eq!(topology.links.len(), 16 + 16 + 16);
    // The agg at position 1 is linked to the cores 1 and 3.
    let agg = topology.switch_at(Tier::Agg, 1).unwrap();
    let cores: Vec<u32> = topology.ports()[agg as usize].iter().map(|port| port.neighbour).collect();
    let core = |number| topology.switch_at(Tier::Core, number).unwrap();
    assert_eq!(cores[4..], [core(1), core(1), core(3), core(3)]);
}

#[test]
fn each_mistake_has_its_line_and_remedy() {
    for (old, new, words) in [
        ("Nodes 32", "Nodes x", "f:1: Nodes is `x`: write a whole number"),
        ("Nodes 32", "", "f: Nodes is missing or 0: add `Nodes N` before the first tier"),
        ("Tiers 2", "Tiers 1", "f: Tiers is 1: write 2 or 3"),
        ("Tiers 2", "Tiers 3", "f: Radix_Up of tier 1 is missing or 0: add `Radix_Up N`"),
        ("Tier 1", "Tier 3", "f:13: Tier is 3: choose at most 2"),
        ("Radix_Up 2", "Radix_Up 2\nRADIX_UP 2", "f:9: Radix_Up occurs twice in tier 0: remove one"),
        ("Radix_Up 2", "", "f: Radix_Up of tier 0 is missing or 0: add `Radix_Up N`"),
        (
            "Oversubscribed 4",
            "",
            "f: tier 0 has 8 links down and 2 up, which contradicts Oversubscribed 1: correct one of them",
        ),
        ("Podsize 32", "Podsize 30", "f: the number of pods is 32 / 30, not a whole number"),
        ("Radix_Down 4\n", "Radix_Down 4\nQueue_Down 0\n", "f: Queue_Down of tier 1 is missing or 0"),
    ] {
        assert!(TINY.contains(old), "{old}");
        let message = says(parse(text(&TINY.replacen(old, new, 1))));
        assert!(message.starts_with(words), "{message}");
    }
    let none = says(parse(text("Nodes 4\nTiers 2\nPodsize 4")));
    assert_eq!(none, "f: tier 0 is missing: add `Tier 0`");
    let top = says(parse(text(&LARGE.replace("Radix_Down 16", "Radix_Down 16\nRadix_Up 2"))));
    assert!(top.contains("tier 2 has no links upwards: remove Radix_Up"), "{top}");
}
