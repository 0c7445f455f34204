//! Tests of packets that do not arrive in the order of their link.

use super::*;

/// Two hosts and a link between them.
fn pair() -> Network {
    let topology = Topology {
        nodes: vec![NodeKind::Host; 2],
        links: vec![link(0, 1, RATE, MICROSECOND)],
        places: Vec::new(),
    };
    Network::new(topology, NetworkConfig::default()).unwrap()
}

fn numbered(number: u32) -> Packet {
    Packet::new(1, 0, 1_000, number)
}

#[test]
fn late_packets_are_overtaken_and_lost_ones_take_their_time() {
    let mut network = pair();
    let port = network.uplinks(0)[0];
    for packet in
        [numbered(0).late(200_000), numbered(1), numbered(2).lost(), numbered(3), numbered(4).late(0)]
    {
        network.send(port, packet);
    }
    let arrival = |sent: u64| MICROSECOND + sent * 80_000;
    let expected = [(arrival(2), 1, 1), (arrival(1) + 200_000, 1, 0), (arrival(4), 1, 3), (arrival(5), 1, 4)];
    assert_eq!(arrivals(&mut network), expected);
    let totals = network.totals();
    assert_eq!((totals.sent.packets, totals.arrived.packets), (5, 4));
    assert_eq!((totals.lost[Cause::Loss as usize].packets, network.under_way().0), (1, 0));
    network.check();
    assert!(network.findings().kept().is_empty());
}

#[test]
fn packets_that_nobody_sent_arrive_when_they_are_to_and_are_counted() {
    let mut network = pair();
    let port = network.uplinks(0)[0];
    network.inject(port, numbered(0), Picos(9));
    network.inject(port, numbered(1), Picos(7));
    network.inject(port, numbered(2), Picos(9));
    network.inject(port.reverse(), Packet::new(0, 0, 1_000, 3), Picos(9));
    assert_eq!(arrivals(&mut network), [(7, 1, 1), (9, 1, 0), (9, 1, 2), (9, 0, 3)]);
    network.check();
    assert!(network.findings().kept().is_empty());
}

/// Regression: a packet that came to another host was counted as delivered.
#[test]
fn a_packet_that_comes_to_another_host_is_lost_and_counted() {
    let mut network = pair();
    let port = network.uplinks(0)[0];
    network.send(port, Packet::new(0, 0, 1_000, 0));
    assert_eq!(arrivals(&mut network), []);
    let balance = network.balance();
    assert_eq!(balance, Balance { sent: 1, delivered: 0, lost: 1, in_flight: 0 });
    assert_eq!(network.totals().lost[Cause::NoPath as usize].packets, 1);
}

#[test]
fn another_rate_holds_for_packets_that_come_later() {
    for waiting in [1, 2, 3] {
        let mut network = pair();
        let port = network.uplinks(0)[0];
        (0..waiting).for_each(|number| {
            network.send(port, numbered(number));
        });
        network.set_rate(port, RATE / 2);
        network.send(port, numbered(waiting));
        let ends =
            arrivals(&mut network).into_iter().map(|(time, ..)| time - MICROSECOND).collect::<Vec<_>>();
        let mut expected: Vec<_> = (1..=u64::from(waiting)).map(|number| number * 80_000).collect();
        expected.push(u64::from(waiting) * 80_000 + 160_000);
        assert_eq!(ends, expected);
    }
}

#[test]
fn packets_that_take_no_time_leave_together() {
    let mut network = pair();
    let port = network.uplinks(0)[0];
    network.send(port, numbered(0));
    network.set_rate(port, 0);
    (1..4).for_each(|number| {
        network.send(port, numbered(number));
    });
    let arrival = MICROSECOND + 80_000;
    assert_eq!(arrivals(&mut network), [(arrival, 1, 0), (arrival, 1, 1), (arrival, 1, 2), (arrival, 1, 3)]);
}
