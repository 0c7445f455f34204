//! rdma_cm on each address of a device with several addresses.

use std::process::Command;

use remora_netns::{Error, Namespace};

use crate::connections::CmServer;
use crate::library::program_everywhere;

/// Two hosts with IPv4 and IPv6, and without a default route.
pub(crate) fn hosts() -> Result<[Namespace; 2], Error> {
    let near = Namespace::new("near")?;
    let far = Namespace::new("far")?;
    near.add_veth("eth0", &far, "eth0", "")?;
    for (host, end) in [(&near, 1), (&far, 2)] {
        host.ip("link set lo up")?;
        host.ip("link set eth0 up")?;
        host.ip(&format!("address add 10.93.0.{end}/24 dev eth0"))?;
        host.ip(&format!("address add fd93::{end}/64 dev eth0 nodad"))?;
    }
    near.wait_until_up("eth0")?;
    far.wait_until_up("eth0")?;
    Ok([near, far])
}

/// A command that runs a program on this host.
pub(crate) fn on(host: &Namespace, line: &str) -> Command {
    let words: Vec<&str> = line.split_whitespace().collect();
    program_everywhere(&[&host.exec()[..], &words].concat())
}

#[test]
fn rping_reaches_each_address_of_a_host_and_a_server_of_all_of_them() {
    let [near, far] = remora_netns::require!(hosts());
    for (asking, address) in
        [(&far, "10.93.0.1"), (&far, "fd93::1"), (&near, "127.0.0.1"), (&near, "fd93::1")]
    {
        let mut server = CmServer::start(on(&near, &format!("rping -s -a {address}")));
        let printed = server.serves(on(asking, &format!("rping -c -v -C 20 -a {address}")));
        assert_eq!(printed.matches("ping data: rdma-ping-").count(), 20, "{address}: {printed}");
        server.succeeds();
    }
    // A server that listens at every address.
    let mut server = CmServer::start(on(&near, "rping -s -P"));
    for (asking, address) in [(&far, "10.93.0.1"), (&near, "127.0.0.1"), (&near, "10.93.0.1")] {
        server.serves(on(asking, &format!("rping -c -C 20 -a {address}")));
    }
    server.ends();
}

#[test]
fn datagrams_reach_a_program_at_an_address_that_it_has_never_named() {
    let [near, far] = remora_netns::require!(hosts());
    // The first datagram tells the queue pair at which address it was called.
    for address in ["10.93.0.1", "fd93::1"] {
        let mut server = CmServer::start(on(&near, &format!("udaddy -b {address} -c 2 -C 20")));
        server.serves(on(&far, &format!("udaddy -s {address} -c 2 -C 20")));
        server.succeeds();
    }
}
