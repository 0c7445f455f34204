//! Tests of links without NICs, in which frames are sent by hand.

use remora_fault::{Action, Rule, Rules};

use super::*;

/// A thousand bytes take a microsecond at this rate.
const RATE: u64 = 8_000_000_000;
const LINK: LinkConfig = LinkConfig { latency_ns: 300, rate: RATE, queue: 3 };
const SWITCH: SwitchConfig = SwitchConfig { latency_ns: 500, rate: RATE, buffer: 3_000, marks: None };

fn links(config: &Config) -> Links {
    let endpoint =
        |node: usize| Endpoint { address: std::net::Ipv4Addr::new(10, 0, 0, node as u8).into(), udp_port: 1 };
    let config = Config { link: LINK, ..config.clone() };
    Links::new(&config, (0..config.nodes).map(endpoint).collect())
}

/// Sends a frame of `len` bytes that all have this value.
fn send(links: &mut Links, sender: usize, receiver: usize, len: usize, value: u8) {
    links.lend(len).fill(value);
    links.depart(sender, receiver, len);
}

/// Runs until no event is left. Returns time, node and byte value of all arrivals.
fn arrivals(links: &mut Links) -> Vec<(u64, u32, u8)> {
    let mut all = Vec::new();
    while let Some(due) = links.network.next_due(Picos::NEVER) {
        let Due::Arrived(node, id) = due else { continue };
        let now = links.network.now().instant().0;
        let (packet, bytes) = links.open(id);
        all.push((now, node, bytes[0]));
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        links.close(id, &packet);
    }
    all
}

/// Runs until no event is left. Returns the times of the arrivals, sorted by byte value.
fn times(links: &mut Links) -> Vec<u64> {
    let mut all = arrivals(links);
    all.sort_by_key(|(time, _, value)| (*value, *time));
    all.into_iter().map(|(time, ..)| time).collect()
}

#[test]
fn each_pair_has_a_link_of_its_own_or_all_share_a_port() {
    for nodes in [2, 3, 5] {
        let mut own = links(&Config { nodes, ..Config::default() });
        let pairs: Vec<(usize, usize)> = (0..nodes)
            .flat_map(|sender| (0..nodes).map(move |receiver| (sender, receiver)))
            .filter(|(sender, receiver)| sender != receiver)
            .collect();
        for (number, (sender, receiver)) in (0..).zip(&pairs) {
            send(&mut own, *sender, *receiver, 1_000, number);
        }
        let expected: Vec<_> =
            (0..).zip(&pairs).map(|(number, (_, receiver))| (1_300, *receiver as u32, number)).collect();
        let mut arrived = arrivals(&mut own);
        arrived.sort_by_key(|(.., value)| *value);
        assert_eq!(arrived, expected);
    }
    let mut shared = links(&Config { nodes: 3, shared_ports: true, ..Config::default() });
    for (value, receiver) in [(0, 1), (1, 2), (2, 1)] {
        send(&mut shared, 0, receiver, 1_000, value);
    }
    send(&mut shared, 1, 2, 500, 3);
    assert_eq!(arrivals(&mut shared), [(800, 2, 3), (1_300, 1, 0), (2_300, 2, 1), (3_300, 1, 2)]);
}

#[test]
fn a_queue_takes_so_many_frames_and_says_when_it_takes_more() {
    let mut links = links(&Config::default());
    for value in 0..3 {
        assert!(links.has_space(0, 1));
        send(&mut links, 0, 1, 1_000, value);
    }
    assert!(!links.has_space(0, 1) && links.has_space(1, 0));
    assert_eq!(links.network.next_due(Picos::NEVER), Some(Due::Free(0)));
    assert_eq!(links.network.now(), Picos::from(Instant(1_000)));
    assert!(links.has_space(0, 1));
    links.set_rate(0, 1, 0);
    send(&mut links, 0, 1, 1_000, 3);
    assert_eq!(times(&mut links), [1_300, 2_300, 3_300, 3_300], "the rate of what comes from now on");
}

#[test]
fn frames_leave_a_switch_one_after_the_other_at_the_rate_and_arrive_a_latency_later() {
    let mut links = links(&Config { nodes: 4, switch: Some(SWITCH), ..Config::default() });
    (1..4).for_each(|sender| send(&mut links, sender, 0, 1_000, sender as u8));
    assert_eq!(arrivals(&mut links), [(2_800, 0, 1), (3_800, 0, 2), (4_800, 0, 3)]);
    // An idle port starts at once.
    send(&mut links, 1, 0, 500, 4);
    assert_eq!(arrivals(&mut links), [(4_800 + 500 + 300 + 500 + 500, 0, 4)]);
}

#[test]
fn what_just_fits_a_switch_is_taken_and_one_byte_more_is_lost() {
    for (last, lost) in [(1_000, 0), (1_001, 1)] {
        let mut links = links(&Config { nodes: 6, switch: Some(SWITCH), ..Config::default() });
        // The first frame leaves while the others arrive, and the last one arrives last.
        send(&mut links, 1, 0, 900, 1);
        for (sender, len) in [(2, 1_000), (3, 1_000), (4, last)] {
            send(&mut links, sender, 0, len, sender as u8);
        }
        assert_eq!(arrivals(&mut links).len(), 4 - lost);
        let port = links.switch_port(0).unwrap();
        assert_eq!((port.lost, port.most_queued), (lost as u64, 3_000 - 1_000 * lost as u32));
        assert_eq!((port.queued, port.packets), (0, 0));
    }
}

