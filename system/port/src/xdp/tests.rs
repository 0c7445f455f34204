//! Tests of behaviour that only the kernel can show: which frames the program selects, and that an attached
//! program is not replaced.

use super::bpf::{self, Mode};
use super::options::{OpenError, Options};
use super::program::{self, PASS, REDIRECT};
use super::socket::{Sizes, Socket};
use super::umem::Umem;
use super::{Attachment, XdpPort};
use remora_netns::Namespace;
use remora_wire::frame::{Endpoint, Route, Start};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Fails if the system has no bpf(2), as QEMU's emulation of user programs has none.
fn bpf_call() -> Result<(), &'static str> {
    match bpf::map_of_sockets(1) {
        Err(Errno::NOSYS) => Err("this system has no bpf(2)"),
        _ => Ok(()),
    }
}

/// Creates a network namespace with a veth pair `near0`-`far0` (10.90.0.1 on `near0`), and moves the
/// calling thread into it.
#[must_use = "it goes away with this value"]
fn own_namespace() -> Namespace {
    let own = Namespace::new("own").unwrap_or_else(|error| panic!("{error}"));
    own.enter().unwrap_or_else(|error| panic!("{error}"));
    for arguments in [
        "link add near0 type veth peer name far0",
        "address add 10.90.0.1/24 dev near0",
        "link set far0 up",
        "link set near0 up",
    ] {
        ip(arguments);
    }
    own
}

