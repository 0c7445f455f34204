//! Checks that an XDP port allocates nothing after set-up, whatever frames pass.
#![allow(unsafe_code, reason = "network namespaces")]

mod network;

use remora_port::xdp::{Options, XdpPort};
use remora_port::{Egress, Port};
use remora_wire::frame::{Class, Route, Start};
use std::time::Duration;

#[test]
fn frames_pass_without_an_allocation() {
    remora_netns::require!(network::possible());
    let [near, far] = network::veth_pair(1500, "");
    let open =
        |name| XdpPort::open(name, None, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    far.enter();
    let mut two = open("far0");
    near.enter();
    let mut one = open("near0");
    one.resolver().wait(two.endpoint(), Duration::from_secs(10)).unwrap();
    let to_two = one.peer(two.endpoint()).unwrap();
    let to_one = one.peer(one.endpoint()).unwrap();
    let route = Route::new(one.endpoint(), two.endpoint());
    // The first read of the kernel's notifications finds some, and allocates.
    for port in [&mut one, &mut two] {
        port.arm();
    }
    let mut came = 0;
    let counted = allocation_counter::measure(|| {
        for round in 0..300u16 {
            for frame in 0..round % 100 + 1 {
                let transport = 16 + frame * 7;
                let lease = one.lend(to_two, Class::default(), 42 + usize::from(transport)).expect("space");
                route.emit(Start::Ethernet, 0, transport, lease.bytes);
                one.commit();
                one.lend(to_one, Class::default(), 60).expect("space").bytes.fill(2);
                one.commit();
            }
            one.flush();
            for port in [&mut one, &mut two] {
                while port.receive(32, &mut |frame| came += frame.bytes.len()) > 0 {}
            }
            one.arm();
            one.disarm();
        }
    });
    assert!(came > 1_000_000 && one.counters().frames_sent > 20_000, "{came} {:?}", one.counters());
    assert_eq!(counted.count_total, 0);
}
