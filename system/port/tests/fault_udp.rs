//! `Fault` around UDP ports: each decided fault must happen, in both directions. All other frames must stay
//! whole, with a right ICRC.

use remora_port::fault::{Direction, Fault, Rules};
use remora_port::udp::{Options, UdpPort};
use remora_port::{Egress, Peer, Port};
use remora_wire::frame::{Class, Endpoint};
use remora_wire::icrc::{self, Flow, IdSpans};
use std::cell::Cell;
use std::rc::Rc;

type Ticking = Box<dyn FnMut() -> u64>;
type Faulty = Fault<UdpPort, Ticking>;

/// Two ports, with these rules at the first; the first port's number of the second; and the first port's
/// clock.
struct World {
    one: Faulty,
    two: UdpPort,
    to_two: Peer,
    to_one: Peer,
    now: Rc<Cell<u64>>,
}

fn world(rules: &str) -> World {
    let open = || UdpPort::open("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut one = open();
    let mut two = open();
    let to_two = one.peer(two.endpoint()).unwrap();
    let to_one = two.peer(one.endpoint()).unwrap();
    let now = Rc::new(Cell::new(1));
    let time = now.clone();
    let one = Fault::with_clock(one, &Rules::parse(rules).unwrap(), Box::new(move || time.get()) as Ticking);
    World { one, two, to_two, to_one, now }
}

/// Sends frame `number` (36 bytes) with an ICRC, as the NIC does.
fn send(port: &mut impl Port, peer: Peer, number: u32) {
    let flow = Flow::new(port.endpoint(), port.peer_endpoint(peer).unwrap());
    let lease = port.lend(peer, Class::default(), 36).expect("space");
    lease.bytes[..32].fill(0x0a);
    lease.bytes[8..12].copy_from_slice(&number.to_be_bytes());
    let sealed = flow.seal(lease.ip_id, &lease.bytes[..32]);
    icrc::write(&mut lease.bytes[32..], sealed);
    port.commit();
}

/// Returns the numbers of all received frames with a right ICRC, and the number of frames with a wrong one.
fn received(port: &mut impl Port, sender: Endpoint) -> (Vec<u32>, u64) {
    let flow = Flow::new(sender, port.endpoint());
    let mut spans = IdSpans::new();
    let mut numbers = Vec::new();
    let mut wrong = 0;
    let mut empty = 0;
    // A held frame that becomes due is handed on by the call after the one in which the other frame passed.
    while empty < 3 {
        let count = port.receive(16, &mut |frame| {
            let sealed = icrc::read(frame.bytes).unwrap();
            if flow.accepts_unknown_id(&mut spans, &frame.bytes[..frame.bytes.len() - 4], sealed).is_none() {
                wrong += 1;
            } else {
                numbers.push(u32::from_be_bytes(frame.bytes[8..12].try_into().unwrap()));
            }
        });
        assert!(count <= 16);
        empty = if count == 0 { empty + 1 } else { 0 };
    }
    (numbers, wrong)
}

#[test]
fn rules_that_never_fire_change_nothing_and_trains_keep_their_seals() {
    let mut world = world("[[rule]]\nfault = 'drop'\nprobability = 0.0");
    for number in 0..200 {
        send(&mut world.one, world.to_two, number);
    }
    world.one.flush();
    assert_eq!(received(&mut world.two, world.one.endpoint()), ((0..200).collect(), 0));
    assert!(world.one.port().udp_counters().trains_sent >= 3);
    assert_eq!(world.one.tally(Direction::Send).passed, 200);
    assert_eq!(world.one.counters().faults.faults(), 0);
}

/// While the port is down, no frame passes in either direction; before and after, all do.
#[test]
fn a_port_that_is_down_drops_what_it_sends_and_what_comes() {
    const MS: u64 = 1_000_000;
    let mut world = world("[[incident]]\nat_ms = 10\nport_down_ms = 5");
    let [here, there] = [world.one.endpoint(), world.two.endpoint()];
    for (now, passes) in [(1, true), (9 * MS, true), (11 * MS, false), (14 * MS, false), (16 * MS, true)] {
        world.now.set(now);
        send(&mut world.one, world.to_two, 1);
        send(&mut world.two, world.to_one, 2);
        world.one.flush();
        world.two.flush();
        let wanted = |number: u32| (if passes { vec![number] } else { Vec::new() }, 0);
        assert_eq!(received(&mut world.two, here), wanted(1), "sent at {now}");
        assert_eq!(received(&mut world.one, there), wanted(2), "received at {now}");
    }
}

#[test]
fn everything_at_once_adds_up_in_both_directions_and_repeats_with_its_seed() {
    let rules = "
        seed = 11
        [[rule]]
        fault = 'drop'
        probability = 0.1
        [[rule]]
        fault = 'duplicate'
        probability = 0.1
        [[rule]]
        fault = 'reorder'
        by = 3
        probability = 0.1
        [[rule]]
        fault = 'delay'
        delay_us = [1, 50]
        probability = 0.1
        [[rule]]
        fault = 'corrupt'
        probability = 0.1";
    let run = || {
        let mut world = world(rules);
        let here = world.one.endpoint();
        let there = world.two.endpoint();
        let mut sent = (Vec::new(), 0);
        let mut got = (Vec::new(), 0);
        for round in 0..100u32 {
            for number in round * 40..round * 40 + 40 {
                send(&mut world.one, world.to_two, number);
                send(&mut world.two, world.to_one, number);
            }
            world.one.flush();
            world.two.flush();
            world.now.set(world.now.get() + 20_000);
            for (all, some) in
                [(&mut sent, received(&mut world.two, here)), (&mut got, received(&mut world.one, there))]
            {
                all.0.extend(some.0);
                all.1 += some.1;
            }
        }
        world.now.set(u64::MAX);
        assert!(!world.one.arm() || world.one.receive(0, &mut |_| ()) == 0);
        world.one.flush();
        sent.0.extend(received(&mut world.two, here).0);
        got.0.extend(received(&mut world.one, there).0);
        let tallies = [Direction::Send, Direction::Receive].map(|direction| world.one.tally(direction));
        for (tally, (numbers, wrong)) in tallies.iter().zip([&sent, &got]) {
            assert_eq!(tally.passed + tally.faults(), 4000);
            for count in [tally.dropped, tally.duplicated, tally.reordered, tally.delayed, tally.corrupted] {
                assert!(count > 200, "{tally:?}");
            }
            assert_eq!(numbers.len() as u64, 4000 - tally.dropped + tally.duplicated - wrong);
            // A change to the one masked byte of the BTH (FECN, BECN) must not change the ICRC.
            assert!(*wrong <= tally.corrupted && *wrong > tally.corrupted * 9 / 10, "{wrong} of {tally:?}");
            let mut distinct = numbers.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert!(distinct.len() < numbers.len() && !numbers.is_sorted());
        }
        let mut both = tallies[0];
        both.sum(&tallies[1]);
        assert_eq!(world.one.counters().faults, both);
        assert_eq!(world.one.overflowed(), 0);
        (sent, got, tallies)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_delayed_frame_comes_at_its_time_and_no_sleep_is_allowed_before() {
    for direction in ["out", "in"] {
        let rules =
            format!("[[rule]]\nfault = 'delay'\ndelay_us = 5\nat_most = 1\ndirection = '{direction}'");
        let mut world = world(&rules);
        let here = world.one.endpoint();
        let there = world.two.endpoint();
        let pass = |world: &mut World, number| {
            if direction == "out" {
                send(&mut world.one, world.to_two, number);
                world.one.flush();
                received(&mut world.two, here).0
            } else {
                send(&mut world.two, world.to_one, number);
                world.two.flush();
                received(&mut world.one, there).0
            }
        };
        assert_eq!(pass(&mut world, 1), [0u32; 0], "{direction}");
        assert!(world.one.arm());
        world.one.disarm();
        world.now.set(5000);
        assert_eq!(pass(&mut world, 2), [2]);
        world.now.set(5001);
        assert_eq!(pass(&mut world, 3), [1, 3]);
        assert!(!world.one.arm());
        world.one.disarm();
    }
}

#[test]
fn a_reordered_frame_is_overtaken_by_as_many_as_the_rule_says() {
    let mut world = world("[[rule]]\nfault = 'reorder'\nby = 2\nafter = 1\nat_most = 1\ndirection = 'out'");
    for number in 0..6 {
        send(&mut world.one, world.to_two, number);
    }
    world.one.flush();
    assert_eq!(received(&mut world.two, world.one.endpoint()).0, [0, 2, 3, 1, 4, 5]);
}

#[test]
fn when_too_many_are_held_frames_pass_and_are_counted() {
    let mut world = world("hold = 3\n[[rule]]\nfault = 'delay'\ndelay_us = 1\ndirection = 'out'");
    for number in 0..5 {
        send(&mut world.one, world.to_two, number);
    }
    world.one.flush();
    assert_eq!(received(&mut world.two, world.one.endpoint()).0, [3, 4]);
    assert_eq!(world.one.overflowed(), 2);
    world.now.set(1001);
    world.one.flush();
    assert_eq!(received(&mut world.two, world.one.endpoint()).0, [0, 1, 2]);
}