fn ip(arguments: &str) -> String {
    remora_netns::ip(arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Loads the program for this address and port 4791, with a map that has a socket for the queue of the test
/// frames.
fn loaded(address: IpAddr) -> (OwnedFd, impl Drop) {
    struct Held(#[allow(dead_code, reason = "held, not read")] (OwnedFd, Socket, Umem));
    impl Drop for Held {
        fn drop(&mut self) {}
    }
    let umem = Umem::map(128, 2048).unwrap();
    let (socket, _) = Socket::new(&umem, Sizes { receive: 64, send: 64 })
        .unwrap_or_else(|error| panic!("this test needs root: {error}"));
    let map = bpf::map_of_sockets(1).unwrap();
    bpf::put_socket(&map, 0, socket.as_fd()).unwrap();
    let program = bpf::load(&program::steer(address, 4791, map.as_raw_fd())).unwrap();
    (program, Held((map, socket, umem)))
}

/// Returns a frame with 32 bytes of UDP payload between these endpoints.
fn frame(source: Endpoint, destination: Endpoint) -> Vec<u8> {
    let mut bytes = vec![0; 200];
    let headers = Route::new(source, destination).emit(Start::Ethernet, 0, 32, &mut bytes);
    bytes.truncate(headers + 32);
    bytes
}

fn with(bytes: &[u8], offset: usize, value: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[offset..offset + value.len()].copy_from_slice(value);
    changed
}

#[test]
fn the_program_takes_our_own_udp_flow_over_ipv4_and_passes_all_else() {
    remora_netns::require!(bpf_call());
    let own: IpAddr = Ipv4Addr::new(10, 1, 2, 3).into();
    let (program, _held) = loaded(own);
    let run = |frame: &[u8]| bpf::run(&program, frame).unwrap();
    let source = Endpoint { address: Ipv4Addr::new(10, 1, 2, 4).into(), udp_port: 53_000 };
    let ours = frame(source, Endpoint { address: own.into(), udp_port: 4791 });
    assert_eq!(run(&ours), REDIRECT);
    assert_eq!(run(&with(&ours, 20, &[0x40, 0])), REDIRECT, "don't fragment");
    assert_eq!(run(&with(&ours, 15, &[0xff])), REDIRECT, "any type of service");
    assert_eq!(run(&ours[..42]), REDIRECT, "the payload must not matter");
    let mut others = vec![
        ("another UDP port", with(&ours, 36, &4792u16.to_be_bytes())),
        ("the port as the source's", with(&ours, 34, &[0x12, 0xb7, 0xcf, 0x08])),
        ("another address", with(&ours, 30, &[10, 1, 2, 2])),
        ("the address backwards", with(&ours, 30, &[3, 2, 1, 10])),
        ("TCP", with(&ours, 23, &[6])),
        ("a first fragment", with(&ours, 20, &[0x20, 0])),
        ("a later fragment", with(&ours, 20, &[0, 1])),
        ("a late fragment", with(&ours, 20, &[0x1f, 0xff])),
        ("IP options", with(&ours, 14, &[0x46])),
        ("ARP", with(&ours, 12, &[0x08, 0x06])),
        ("VLAN", with(&ours, 12, &[0x81, 0])),
        ("IPv6", with(&ours, 12, &[0x86, 0xdd])),
    ];
    others.extend((14..42).map(|len| ("cut off", ours[..len].to_vec())));
    for (name, other) in others {
        assert_eq!(run(&other), PASS, "{name}, {} bytes", other.len());
    }
}

#[test]
fn the_program_takes_our_own_udp_flow_over_ipv6_and_passes_all_else() {
    remora_netns::require!(bpf_call());
    let own: Ipv6Addr = "fd00:1234:5678::9abc:def0".parse().unwrap();
    let (program, _held) = loaded(own.into());
    let run = |frame: &[u8]| bpf::run(&program, frame).unwrap();
    let source = Endpoint { address: "fd00::2".parse::<Ipv6Addr>().unwrap().into(), udp_port: 53_000 };
    let ours = frame(source, Endpoint { address: own.into(), udp_port: 4791 });
    assert_eq!((run(&ours), run(&ours[..62])), (REDIRECT, REDIRECT));
    let mut others = vec![
        ("another UDP port", with(&ours, 56, &[0x12, 0xb6])),
        ("a hop-by-hop header", with(&ours, 20, &[0])),
        ("a fragment", with(&ours, 20, &[44])),
        ("ICMPv6", with(&ours, 20, &[58])),
        ("IPv4", with(&ours, 12, &[0x08, 0])),
    ];
    others.extend((38..54).map(|offset| ("another address", with(&ours, offset, &[ours[offset] ^ 1]))));
    others.extend((14..62).map(|len| ("cut off", ours[..len].to_vec())));
    for (name, other) in others {
        assert_eq!(run(&other), PASS, "{name}, {} bytes", other.len());
    }
}

#[test]
fn a_queue_without_a_socket_goes_to_the_kernel() {
    remora_netns::require!(bpf_call());
    let own = Ipv4Addr::new(10, 1, 2, 3);
    let map = bpf::map_of_sockets(1).unwrap_or_else(|errno| panic!("this test needs root: {errno}"));
    let program = bpf::load(&program::steer(own.into(), 4791, map.as_raw_fd())).unwrap();
    let endpoint = Endpoint { address: own.into(), udp_port: 4791 };
    assert_eq!(bpf::run(&program, &frame(endpoint, endpoint)), Ok(PASS));
}

#[test]
fn a_program_that_sits_there_already_stays() {
    remora_netns::require!(bpf_call());
    let _own = own_namespace();
    let map = bpf::map_of_sockets(1).unwrap();
    let other = bpf::load(&program::steer(Ipv4Addr::new(1, 2, 3, 4).into(), 1, map.as_raw_fd())).unwrap();
    let index = std::fs::read_to_string("/proc/thread-self/net/dev_mcast").unwrap();
    let index = index.lines().find(|line| line.contains("near0")).unwrap();
    let index: u32 = index.split_whitespace().next().unwrap().parse().unwrap();
    for mode in [Mode::Native, Mode::Generic] {
        let link = bpf::attach(&other, index, mode).unwrap();
        let before = ip("-json link show near0");
        for wanted in [None, Some(Mode::Native), Some(Mode::Generic)] {
            let error =
                XdpPort::open("near0", None, &Options { mode: wanted, ..Options::default() }).unwrap_err();
            assert_eq!(error, OpenError::OtherProgram("near0".to_owned()));
        }
        assert_eq!(ip("-json link show near0"), before, "the interface and its program are unchanged");
        assert!(before.contains("\"xdp\""), "{before}");
        drop(link);
    }
    Attachment::open("near0", None, &Options::default()).unwrap();
    assert!(!ip("-json link show near0").contains("\"xdp\""), "gone with the attachment");
}
