//! The headers that the kernel writes, compared with those that a capture shows and that the NIC has
//! requested.
#![allow(unsafe_code, reason = "namespaces and TUN devices are system calls")]

mod network;

use network::{Tun, own_namespace, possible};
use remora_port::capture::Capture;
use remora_port::clock::Wall;
use remora_port::udp::{Options, Socket, UdpPort, endpoint};
use remora_port::{Class, Egress, IpFields, Origin, Peer, Port};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Fields for the frames of the test, in order. Each is used for two frames that could form a train, and a
/// third.
const MARKS: [IpFields; 7] = [
    fields(0, 64),
    fields(0xff, 64),
    fields(0x68, 1),
    fields(2, 255),
    fields(0x68, 64),
    fields(1, 64),
    fields(0, 64),
];

/// The output file, which the test can read.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the packets of a pcapng file, from their IP header on.
fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    let word = |offset: usize| u32::from_le_bytes(file[offset..offset + 4].try_into().unwrap()) as usize;
    let mut offset = 0;
    let mut packets = Vec::new();
    while offset < file.len() {
        if word(offset) == 6 {
            packets.push(file[offset + 28 + ETHERNET..offset + 28 + word(offset + 20)].to_vec());
        }
        offset += word(offset + 4);
    }
    packets
}

const fn fields(traffic_class: u8, hop_limit: u8) -> IpFields {
    IpFields { traffic_class, hop_limit }
}

fn send(port: &mut impl Egress, peer: Peer, mark: IpFields, byte: u8, len: usize) {
    port.mark(mark);
    port.lend(peer, Class::default(), len).expect("space").bytes.fill(byte);
    port.commit();
}

/// Regression: traffic class and hop limit of an address vector never left over `udp`, and a capture
/// showed fields that were not sent.
#[test]
fn a_capture_shows_every_byte_that_the_kernel_puts_on_the_wire() {
    remora_netns::require!(possible());
    let _own = own_namespace();
    let mut tun = Tun::new("wire3", &["10.95.0.1/24", "fd95::1/64"]);
    for (local, far) in [("10.95.0.1:4791", "10.95.0.2:4000"), ("[fd95::1]:4791", "[fd95::2]:4000")] {
        let file = Written::default();
        let port = UdpPort::open(local.parse().unwrap(), &Options::default()).unwrap();
        let mut port = Capture::new(port, file.clone(), Wall).unwrap();
        let peer = port.port_mut().peer(endpoint(far.parse().unwrap())).unwrap();
        for (turn, mark) in MARKS.into_iter().enumerate() {
            // Messages of 1RMA are not resealed, so their bytes are sent unchanged.
            for len in [64, 64, 999] {
                send(&mut port, peer, mark, 0xe0, len);
            }
            if turn % 2 == 0 {
                port.flush();
            }
        }
        port.flush();
        port.finish().unwrap();
        let captured = packets(&file.0.lock().unwrap());
        assert_eq!(captured.len(), 3 * MARKS.len());
        for (index, captured) in captured.iter().enumerate() {
            let sent = tun.next().unwrap_or_else(|| panic!("packet {index} to {far} is missing"));
            assert_eq!(*captured, sent, "packet {index} to {far}");
            let class = if sent[0] >> 4 == 4 { sent[1] } else { sent[0] << 4 | sent[1] >> 4 };
            assert_eq!(class, MARKS[index / 3].traffic_class, "packet {index} to {far}");
        }
    }
}

/// Receives frames until one has come, and returns its origin.
fn arrival(port: &mut UdpPort) -> Option<Origin> {
    let mut came = None;
    let began = Instant::now();
    while came.is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "a frame is missing");
        port.receive(1, &mut |frame| came = Some(frame.origin));
    }
    came.unwrap()
}

#[test]
fn a_port_that_is_asked_says_with_which_fields_frames_came() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let [mut sender, mut receiver] =
            [(); 2].map(|()| UdpPort::open(host.parse().unwrap(), &Options::default()).unwrap());
        let peer = sender.peer(receiver.endpoint()).unwrap();
        send(&mut sender, peer, MARKS[1], 1, 64);
        sender.flush();
        assert_eq!(arrival(&mut receiver), None, "IP fields are hidden until requested");
        receiver.show_ip_fields();
        for mark in MARKS {
            for _ in 0..2 {
                send(&mut sender, peer, mark, 1, 64);
            }
            sender.flush();
            for _ in 0..2 {
                assert_eq!(arrival(&mut receiver), Some(Origin::Ip(mark)), "{host}");
            }
        }
    }
}

#[test]
fn a_datagram_carries_its_own_traffic_class_whatever_the_socket_is_marked_with() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let sender = Socket::open(host.parse().unwrap(), &Options::default()).unwrap();
        let mut receiver = UdpPort::open(host.parse().unwrap(), &Options::default()).unwrap();
        receiver.show_ip_fields();
        let there = sender.destination(remora_port::udp::socket_address(receiver.endpoint(), 0));
        sender.mark(fields(0x20, 64)).unwrap();
        for class in [0x68, 0, 0xff, 2] {
            sender.send_classed(&[0xe0; 64], class, &there).unwrap();
            assert_eq!(arrival(&mut receiver), Some(Origin::Ip(fields(class, 64))), "{host}");
        }
        sender.send_to(&[0xe0; 64], &there).unwrap();
        assert_eq!(
            arrival(&mut receiver),
            Some(Origin::Ip(fields(0x20, 64))),
            "{host}: the socket keeps its mark"
        );
    }
}
