//! Checks that a UDP port allocates nothing after set-up, whatever frames pass.

use remora_port::udp::{Options, UdpPort};
use remora_port::{Class, Egress, Port};

#[test]
fn frames_and_trains_pass_without_an_allocation() {
    let open = || UdpPort::open("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut one = open();
    let mut two = open();
    let to_two = one.peer(two.endpoint()).unwrap();
    let mut came = 0;
    let counted = allocation_counter::measure(|| {
        for round in 0..300 {
            // Lone frames, trains, and frames of many lengths use every call and both ways of reading.
            for frame in 0..round % 100 + 1 {
                let len = if round % 3 == 0 { 16 + frame * 7 } else { 256 };
                one.lend(to_two, Class::default(), len).expect("space").bytes.fill(1);
                one.commit();
            }
            one.flush();
            while two.receive(32, &mut |frame| came += frame.bytes.len()) > 0 {}
        }
    });
    assert!(came > 1_000_000 && two.udp_counters().trains_received > 100);
    assert_eq!(counted.count_total, 0);
}
