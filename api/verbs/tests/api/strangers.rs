//! A peer behind a plain socket that counts its IP identifications, as Linux Soft-RoCE does, and computes
//! its ICRCs over them.
#![allow(unsafe_code, reason = "an option of a socket that nothing safe sets")]

use remora_verbs::{
    Access, Device, EMPTY, Endpoint, GRH, QpOptions, QueuePair, Ready, ReceiveRequest, Status, work,
};
use remora_wire::icrc::{self, Flow};
use remora_wire::{Extensions, Opcode, Packet, Psn, Qpn, bth, deth};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
const QKEY: u32 = 0x1111_1111;

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint { address: address.ip().into(), udp_port: address.port() }
}

/// A datagram for queue pair `qpn`, with the ICRC for this identification.
fn datagram(flow: &Flow, qpn: u32, identification: u16, payload: &[u8]) -> Vec<u8> {
    let bth = bth::Repr::new(Opcode::UD_SEND_ONLY, Qpn::new(qpn), Psn::new(identification.into()));
    let ext = Extensions { deth: Some(deth::Repr { qkey: QKEY, src_qp: Qpn::new(77) }), ..Extensions::NONE };
    let packet = Packet { bth, ext, payload };
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes);
    let covered = bytes.len() - icrc::LEN;
    let sealed = flow.seal(identification, &bytes[..covered]);
    icrc::write(&mut bytes, sealed);
    bytes
}

/// Turns UDP checksums off, as Soft-RoCE sends none.
fn send_no_checksums(socket: &UdpSocket) {
    let set = |level, name| {
        let one: libc::c_int = 1;
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the option is an int of ours.
        let failed =
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const one).cast(), len) };
        assert_eq!(failed, 0);
    };
    match socket.local_addr().unwrap() {
        SocketAddr::V4(_) => set(libc::SOL_SOCKET, libc::SO_NO_CHECK),
        SocketAddr::V6(_) => set(libc::SOL_UDP, libc::UDP_NO_CHECK6_TX),
    }
}

fn a_stranger_is_heard(host: &str, identifications: impl Fn(u16) -> u16) {
    let context = Device::udp(format!("{host}:0")).unwrap().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let memory = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let mut qp = domain.create_datagram_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let stranger = UdpSocket::bind(format!("{host}:0")).unwrap();
    send_no_checksums(&stranger);
    let here = context.port().endpoint;
    let flow = Flow::new(endpoint(stranger.local_addr().unwrap()), here);
    for turn in 0..3000_u16 {
        let payload = turn.to_be_bytes().repeat(2);
        qp.post_recv(&ReceiveRequest { id: turn.into(), sges: &[memory.sge(0, 128)] }).unwrap();
        let mut frame = datagram(&flow, qp.number(), identifications(turn), &payload);
        if turn % 3 == 0 {
            // A corrupted frame is sent first, whose ICRC does not match its payload.
            frame[20] ^= 0x10;
            stranger.send_to(&frame, (host.trim_matches(['[', ']']), here.udp_port)).unwrap();
            frame[20] ^= 0x10;
        }
        stranger.send_to(&frame, (host.trim_matches(['[', ']']), here.udp_port)).unwrap();
        let mut done = [EMPTY; 1];
        assert_eq!(cq.wait(&mut done, LONG), Ok(1), "turn {turn}");
        assert_eq!((done[0].id, done[0].status, done[0].src_qp), (turn.into(), Status::Success, 77));
        assert_eq!(memory.get::<[u8; 4]>(GRH).unwrap()[..], payload);
    }
    assert_eq!(context.counters().rx_icrc_encapsulated, 1000);
    // The queue pair can still send.
    qp.post_local(&work::nop(9)).unwrap();
    assert_eq!(cq.wait(&mut [EMPTY; 1], LONG), Ok(1));
}

#[test]
fn over_ipv4_a_stranger_that_counts_its_packets_is_heard_all_the_way_round() {
    a_stranger_is_heard("127.0.0.1", |turn| 64_000_u16.wrapping_add(turn));
    // Other flows of the peer's host use identifications in between.
    a_stranger_is_heard("127.0.0.1", |turn| 40_000_u16.wrapping_add(turn.wrapping_mul(977)));
}

/// IPv6 has no identification, and Linux Soft-RoCE sends UDP checksums of 0, which sockets accept only if
/// told to.
#[test]
fn over_ipv6_a_stranger_without_udp_checksums_is_heard() {
    a_stranger_is_heard("[::1]", |_| 0);
}

/// Returns a frame that looks like the first message of the peer of `pair`, but is sent by a socket at
/// `source`.
fn forged(pair: &QueuePair<Ready>, source: SocketAddr, here: Endpoint) -> Vec<u8> {
    let psn = pair.agreement().unwrap().remote.psn;
    let bth = bth::Repr::new(Opcode::RC_SEND_ONLY, Qpn::new(pair.number()), psn);
    let packet = Packet { bth, ext: Extensions::NONE, payload: b"gone" };
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes);
    let covered = bytes.len() - icrc::LEN;
    let sealed = Flow::new(endpoint(source), here).seal(0, &bytes[..covered]);
    icrc::write(&mut bytes, sealed);
    bytes
}

/// Any user of the peer's host can open another socket there.
#[test]
fn a_message_from_another_port_of_the_peers_host_is_not_taken_for_the_peers() {
    for host in ["127.0.0.1", "[::1]"] {
        let contexts = [(); 2].map(|()| Device::udp(format!("{host}:0")).unwrap().open().unwrap());
        let domains = [0, 1].map(|side| contexts[side].alloc_pd().unwrap());
        let mut cqs = [0, 1].map(|side| contexts[side].create_cq(16).unwrap());
        let [one, other] = [0, 1]
            .map(|side| domains[side].create_qp(&cqs[side], &cqs[side], &QpOptions::default()).unwrap());
        let (mut sender, mut receiver) = QueuePair::connect_pair(one, other).unwrap();
        let memory = domains[1].allocate(4096, Access::LOCAL_WRITE).unwrap();
        receiver.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 128)] }).unwrap();

        let stranger = UdpSocket::bind(format!("{host}:0")).unwrap();
        let here = contexts[1].port().endpoint;
        let message = forged(&receiver, stranger.local_addr().unwrap(), here);
        stranger.send_to(&message, (host.trim_matches(['[', ']']), here.udp_port)).unwrap();
        while contexts[1].counters().unknown_qp == 0 {
            assert_eq!(cqs[1].poll(&mut [EMPTY; 1]), Ok(0), "{host}: the forged message was taken");
        }
        sender.post_send(&work::send_inline(2, b"true")).unwrap();
        let mut done = [EMPTY; 1];
        assert_eq!(cqs[1].wait(&mut done, LONG), Ok(1));
        assert_eq!((done[0].id, memory.get::<[u8; 4]>(0).unwrap()), (1, *b"true"));
        assert_eq!(contexts[1].counters().unknown_qp, 1);
    }
}
