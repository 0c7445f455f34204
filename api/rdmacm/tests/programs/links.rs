//! Hosts on several links: the same link-local address on two of them, and a host that does not answer ARP.

use std::process::Command;

use remora_netns::{Error, Namespace};

use crate::connections::CmServer;
use crate::gids::{hosts, on};
use crate::library::{built_c_program, done, program_everywhere};

/// A host with fe80::1 on the links `v0` and `w0`, and the hosts behind them, both with fe80::2.
fn two_links() -> Result<[Namespace; 3], Error> {
    let near = Namespace::new("near")?;
    let far = [Namespace::new("one")?, Namespace::new("two")?];
    for (link, host) in ["v0", "w0"].into_iter().zip(&far) {
        near.add_veth(link, host, "eth0", "")?;
        for (namespace, interface, own) in [(&near, link, 1), (host, "eth0", 2)] {
            namespace.ip("link set lo up")?;
            namespace.ip(&format!("link set {interface} addrgenmode none up"))?;
            namespace.ip(&format!("address add fe80::{own}/64 dev {interface} nodad"))?;
        }
        near.wait_until_up(link)?;
        host.wait_until_up("eth0")?;
    }
    let [one, two] = far;
    Ok([near, one, two])
}

/// Regression: `fe80::2%w0` reached the host behind `v0`, any zone could be bound, and addresses came
/// back without a zone.
#[test]
fn a_zone_chooses_the_link_and_addresses_come_back_with_their_zone() {
    let [near, one, two] = remora_netns::require!(two_links());
    let program = built_c_program("zones");
    let line = |words: &str| format!("{program} {words}");
    assert_eq!(done(&mut on(&near, &line("refuse"))).trim(), "refused");
    for (link, name, host) in [("w0", "two", &two), ("v0", "one", &one)] {
        let mut server = CmServer::start(on(host, &line(&format!("serve {name}"))));
        let answer = server.serves(on(&near, &line(&format!("ask fe80::2%{link}"))));
        assert_eq!(answer.trim(), name, "by {link}");
        server.succeeds();
    }
    std::fs::remove_file(program).unwrap();
}

/// Returns the event of a resolution, its status, and its time in milliseconds.
fn resolution(mut command: Command) -> (String, i32, u64) {
    let printed = done(&mut command);
    let [event, status, ms] = printed.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    (event.to_owned(), status.parse().unwrap(), ms.parse().unwrap())
}

/// Regression: `rdma_resolve_addr` ignored its time limit: an address that answers no ARP failed after
/// 77.7 s in `rdma_connect`.
#[test]
fn a_host_that_does_not_answer_arp_is_not_resolved_within_the_limit() {
    let [near, _far] = remora_netns::require!(hosts());
    let program = built_c_program("zones");
    // The addresses are on the link, behind the router, and on this host.
    near.ip("route add 198.51.100.0/24 via 10.93.0.2").unwrap();
    let resolve = |address: &str, limit: u32| {
        resolution(program_everywhere(
            &[&near.exec()[..], &[&program, "resolve", address, &limit.to_string()]].concat(),
        ))
    };
    let (event, status, ms) = resolve("10.93.0.77", 300);
    assert_eq!((event.as_str(), status), ("RDMA_CM_EVENT_ADDR_ERROR", -libc::ETIMEDOUT));
    assert!(ms >= 300, "{ms} ms");
    for address in ["10.93.0.2", "198.51.100.7", "10.93.0.1"] {
        let (event, status, ms) = resolve(address, 30_000);
        assert_eq!((event.as_str(), status), ("RDMA_CM_EVENT_ADDR_RESOLVED", 0), "{address}: {ms} ms");
    }
    std::fs::remove_file(program).unwrap();
}
