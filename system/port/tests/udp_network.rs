//! UDP ports on networks that require root: the packets on the wire, two namespaces over veth, a full
//! queue.
#![allow(unsafe_code, reason = "namespaces and TUN devices are system calls")]

mod network;

use network::{Tun, ip, own_namespace, possible, run};
use remora_port::udp::{Options, UdpPort};
use remora_port::{Egress, Peer, Port};
use remora_wire::frame::{Class, Start, dissect};
use remora_wire::icrc::Flow;
use remora_wire::{Opcode, Packet, bth, icrc};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn open(local: &str, options: &Options) -> UdpPort {
    UdpPort::open(local.parse().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn peer(port: &mut UdpPort, address: &str) -> Peer {
    port.peer(remora_port::udp::endpoint(address.parse().unwrap())).unwrap()
}

/// Sends a sealed SEND ONLY with `payload` bytes, as the NIC would.
fn send_sealed(port: &mut UdpPort, peer: Peer, psn: u32, payload: usize) {
    let payload = vec![psn as u8; payload];
    let packet = Packet { bth: bth(psn), ext: Default::default(), payload: &payload };
    let flow = Flow::new(port.endpoint(), port.peer_endpoint(peer).unwrap());
    let lease = port.lend(peer, Class::default(), packet.buffer_len()).expect("space");
    let len = packet.emit(lease.bytes);
    let sealed = flow.seal(lease.ip_id, &lease.bytes[..len]);
    icrc::write(&mut lease.bytes[len..], sealed);
    port.commit();
}

fn bth(psn: u32) -> bth::Repr {
    let mut bytes = [0; bth::LEN];
    bytes[0] = Opcode::RC_SEND_ONLY.0;
    let mut repr = bth::Repr::parse(&bth::View::new(&bytes).unwrap());
    repr.psn = remora_wire::Psn::new(psn);
    repr
}

#[test]
fn on_the_wire_frame_k_of_a_train_has_identification_k_and_its_icrc_is_right() {
    remora_netns::require!(possible());
    let _own = own_namespace();
    let mut tun = Tun::new("wire0", &["10.99.0.1/24", "fd99::1/64"]);
    let hosts = [("10.99.0.1:4791", "10.99.0.2:4791"), ("[fd99::1]:4791", "[fd99::2]:4791")];
    for (local, far) in hosts {
        let options = Options { ttl: 7, traffic_class: 0x68, ..Options::default() };
        let mut port = open(local, &options);
        let peer = peer(&mut port, far);
        for count in [1, 2, 5, 64] {
            for psn in 0..count {
                send_sealed(&mut port, peer, psn, 100);
            }
            port.flush();
            for psn in 0..count {
                let packet =
                    tun.next().unwrap_or_else(|| panic!("{count} frames to {far}: frame {psn} is missing"));
                let frame = dissect(Start::Ip, &packet).unwrap();
                assert_eq!(frame.packet.bth.psn.get(), psn);
                let (ip, udp) = frame.network.unwrap();
                assert_eq!((udp.source_port, udp.destination_port), (4791, 4791));
                match ip {
                    remora_wire::frame::Network::V4(ip) => {
                        assert_eq!(u32::from(ip.ident), psn, "train of {count}");
                        assert!(ip.dont_fragment);
                        assert_eq!((ip.ttl, ip.dscp), (7, 0x68 >> 2));
                    }
                    remora_wire::frame::Network::V6(ip) => {
                        assert_eq!((ip.hop_limit, ip.traffic_class), (7, 0x68));
                    }
                }
                let transport = packet.len() - 8 - if ip.header_len() == 20 { 20 } else { 40 };
                let covered = &packet[packet.len() - transport..packet.len() - icrc::LEN];
                assert!(Flow::of(&ip, &udp).accepts(ip.ip_id(), covered, frame.icrc), "ICRC of frame {psn}");
            }
            assert!(tun.next().is_none());
        }
    }
}

#[test]
fn frames_with_any_identification_and_with_zero_udp_checksums_come_in() {
    remora_netns::require!(possible());
    let _own = own_namespace();
    let mut tun = Tun::new("wire1", &["10.98.0.1/24", "fd98::1/64"]);
    for (local, far) in [("10.98.0.1:4791", "10.98.0.2:53000"), ("[fd98::1]:4791", "[fd98::2]:53000")] {
        let mut port = open(local, &Options::default());
        let far = remora_port::udp::endpoint(far.parse().unwrap());
        let route = remora_wire::frame::Route::new(far, port.endpoint());
        let mut packet = vec![0; 200];
        let headers = route.emit(Start::Ip, 0x5256, 32, &mut packet);
        packet[headers..headers + 32].fill(9);
        let mut came = 0;
        let began = Instant::now();
        let mut again = Instant::now();
        while came == 0 && began.elapsed() < Duration::from_secs(60) {
            // The route of a new address appears only after a moment, on a busy machine perhaps after this
            // point; earlier frames are lost.
            if Instant::now() >= again {
                tun.inject(&packet[..headers + 32]);
                again += Duration::from_millis(100);
            }
            port.receive(9, &mut |frame| {
                assert_eq!((frame.bytes, frame.source), (&[9; 32][..], far));
                came += 1;
            });
        }
        assert!(came >= 1, "Soft-RoCE and hardware send no UDP checksum, over IPv6 as well");
    }
}

#[test]
fn a_full_kernel_queue_loses_nothing() {
    remora_netns::require!(possible());
    let _own = own_namespace();
    let mut tun = Tun::new("wire2", &["10.97.0.1/24"]);
    // On a slow device, frames stay accounted to the socket until they have been sent.
    run("tc", "qdisc add dev wire2 root tbf rate 20mbit burst 20kb limit 10mb");
    for trains in [true, false] {
        let options = Options { send_buffer: 4096, trains, ..Options::default() };
        let mut port = open("10.97.0.1:4791", &options);
        let peer = peer(&mut port, "10.97.0.2:4791");
        let mut sent = 0u32;
        let mut came = 0u32;
        while came < 3000 {
            while sent < 3000 {
                let Some(lease) = port.lend(peer, Class::default(), 256) else { break };
                lease.bytes[..4].copy_from_slice(&sent.to_be_bytes());
                port.commit();
                sent += 1;
            }
            port.flush();
            while let Some(packet) = tun.next() {
                assert_eq!(packet[28..32], came.to_be_bytes(), "in order, each once");
                came += 1;
            }
        }
        assert!(port.counters().no_room > 0 && port.udp_counters().would_block > 0);
        assert_eq!((port.counters().frames_sent, port.counters().send_dropped), (3000, 0));
    }
}

#[test]
fn two_namespaces_over_veth() {
    remora_netns::require!(possible());
    let _own = own_namespace();
    let (ready, far_thread) = mpsc::channel();
    let (go, went) = mpsc::channel::<()>();
    let echo = thread::spawn(move || {
        let _own = own_namespace();
        ready.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        went.recv().unwrap();
        ip("address add 10.96.0.2/24 dev far0");
        ip("address add fd96::2/64 dev far0 nodad");
        ip("link set far0 up");
        let mut ports = ["10.96.0.2:4791", "[fd96::2]:4791"].map(|local| open(local, &Options::default()));
        ready.send(0).unwrap();
        while went.try_recv() == Err(mpsc::TryRecvError::Empty) {
            for port in &mut ports {
                let mut frames = Vec::new();
                port.receive(64, &mut |frame| frames.push((frame.source, frame.bytes.to_vec())));
                for (source, bytes) in frames {
                    let peer = port.peer(source).unwrap();
                    port.lend(peer, Class::default(), bytes.len())
                        .expect("space")
                        .bytes
                        .copy_from_slice(&bytes);
                    port.commit();
                }
                port.flush();
            }
        }
    });
    let far = far_thread.recv().unwrap();
    ip(&format!("link add near0 mtu 1500 type veth peer name far0 mtu 1500 netns {far}"));
    ip("address add 10.96.0.1/24 dev near0");
    ip("address add fd96::1/64 dev near0 nodad");
    ip("link set near0 up");
    go.send(()).unwrap();
    far_thread.recv().unwrap();
    for (local, remote, headers) in
        [("10.96.0.1:4791", "10.96.0.2:4791", 28), ("[fd96::1]:4791", "[fd96::2]:4791", 48)]
    {
        let mut port = open(local, &Options::default());
        assert_eq!(port.max_transport_bytes(), 1500 - headers);
        let peer = peer(&mut port, remote);
        round_trips(&mut port, peer);
        too_long_is_counted(&mut port, peer);
        round_trips(&mut port, peer);
    }
    go.send(()).unwrap();
    echo.join().unwrap();
}

/// Sends 30 trains of 40 frames and receives them back.
fn round_trips(port: &mut UdpPort, peer: Peer) {
    let len = port.max_transport_bytes();
    for round in 0..30u8 {
        for number in 0..40u8 {
            let bytes = port.lend(peer, Class::default(), len).expect("space").bytes;
            bytes.fill(round);
            bytes[0] = number;
            port.commit();
        }
        port.flush();
        let mut came = 0u8;
        while came < 40 {
            port.receive(64, &mut |frame| {
                assert_eq!((frame.bytes.len(), frame.bytes[0], frame.bytes[1]), (len, came, round));
                came += 1;
            });
        }
    }
}

/// Sends a frame one byte longer than the path allows, alone and in a train: it must be dropped and
/// counted, and trains must continue.
fn too_long_is_counted(port: &mut UdpPort, peer: Peer) {
    let before = port.udp_counters();
    let len = port.max_transport_bytes() + 1;
    for frames in [1, 3] {
        for _ in 0..frames {
            port.lend(peer, Class::default(), len).expect("space").bytes.fill(1);
            port.commit();
        }
        port.flush();
    }
    let after = port.udp_counters();
    assert_eq!(after.too_long - before.too_long, 4);
    assert_eq!(after.cannot_cut, before.cannot_cut);
}
