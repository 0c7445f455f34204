//! A device with several addresses: hosts joined by a veth pair, and programs that select their GID by
//! index.

use std::process::{Command, Stdio};

use remora_netns::{Error, Namespace};

use crate::library::{c_program, done, program_everywhere, succeeded};

/// Two hosts with IPv4 and IPv6. The default route of the first uses the interface.
fn hosts() -> Result<[Namespace; 2], Error> {
    let near = Namespace::new("near")?;
    let far = Namespace::new("far")?;
    near.add_veth("eth0", &far, "eth0", "")?;
    for (host, end) in [(&near, 1), (&far, 2)] {
        host.ip("link set eth0 addrgenmode none")?;
        host.ip("link set lo up")?;
        host.ip("link set eth0 up")?;
        host.ip(&format!("address add 10.94.0.{end}/24 dev eth0"))?;
        host.ip(&format!("address add fd94::{end}/64 dev eth0 nodad"))?;
        host.ip(&format!("address add fe80::{end}/64 dev eth0 nodad"))?;
    }
    near.ip("route add default via 10.94.0.2")?;
    near.wait_until_up("eth0")?;
    far.wait_until_up("eth0")?;
    Ok([near, far])
}

/// A command that runs a program on this host.
fn on(host: &Namespace, words: &[&str]) -> Command {
    program_everywhere(&[&host.exec()[..], words].concat())
}

/// Runs a ping-pong between a server and a client, each with the GID at this index.
#[track_caller]
fn pings(name: &str, [serving, asking]: [&Namespace; 2], [here, there]: [&str; 2], port: &str) {
    let words = [name, "-n", "100", "-p", port];
    let mut server = on(serving, &[&words[..], &["-g", here]].concat());
    let serves = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let listens = format!("[ -n \"$(ss -Hltn 'sport = :{port}')\" ]");
    while !on(serving, &["sh", "-c", &listens]).status().unwrap().success() {
        std::thread::yield_now();
    }
    // The TCP connection only exchanges GIDs and QP numbers.
    let address = if std::ptr::eq(serving, asking) { "127.0.0.1" } else { "10.94.0.1" };
    let mut client = on(asking, &[&words[..], &["-g", there, address]].concat());
    let printed = client.output().unwrap();
    let served = serves.wait_with_output().unwrap();
    assert!(succeeded(&client, &printed).contains("100 iters in"), "index {here}");
    succeeded(&server, &served);
}

#[test]
fn each_gid_of_a_device_works_between_hosts_and_on_one_of_them() {
    let [near, far] = remora_netns::require!(hosts());
    let shown = done(&mut on(&near, &["ibv_devinfo", "-v"]));
    let gids: Vec<&str> = shown.lines().filter(|line| line.contains("GID[")).map(str::trim).collect();
    let expected = ["::ffff:10.94.0.1", "fd94::1", "::ffff:127.0.0.1", "::1", "fe80::1"];
    assert_eq!(gids.len(), expected.len(), "{shown}");
    for (index, (gid, address)) in gids.iter().zip(expected).enumerate() {
        assert!(
            gid.contains(&format!("GID[{index:3}]")) || gid.contains(&format!("GID[  {index}]")),
            "{gid}"
        );
        assert!(gid.contains(&format!("{address}, RoCE v2")), "{gid}");
    }
    // Addresses that the user has chosen, in that order.
    let mut chosen = on(&near, &["ibv_devinfo", "-v"]);
    let shown = done(chosen.env("REMORA_ADDRESS", "fd94::1,10.94.0.1"));
    let places = ["GID[  0]:\t\tfd94::1", "GID[  1]:\t\t::ffff:10.94.0.1"].map(|gid| shown.find(gid));
    assert!(places[0].is_some() && places[0] < places[1] && !shown.contains("GID[  2]"), "{shown}");
    // The other host has no default route, so its first GID is the loopback address.
    let between = [("0", "1"), ("1", "2"), ("4", "4")];
    for (port, (here, there)) in (18_601..).zip(between) {
        pings("ibv_rc_pingpong", [&near, &far], [here, there], &port.to_string());
    }
    pings("ibv_uc_pingpong", [&near, &far], ["1", "2"], "18610");
    pings("ibv_ud_pingpong", [&near, &far], ["1", "2"], "18611");
    // Over links of shared memory.
    for (port, index) in (18_620..).zip(["0", "1", "2", "3", "4"]) {
        pings("ibv_rc_pingpong", [&near, &near], [index, index], &port.to_string());
    }
    pings("ibv_ud_pingpong", [&near, &near], ["3", "3"], "18630");
}

#[test]
fn a_datagram_to_any_address_comes_and_says_to_which_over_both_ports() {
    let [near, _far] = remora_netns::require!(hosts());
    near.ip("address add 10.94.1.1/24 dev eth0").unwrap();
    for port in ["udp", "auto"] {
        let output = c_program("gids", &[], &|words| {
            let mut command = on(&near, words);
            command.env("REMORA_PORT", port);
            command
        });
        assert_eq!(output, "6 entries", "over {port}");
    }
}

#[test]
fn a_namespace_with_a_loopback_interface_alone_has_both_of_its_addresses() {
    let alone = remora_netns::require!(Namespace::new("alone"));
    alone.ip("link set lo up").unwrap();
    let shown = done(&mut on(&alone, &["ibv_devinfo", "-v"]));
    assert!(shown.contains("GID[  0]:\t\t::ffff:127.0.0.1, RoCE v2"), "{shown}");
    pings("ibv_rc_pingpong", [&alone, &alone], ["0", "0"], "18640");
    pings("ibv_rc_pingpong", [&alone, &alone], ["1", "1"], "18641");
}

#[test]
fn a_namespace_without_ipv4_has_its_ipv6_addresses() {
    let [near, far] = remora_netns::require!(hosts());
    for host in [&near, &far] {
        host.ip("address flush dev lo").unwrap();
        host.ip("address del 10.94.0.1/24 dev eth0")
            .or_else(|_| host.ip("address del 10.94.0.2/24 dev eth0"))
            .unwrap();
        host.ip("-6 route add default dev eth0").unwrap();
    }
    let shown = done(&mut on(&near, &["ibv_devinfo", "-v"]));
    assert!(shown.contains("GID[  0]:\t\tfd94::1, RoCE v2"), "{shown}");
    assert!(shown.contains("fe80::1, RoCE v2"), "{shown}");
}
