//! Tests of generated networks, of routes and of errors.

use super::*;

const LINK: Level = Level::new(100_000_000_000, 1_000_000);

fn ends(topology: &Topology) -> Vec<(u32, u32)> {
    topology.links.iter().map(|link| (link.a, link.b)).collect()
}

fn routes(topology: &Topology) -> Routes {
    Routes::new(topology, |_| true).unwrap()
}

#[test]
fn the_fat_tree_of_4_ports_is_wired_as_htsim_wires_it() {
    let topology = Tree::fat(4, 1, LINK).unwrap().topology().unwrap();
    assert_eq!((topology.hosts().count(), topology.switches().count()), (16, 20));
    let ends = ends(&topology);
    assert_eq!(ends.len(), 16 + 16 + 16);
    assert_eq!(ends[..3], [(0, 16), (1, 16), (2, 17)]);
    // ToRs are nodes 16 to 23, aggregation switches 24 to 31, cores 32 to 35.
    assert_eq!(ends[16..20], [(16, 24), (16, 25), (17, 24), (17, 25)]);
    assert_eq!(ends[32..38], [(24, 32), (24, 34), (25, 33), (25, 35), (26, 32), (26, 34)]);
    let agg = Place { tier: Tier::Agg, pod: 1, position: 1, number: 3 };
    assert_eq!((topology.place(27), topology.switch_at(Tier::Agg, 3)), (Some(agg), Some(27)));
    assert_eq!(topology.place(35), Some(Place { tier: Tier::Core, pod: 0, position: 3, number: 3 }));
    assert_eq!((topology.place(0), topology.switch_at(Tier::Core, 4)), (None, None));
}

#[test]
fn oversubscription_adds_hosts_to_each_tor() {
    let tree = Tree::fat(6, 2, LINK).unwrap();
    assert_eq!(tree.counts(), [108, 18, 18, 9]);
    assert_eq!(Tree::fat(6, 1, LINK).unwrap().counts(), [54, 18, 18, 9]);
    let topology = tree.topology().unwrap();
    assert_eq!(topology.ports()[108].len(), 6 + 3);
}

#[test]
fn leaf_and_spine_have_two_tiers_and_two_rates() {
    let up = Level { bundle: 2, ..Level::new(400_000_000_000, 500_000) };
    let topology = Tree::leaf_spine(3, 2, 4, LINK, up).topology().unwrap();
    assert_eq!((topology.nodes.len(), topology.links.len()), (12 + 3 + 2, 12 + 3 * 2 * 2));
    assert_eq!(ends(&topology)[12..16], [(12, 15), (12, 15), (12, 16), (12, 16)]);
    assert_eq!((topology.links[11].rate, topology.links[12].rate), (100_000_000_000, 400_000_000_000));
    // Both links of a bundle are alternatives.
    assert_eq!(routes(&topology).ports(12, 11), [4, 5, 6, 7]);
    assert_eq!(routes(&topology).ports(16, 11), [4, 5]);
}

#[test]
fn a_dumbbell_and_a_ring_have_their_hosts_first() {
    let dumbbell = Dumbbell { left: 2, right: 1, hosts: LINK, middle: Level::new(40_000_000_000, 7) };
    let topology = dumbbell.topology().unwrap();
    assert_eq!(ends(&topology), [(0, 3), (1, 3), (2, 4), (3, 4)]);
    assert_eq!((topology.links[3].rate, topology.links[3].delay), (40_000_000_000, 7));
    let ring = Ring { switches: 3, hosts_per_switch: 1, hosts: LINK, around: LINK };
    assert_eq!(ends(&ring.topology().unwrap()), [(0, 3), (1, 4), (2, 5), (3, 4), (4, 5), (5, 3)]);
}

#[test]
fn routes_go_up_by_all_ports_and_down_by_one() {
    let topology = Tree::fat(4, 1, LINK).unwrap().topology().unwrap();
    let routes = routes(&topology);
    // Host 0 to host 15: host, ToR 16, agg 24, core 34, agg 30, ToR 23.
    let path = [(0, &[0][..]), (16, &[2, 3]), (24, &[2, 3]), (34, &[3]), (30, &[1]), (23, &[1])];
    for (node, ports) in path {
        assert_eq!(routes.ports(node, 15), ports, "node {node}");
    }
    assert_eq!(routes.ports(16, 1), [1]);
    assert_eq!(routes.ports(24, 2), [1]);
}

#[test]
fn choices_are_in_the_order_of_neighbours_not_of_links() {
    let mut topology = Tree::leaf_spine(2, 3, 1, LINK, LINK).topology().unwrap();
    topology.links.reverse();
    // Leaf 2 now has ports 0, 1, 2 to the spines 6, 5, 4, and port 3 to its host.
    assert_eq!(routes(&topology).ports(2, 1), [2, 1, 0]);
}

