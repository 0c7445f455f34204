//! Tests of the kinds of buffers: which packets they admit, drop and mark.

use super::*;

fn last_port(network: &Network) -> PortId {
    let node = network.topology().nodes.len() as u32 - 1;
    network.port_of(node, network.hosts() as u32 - 1).unwrap()
}

#[test]
fn a_fifo_loses_the_packet_that_does_not_fit() {
    for (limit, lost) in [(3_000, 1), (2_999, 2)] {
        let buffer = BufferConfig::Fifo { limit, pause: None, per_port: false };
        let config = NetworkConfig { buffer, ..NetworkConfig::default() };
        let mut network = Network::new(star(6, RATE, 0), config).unwrap();
        for host in 0..5 {
            let uplink = network.uplinks(host)[0];
            network.send(uplink, packet(5, 0, 1_000));
        }
        // All five packets arrive at once. The first starts to leave, and three wait.
        assert_eq!(arrivals(&mut network).len(), 5 - lost);
        assert_eq!(network.totals().lost[Cause::Full as usize].packets, lost as u64);
        network.check();
        assert!(network.findings().kept().is_empty());
    }
}

#[test]
fn virtual_output_queues_take_from_the_inputs_in_turn_and_each_input_has_its_own_buffer() {
    let buffer = BufferConfig::Voq { limit: 3_000, pause: None };
    let config = NetworkConfig { buffer, ..NetworkConfig::default() };
    // The output has a quarter of the rate: input 0 fills its buffer, input 1 has few packets.
    let mut network = Network::new(star(3, RATE / 4, 0), config).unwrap();
    let named = |hash, left, host| Source { host, packet: Packet::new(2, 0, 1_000, hash), left };
    let mut sources = [named(100, 8, 0), named(200, 2, 1)];
    let order: Vec<_> =
        run(&mut network, &mut sources, Picos::NEVER).iter().map(|arrival| arrival.2).collect();
    assert_eq!(order[..4], [100, 200, 100, 200], "a packet each");
    let lost = network.totals().lost[Cause::Full as usize].packets;
    assert_eq!((lost, order.len()), (10 - order.len() as u64, order.len()));
    assert_eq!(order.iter().filter(|hash| **hash == 200).count(), 2, "the other input loses nothing");
    assert!(lost > 0);
    network.check();
    assert!(network.findings().kept().is_empty());
}

#[test]
fn a_shared_buffer_gives_a_class_what_is_free_and_no_more() {
    // 10,000 bytes without reserve and headroom; a queue may hold as much as remains free.
    let shared = SharedConfig {
        size: 10_000,
        reserve: 0,
        headroom: 0,
        ingress_alpha: 256,
        hysteresis: 0,
        lossless: 0,
    };
    let mut buffer = Buffer::new(BufferConfig::Shared(shared), 2);
    let mut account = Account::default();
    let taken =
        (0..20).take_while(|_| buffer.admit(&mut account, 0, 1_000, 0, 0) == Admission::Taken).count();
    assert_eq!(taken, 5, "half of all: as much is free as it has");
    let mut other = Account::default();
    let more = (0..20).take_while(|_| buffer.admit(&mut other, 0, 1_000, 0, 0) == Admission::Taken).count();
    assert_eq!(more, 3, "as much as is free beside it");
    buffer.leave(&mut account, 0, 1_000, 0);
    assert_eq!(buffer.used(), (7_000, 8_000));
}

#[test]
fn a_reserve_is_there_when_all_else_is_taken() {
    let shared = SharedConfig {
        size: 10_000,
        reserve: 500,
        headroom: 0,
        ingress_alpha: 1 << 16,
        hysteresis: 0,
        lossless: 0,
    };
    // Two ports with eight classes of 500 bytes: 2,000 bytes are shared.
    let mut buffer = Buffer::new(BufferConfig::Shared(shared), 2);
    let mut greedy = Account::default();
    let mut modest = Account::default();
    let taken = (0..200).take_while(|_| buffer.admit(&mut greedy, 0, 100, 0, 0) == Admission::Taken).count();
    assert_eq!(taken, 25, "its reserve and all that is shared");
    let taken = (0..200).take_while(|_| buffer.admit(&mut modest, 3, 100, 0, 0) == Admission::Taken).count();
    assert_eq!(taken, 5, "its reserve");
}

#[test]
fn marks_follow_red_by_the_queue_before_or_behind_the_packet() {
    let marks = Marks { k_min: 2_000, k_max: 4_000, p_max_thousandths: 1_000 };
    for (at_dequeue, expected) in [(false, 4), (true, 4)] {
        let mark = MarkConfig { by_rate: vec![(None, marks)], at_dequeue, classes: 1 << 3 };
        let config = NetworkConfig { marks: Some(mark), ..NetworkConfig::default() };
        let mut network = Network::new(star(11, RATE, 0), config).unwrap();
        for host in 0..10 {
            let uplink = network.uplinks(host)[0];
            let capable = if host == 9 { Flags::NONE } else { Flags::ECN_CAPABLE };
            network.send(uplink, Packet::new(10, 3, 1_000, host).flagged(capable));
        }
        let mut marked = 0;
        while let Some(due) = network.next_due(Picos::NEVER) {
            if let Due::Arrived(_, id) = due {
                let packet = network.take(id);
                marked += u32::from(packet.flags.has(Flags::MARKED));
                assert!(packet.hash != 9 || !packet.flags.has(Flags::MARKED), "it cannot be marked");
            }
        }
        // On arrival, packets find 0, 0, 1000, ... bytes: above 4,000 all are marked, and some below.
        assert!((expected - 1..=expected + 2).contains(&marked), "{at_dequeue}: {marked}");
        assert_eq!(network.totals().marked, u64::from(marked));
    }
}

#[test]
fn a_class_that_is_not_marked_never_is() {
    let marks = Marks { k_min: 0, k_max: 0, p_max_thousandths: 1_000 };
    let mark = MarkConfig { by_rate: vec![(None, marks)], at_dequeue: false, classes: 1 << 3 };
    let config = NetworkConfig { marks: Some(mark), ..NetworkConfig::default() };
    let mut network = Network::new(star(3, RATE / 10, 0), config).unwrap();
    let capable = |class| packet(2, class, 1_000).flagged(Flags::ECN_CAPABLE);
    let mut sources = [Source { host: 0, packet: capable(0), left: 50 }];
    run(&mut network, &mut sources, Picos::NEVER);
    assert_eq!(network.totals().marked, 0);
    let mut sources = [Source { host: 1, packet: capable(3), left: 50 }];
    run(&mut network, &mut sources, Picos::NEVER);
    assert!(network.totals().marked > 40);
    assert_eq!(network.port(last_port(&network)).queued, 0);
}