#[test]
fn a_switch_marks_what_may_be_marked() {
    use remora_wire::frame::Route;
    let marks = Some(crate::Marks { k_min: 500, k_max: 500, p_max_thousandths: 0 });
    for start in [Start::Ip, Start::Ethernet] {
        let config =
            Config { nodes: 4, switch: Some(SwitchConfig { marks, ..SWITCH }), start, ..Config::default() };
        let mut links = links(&config);
        let [near, far] = [0, 1].map(|node| links.endpoints[node]);
        for (sender, class) in [(1, 2), (2, 0), (3, 2)] {
            let len = 1_000;
            let frame = links.lend(len);
            let route = Route { traffic_class: class, ..Route::new(near, far) };
            let below = start.overhead(true);
            route.emit(start, 0, (len - below) as u16, frame);
            frame[below..].fill(0);
            links.depart(sender, 0, len);
        }
        let mut fields = Vec::new();
        while let Some(due) = links.network.next_due(Picos::NEVER) {
            if let Due::Arrived(_, id) = due {
                let (packet, bytes) = links.open(id);
                fields.push(crate::ecn::field(start, bytes));
                links.close(id, &packet);
            }
        }
        // The first frame finds an idle port. The second is not ECN-capable, and nothing waits ahead of it.
        assert_eq!((fields, links.switch_port(0).unwrap().marked), (vec![2, 0, 3], 1));
    }
}

#[test]
fn rules_lose_delay_and_double_frames_of_one_direction() {
    let rule = |action| {
        let rules = Rules::of(vec![Rule::new(action).after(1).at_most(1)]);
        let mut links = links(&Config { rules, ..Config::default() });
        (0..3).for_each(|value| send(&mut links, 0, 1, 1_000, value));
        (times(&mut links), links.tally())
    };
    let (lost, tally) = rule(Action::Drop);
    assert_eq!((lost, tally.dropped), (vec![1_300, 3_300], 1), "it takes its time on the link");
    let (late, tally) = rule(Action::Delay { min_ns: 5_000, max_ns: 5_000 });
    assert_eq!((late, tally.delayed), (vec![1_300, 7_300, 3_300], 1));
    let (overtaken, tally) = rule(Action::Reorder { frames: 1 });
    assert_eq!((overtaken, tally.reordered), (vec![1_300, 3_301, 3_300], 1));
    let (doubled, tally) = rule(Action::Duplicate);
    assert_eq!((doubled, tally.duplicated), (vec![1_300, 2_300, 3_300, 4_300], 1));
}

#[test]
fn a_cut_link_loses_everything_and_other_rules_keep_the_old_counts() {
    let mut links = links(&Config::default());
    links.set_rules(&Rules::of(vec![Rule::new(Action::Drop)]), 1);
    send(&mut links, 0, 1, 100, 0);
    links.set_rules(&Rules::default(), 2);
    links.cut(0, 1, true);
    send(&mut links, 0, 1, 100, 1);
    send(&mut links, 1, 0, 100, 2);
    assert_eq!(arrivals(&mut links), [(400, 0, 2)]);
    links.cut(0, 1, false);
    send(&mut links, 0, 1, 100, 3);
    assert_eq!(arrivals(&mut links).len(), 1);
    assert_eq!((links.tally().dropped, links.tally().passed), (1, 3));
}

/// No link joins a node to itself, but frames to the sender arrive as if there were one.
#[test]
fn a_node_has_frames_for_itself() {
    let mut links = links(&Config { nodes: 3, ..Config::default() });
    assert!(links.has_space(2, 2));
    send(&mut links, 2, 2, 1_000, 7);
    links.inject(Instant(9), 0, 0, &[8; 10]);
    links.cut(1, 1, true);
    send(&mut links, 1, 1, 1_000, 9);
    assert_eq!(arrivals(&mut links), [(9, 0, 8), (1_300, 2, 7)]);
}

#[test]
fn injected_frames_arrive_in_the_order_in_which_they_were_put_in() {
    for switch in [None, Some(SWITCH)] {
        let mut links = links(&Config { nodes: 3, switch, ..Config::default() });
        for value in 0..20 {
            links.inject(Instant(7), 2, 1, &[value; 10]);
        }
        links.inject(Instant(7), 2, 1, &[]);
        links.inject(Instant(7), 2, 1, &[20; 70_000]);
        let mut arrived = Vec::new();
        while let Some(due) = links.network.next_due(Picos::NEVER) {
            if let Due::Arrived(node, id) = due {
                let (packet, bytes) = links.open(id);
                arrived.push((node, packet.hash, bytes.len(), bytes.first().copied()));
                links.close(id, &packet);
            }
        }
        let mut expected: Vec<_> = (0..20).map(|value| (1, 2, 10, Some(value))).collect();
        expected.push((1, 2, 0, None));
        if switch.is_none() {
            expected.push((1, 2, 65_535, Some(20)));
        }
        assert_eq!(arrived, expected, "the last does not fit the switch");
    }
}