#[test]
fn a_link_that_is_down_is_no_route() {
    let topology = Tree::leaf_spine(2, 2, 1, LINK, LINK).topology().unwrap();
    // Links: 0 and 1 are the hosts', then those of leaf 2 to spines 4 and 5, then those of leaf 3.
    let without = |down: &[u32]| Routes::new(&topology, |link| !down.contains(&link)).unwrap();
    assert_eq!(without(&[]).ports(2, 1), [1, 2]);
    // Spine 4 still reaches leaf 2, but no longer leaf 3.
    assert_eq!(without(&[4]).ports(2, 1), [2]);
    assert_eq!(without(&[4, 5]).ports(2, 1), [] as [u16; 0]);
    assert_eq!(without(&[1]).ports(0, 1), [] as [u16; 0]);
    assert_eq!(without(&[0]).ports(0, 1), [] as [u16; 0]);
}

#[test]
fn a_host_with_two_links_uses_both_and_forwards_nothing() {
    let mut topology = Tree::leaf_spine(2, 1, 1, LINK, LINK).topology().unwrap();
    // Host 0 is now attached to both leaves, 2 and 3. Through the host, leaf 2 would be nearer to leaf 3.
    topology.links.push(Link { a: 0, b: 3, ..topology.links[0] });
    let routes = routes(&topology);
    assert_eq!(routes.ports(0, 1), [1]);
    assert_eq!(routes.ports(4, 0), [0, 1]);
    assert_eq!(routes.ports(2, 1), [1]);
    assert_eq!(routes.ports(3, 0), [2]);
    assert_eq!(routes.ports(1, 0), [0]);
}

#[test]
fn the_tables_of_1024_hosts_are_small() {
    let topology = Tree::fat(16, 1, LINK).unwrap().topology().unwrap();
    assert_eq!((topology.hosts().count(), topology.switches().count()), (1024, 320));
    let routes = routes(&topology);
    assert!(routes.memory() < 256 << 10, "{} bytes", routes.memory());
    let up: Vec<u16> = (8..16).collect();
    assert_eq!(routes.ports(1024, 1023), up);
}

type Change = fn(&mut Topology);

#[test]
fn each_mistake_is_named_with_its_remedy() {
    let good = Dumbbell { left: 1, right: 1, hosts: LINK, middle: LINK }.topology().unwrap();
    let refusal = |change: Change| {
        let mut topology = good.clone();
        change(&mut topology);
        topology.check().unwrap_err().to_string()
    };
    let cases: [(Change, &str); 8] = [
        (|t| t.nodes.fill(NodeKind::Switch), "no node is a host: list fewer"),
        (|t| t.nodes.push(NodeKind::Host), "host 4 has no link: add one"),
        (|t| t.links[2].b = 9, "link 2 names node 9, and there are 4: raise"),
        (|t| t.links[2].b = 2, "link 2 joins node 2 to itself: remove"),
        (|t| t.links[0].rate = 0, "link 0 has 0 bit/s: choose"),
        (|t| t.links[0].delay = DELAY_MAX + 1, "link 0 has a delay of 10000000000001 ps: choose"),
        (|t| t.links[1].loss = f64::NAN, "link 1 loses packets with probability NaN: choose"),
        (|t| t.links = vec![t.links[0]; 1_000_001], "1000001 links, and the limit is 1000000: make"),
    ];
    for (change, words) in cases {
        let says = refusal(change);
        assert!(says.starts_with(words) && !says.contains('\n'), "{says}");
    }
}

#[test]
fn generators_refuse_what_has_no_shape_before_they_build_it() {
    let huge = Level { bundle: u32::MAX, ..LINK };
    let many = TopologyError::TooMany { what: "nodes", asked: 100_001, limit: NODES_MAX };
    assert_eq!(Dumbbell { left: 99_998, right: 1, hosts: LINK, middle: LINK }.topology(), Err(many));
    for refused in [
        Tree::fat(5, 1, LINK).map(|_| Topology::default()),
        Tree::fat(4, 0, LINK).unwrap().topology(),
        Tree::fat(u32::MAX - 1, u32::MAX, LINK).unwrap().topology(),
        Tree::leaf_spine(2, 2, 2, LINK, huge).topology(),
        Dumbbell { left: 1, right: 0, hosts: LINK, middle: LINK }.topology(),
        Dumbbell { left: 1, right: 1, hosts: LINK, middle: huge }.topology(),
        Ring { switches: 2, hosts_per_switch: 1, hosts: LINK, around: LINK }.topology(),
        Ring { switches: 3, hosts_per_switch: 1, hosts: huge, around: LINK }.topology(),
    ] {
        assert!(refused.is_err());
    }
}
