//! Namespaces, veth pairs and bridges of the kernel.

use remora_netns::{Error, Namespace, ip};
use std::net::UdpSocket;

fn spaces() -> Result<[Namespace; 2], Error> {
    Ok([Namespace::new("near")?, Namespace::new("far")?])
}

/// Checks that a datagram from 10.1.0.1 to 10.1.0.2 arrives.
fn crosses(near: &Namespace, far: &Namespace) {
    let receiver =
        far.inside(|| UdpSocket::bind("10.1.0.2:7000").expect("its address")).expect("a thread there");
    let sender = near.inside(|| UdpSocket::bind("10.1.0.1:0").expect("its address")).expect("a thread here");
    sender.send_to(b"hello", "10.1.0.2:7000").expect("a route");
    let mut got = [0; 5];
    receiver.recv(&mut got).expect("a datagram");
    assert_eq!(&got, b"hello");
}

fn set_up(space: &Namespace, interface: &str, address: &str) {
    space.ip(&format!("address add {address}/24 dev {interface}")).expect("an address");
    space.ip(&format!("link set {interface} up")).expect("a link");
}

#[test]
fn a_veth_pair_carries_datagrams_and_goes_with_its_namespaces() {
    let [near, far] = remora_netns::require!(spaces());
    near.add_veth("eth0", &far, "eth1", "mtu 3000").expect("a pair");
    set_up(&near, "eth0", "10.1.0.1");
    set_up(&far, "eth1", "10.1.0.2");
    near.wait_until_up("eth0").expect("an interface");
    assert!(far.ip("link show eth1").expect("an interface").contains("mtu 3000"));
    crosses(&near, &far);
    let names = [near.name().to_owned(), far.name().to_owned()];
    drop((near, far));
    let left = ip("netns list").expect("a list");
    assert!(names.iter().all(|name| !left.contains(name)), "{left}");
}

#[test]
fn hosts_on_a_bridge_reach_each_other() {
    let [near, far] = remora_netns::require!(spaces());
    let hub = Namespace::new("hub").expect("as the others");
    hub.add_bridge("bridge0").expect("a bridge");
    for (port, host, address) in [("port0", &near, "10.1.0.1"), ("port1", &far, "10.1.0.2")] {
        hub.plug("bridge0", port, host, "eth0").expect("a port");
        set_up(host, "eth0", address);
    }
    near.wait_until_up("eth0").expect("an interface");
    far.wait_until_up("eth0").expect("an interface");
    crosses(&near, &far);
}

#[test]
fn a_refusal_names_the_command() {
    let [near, _far] = remora_netns::require!(spaces());
    let error = near.ip("link set eth7 up").expect_err("a missing interface");
    assert!(
        matches!(&error, Error::Refused { command, .. } if command.contains("link set eth7 up")),
        "{error}"
    );
}
