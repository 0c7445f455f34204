//! Captures as Wireshark reads them: every frame must have its addresses, its direction and its ICRC.
#![allow(unsafe_code, reason = "namespaces are system calls")]

mod network;

use remora_port::capture::{Capture, Recorded};
use remora_port::udp::{Options, UdpPort};
use remora_port::{Counters, Egress, Ingress, Lease, Peer, Port, Start};
use remora_wire::frame::{Class, Endpoint, Route, dissect};
use remora_wire::icrc::{self, Flow};
use remora_wire::{Opcode, Packet, Psn, Qpn, bth};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that is removed at the end of the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        Temporary(tempfile::tempdir().unwrap().keep().join(format!("{name}.pcapng")))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// Returns these fields of every frame in the file, as printed by tshark.
fn tshark(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    // tshark guesses this protocol from the payload.
    command.args(["-n", "-r"]).arg(file).args(["--disable-protocol", "rpcordma", "-T", "fields"]);
    // tshark expects RoCE v2 at port 4791 only; the tests use other ports.
    command.args(["-d", "udp.port==1-65535,infiniband", "-o", "ip.check_checksum:TRUE"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output =
        command.output().unwrap_or_else(|error| panic!("this test needs tshark (`make setup`): {error}"));
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Returns an RC SEND ONLY packet to queue pair 0x123456.
fn packet(psn: u32, payload: &[u8]) -> Packet<'_> {
    let mut bth = bth::Repr::parse(&bth::View::new(&[0; bth::LEN]).unwrap());
    (bth.opcode, bth.psn, bth.dest_qp) = (Opcode::RC_SEND_ONLY, Psn::new(psn), Qpn::new(0x12_3456));
    Packet { bth, ext: Default::default(), payload }
}

fn send(port: &mut impl Port, peer: Peer, psn: u32) {
    let payload = [psn as u8; 20];
    let packet = packet(psn, &payload);
    let flow = Flow::new(port.endpoint(), port.peer_endpoint(peer).unwrap());
    let start = port.start(peer);
    let here = port.endpoint();
    let headers = start.overhead(here.address.is_ipv4());
    let route = Route::new(here, port.peer_endpoint(peer).unwrap());
    let lease = port.lend(peer, Class::default(), headers + packet.buffer_len()).expect("space");
    route.emit(start, lease.ip_id, packet.buffer_len() as u16, lease.bytes);
    let transport = &mut lease.bytes[headers..];
    let len = packet.emit(transport);
    let sealed = flow.seal(lease.ip_id, &transport[..len]);
    icrc::write(&mut transport[len..], sealed);
    port.commit();
}

/// Returns the Ethernet frames of a pcapng file.
fn frames(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize;
    let mut offset = 0;
    let mut frames = Vec::new();
    while offset < bytes.len() {
        if word(offset) == 6 {
            frames.push(bytes[offset + 28..offset + 28 + word(offset + 20)].to_vec());
        }
        offset += word(offset + 4);
    }
    frames
}

/// Checks that every frame's ICRC is right for the headers in the capture.
fn icrcs_are_right(file: &Path) {
    for (number, bytes) in frames(file).iter().enumerate() {
        let frame = dissect(Start::Ethernet, bytes).unwrap();
        let (network, udp) = frame.network.unwrap();
        let transport = usize::from(udp.payload_len);
        let covered = &bytes[bytes.len() - transport..bytes.len() - icrc::LEN];
        assert!(Flow::of(&network, &udp).accepts(network.ip_id(), covered, frame.icrc), "frame {number}");
    }
}

#[test]
fn a_udp_port_is_captured_with_true_addresses_in_both_directions() {
    for (name, host) in [("v4", "127.0.0.1"), ("v6", "::1")] {
        let file = Temporary::new(name);
        let address = std::net::SocketAddr::new(host.parse().unwrap(), 0);
        let open = || UdpPort::open(address, &Options::default()).unwrap();
        let mut one = open();
        let mut two = open();
        let to_two = one.peer(two.endpoint()).unwrap();
        let to_one = two.peer(one.endpoint()).unwrap();
        let ports = [one.endpoint().udp_port, two.endpoint().udp_port];
        let mut tick = 1_700_000_000_123_456_000u64;
        let clock = move || {
            tick += 1;
            tick
        };
        let output = std::fs::File::create(&file.0).unwrap();
        let mut one = Capture::new(one, output, clock).unwrap();
        for psn in 0..12 {
            send(&mut one, to_two, psn);
        }
        one.flush();
        for burst in [100, 200] {
            for psn in burst..burst + 12 {
                send(&mut two, to_one, psn);
            }
            two.flush();
            while one.receive(5, &mut |_| ()) > 0 {}
        }
        let (_, recorded) = one.finish().unwrap();
        assert_eq!(recorded, Recorded { seen: 36, dropped: 0 });
        let ip = if name == "v4" { ["ip.src", "ip.dst"] } else { ["ipv6.src", "ipv6.dst"] };
        let rows = tshark(
            &file.0,
            &[
                "frame.time_epoch",
                ip[0],
                ip[1],
                "udp.srcport",
                "udp.dstport",
                "infiniband.bth.opcode",
                "infiniband.bth.destqp",
                "infiniband.bth.psn",
                "infiniband.invariant.crc",
                "frame.packet_flags_direction",
            ],
        );
        assert_eq!(rows.len(), 36);
        let psns = (0..12).chain(100..112).chain(200..212);
        for (index, (row, psn)) in rows.iter().zip(psns).enumerate() {
            let out = index < 12;
            let [source, destination] = if out { ports } else { [ports[1], ports[0]] };
            assert_eq!(row[0], format!("1700000000.{:09}", 123_456_001 + index));
            assert_eq!(
                row[1..5],
                [host.to_owned(), host.to_owned(), source.to_string(), destination.to_string()]
            );
            assert_eq!(row[5..8], ["4".to_owned(), "0x123456".to_owned(), psn.to_string()]);
            assert!(row[8].starts_with("0x") && row[8].len() == 10, "{row:?}");
            assert_eq!(row[9], if out { "0x00000002" } else { "0x00000001" });
        }
        icrcs_are_right(&file.0);
        if name == "v4" {
            let ids: Vec<_> = frames(&file.0).iter().map(|bytes| bytes[19]).collect();
            let train: Vec<u8> = (0..12).collect();
            assert_eq!(ids, [&train[..], &train, &train].concat(), "each frame has its place in its train");
        }
    }
}

#[test]
fn an_xdp_port_is_captured_as_it_is_on_the_wire() {
    use remora_port::xdp::{Options, XdpPort};
    let spaces = network::veth_pair(1500, "");
    for (name, hosts) in [("xdp-v4", ["10.90.0.1", "10.90.0.2"]), ("xdp-v6", ["fd90::1", "fd90::2"])] {
        let file = Temporary::new(name);
        let open = |interface, host: &str| {
            let port = XdpPort::open(interface, Some(host.parse().unwrap()), &Options::default());
            port.unwrap_or_else(|error| panic!("{error}"))
        };
        spaces[1].enter();
        let mut two = open("far0", hosts[1]);
        spaces[0].enter();
        let mut one = open("near0", hosts[0]);
        let ends = [one.endpoint(), two.endpoint()];
        one.resolver().wait(ends[1], std::time::Duration::from_secs(10)).unwrap();
        two.resolver().wait(ends[0], std::time::Duration::from_secs(10)).unwrap();
        let to_two = one.peer(ends[1]).unwrap();
        let to_one = two.peer(ends[0]).unwrap();
        let macs = [&one, &two]
            .map(|port| port.attachment().interface().mac.map(|byte| format!("{byte:02x}")).join(":"));
        let mut one = Capture::create(one, &file.0).unwrap();
        for psn in 0..5 {
            send(&mut one, to_two, psn);
            send(&mut two, to_one, 100 + psn);
        }
        one.flush();
        two.flush();
        let mut came = 0;
        while came < 5 {
            came += one.receive(9, &mut |_| ());
        }
        assert_eq!(one.finish().unwrap().1, Recorded { seen: 10, dropped: 0 });
        icrcs_are_right(&file.0);
        let fields = ["eth.src", "eth.dst", "udp.dstport", "infiniband.bth.psn", "ip.checksum.status"];
        for (index, row) in tshark(&file.0, &fields).iter().enumerate() {
            let [source, destination] = if index < 5 { [0, 1] } else { [1, 0] };
            let psn = if index < 5 { index } else { 95 + index };
            assert_eq!(row[..4], [&macs[source], &macs[destination], "4791", &psn.to_string()]);
            assert_eq!(row[4], if name == "xdp-v4" { "1" } else { "" }, "the header's checksum is good");
        }
    }
}

/// A port whose frames begin at the IP header without an ICRC, like shared memory. Sent frames are received
/// back.
struct Loop {
    frames: Vec<Vec<u8>>,
    lent: Vec<u8>,
    space: usize,
}

impl Egress for Loop {
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }
    fn seals(&self, _: Peer) -> bool {
        false
    }
    fn lend(&mut self, _: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        self.space = self.space.checked_sub(1)?;
        self.lent.resize(len, 0);
        Some(Lease { bytes: &mut self.lent, ip_id: 0 })
    }
    fn commit(&mut self) {
        self.frames.push(self.lent.clone());
    }
    fn flush(&mut self) {}
}

impl Port for Loop {
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let count = budget.min(self.frames.len());
        for bytes in self.frames.drain(..count) {
            take(Ingress {
                bytes: &bytes,
                start: Start::Ip,
                sealed: false,
                source: Endpoint::default(),
                destination: None,
                origin: None,
            });
        }
        count
    }
    fn endpoint(&self) -> Endpoint {
        Endpoint::default()
    }
    fn max_transport_bytes(&self) -> usize {
        4200
    }
    fn arm(&mut self) -> bool {
        !self.frames.is_empty()
    }
    fn disarm(&mut self) {}
    fn poll_fds(&self, _: &mut Vec<RawFd>) {}
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

#[test]
fn a_port_without_ethernet_and_icrc_is_captured_with_both() {
    let file = Temporary::new("loop");
    let inner = Loop { frames: Vec::new(), lent: Vec::new(), space: usize::MAX };
    let mut port = Capture::create(inner, &file.0).unwrap();
    for (near, far) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let [source, destination] = [near, far].map(|ip| {
            let ip: std::net::IpAddr = ip.parse().unwrap();
            Endpoint { address: ip.into(), udp_port: 4791 }
        });
        let packet = packet(7, b"twelve bytes");
        let mut bytes = [0; 200];
        let headers =
            Route::new(source, destination).emit(Start::Ip, 0, packet.buffer_len() as u16, &mut bytes);
        packet.emit(&mut bytes[headers..]);
        let len = headers + packet.buffer_len();
        port.lend(Peer(0), Class::default(), len).unwrap().bytes.copy_from_slice(&bytes[..len]);
        port.commit();
        let mut came = Vec::new();
        port.receive(9, &mut |frame| came.extend_from_slice(frame.bytes));
        assert_eq!(came, &bytes[..len], "capturing must not change the frame");
    }
    assert_eq!(port.finish().unwrap().1, Recorded { seen: 4, dropped: 0 });
    icrcs_are_right(&file.0);
    let rows = tshark(&file.0, &["eth.src", "eth.dst", "infiniband.bth.psn", "udp.dstport"]);
    let macs = |near: &str, far: &str| [near.to_owned(), far.to_owned(), "7".to_owned(), "4791".to_owned()];
    let (v4, v6) =
        (macs("02:00:0a:00:00:01", "02:00:0a:00:00:02"), macs("02:00:00:00:00:01", "02:00:00:00:00:02"));
    assert_eq!(rows, [&v4, &v4, &v6, &v6].map(|row| row.to_vec()));
}

#[test]
fn frames_by_links_are_captured_with_their_icrc() {
    use remora_port::linked::LinkedPort;
    let file = Temporary::new("links");
    let open = || {
        let udp = UdpPort::open("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        LinkedPort::new(udp, None).unwrap()
    };
    let mut far = open();
    let mut near = Capture::create(open(), &file.0).unwrap();
    let geometry = remora_port::shm::SMALL_GEOMETRY;
    let ends = remora_port::shm::introduce(geometry).unwrap();
    let [ours, theirs] = ends.map(|socket| remora_port::shm::take(socket, None, false).unwrap());
    let link = near.port_mut().add_neighbour(1, ours).unwrap();
    let by_socket = near.port_mut().peer(far.endpoint()).unwrap();
    let back = far.add_neighbour(2, theirs).unwrap();
    let here = near.endpoint();
    let send_unsealed = |port: &mut dyn Egress, peer, psn| {
        let payload = [9; 36];
        let packet = packet(psn, &payload);
        let headers = Start::Ip.overhead(true);
        let lease = port.lend(peer, Class::default(), headers + packet.buffer_len()).unwrap();
        Route::new(here, here).emit(Start::Ip, lease.ip_id, packet.buffer_len() as u16, lease.bytes);
        packet.emit(&mut lease.bytes[headers..]);
        port.commit();
        port.flush();
    };
    send_unsealed(&mut near, link, 1);
    send(&mut near, by_socket, 2);
    near.flush();
    send_unsealed(&mut far, back, 3);
    let mut seen = 0;
    while seen == 0 {
        seen = near.receive(9, &mut |frame| assert!(!frame.sealed));
    }
    assert_eq!(near.finish().unwrap().1, Recorded { seen: 3, dropped: 0 });
    icrcs_are_right(&file.0);
    let psns = tshark(&file.0, &["infiniband.bth.psn"]);
    assert_eq!(psns, [["1"], ["2"], ["3"]]);
}

/// Returns a message as long as a request of 1RMA. It ends with a tag instead of an ICRC.
fn message(number: u8) -> [u8; 60] {
    let mut bytes = [number; 60];
    bytes[0] = 0xe0 | number & 7;
    bytes
}

/// Regression: a capture over `shm` wrote an ICRC over the tag of a 1RMA message.
#[test]
fn a_tag_of_1rma_is_captured_as_it_is_where_an_icrc_would_be_added() {
    let file = Temporary::new("tags");
    let inner = Loop { frames: Vec::new(), lent: Vec::new(), space: usize::MAX };
    let mut port = Capture::create(inner, &file.0).unwrap();
    let ends = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<std::net::IpAddr>().unwrap());
    let [near, far] = ends.map(|ip| Endpoint { address: ip.into(), udp_port: 4791 });
    for number in 0..8 {
        let headers = Start::Ip.overhead(true);
        let bytes = port.lend(Peer(0), Class::default(), headers + 60).unwrap().bytes;
        Route::new(near, far).emit(Start::Ip, 0, 60, bytes);
        bytes[headers..].copy_from_slice(&message(number));
        port.commit();
    }
    assert_eq!(port.receive(9, &mut |_| ()), 8);
    assert_eq!(port.finish().unwrap().1, Recorded { seen: 16, dropped: 0 });
    let frames = frames(&file.0);
    for (number, frame) in (0..8).chain(0..8).zip(&frames) {
        assert_eq!(frame[42..], message(number), "message {number}");
    }
    assert_eq!(frames.len(), 16);
}

/// Frames of a train are resealed for their identifications, but messages of 1RMA must not be.
///
/// Regression: captures and faults over `udp` changed the tags of all messages of a train but the first,
/// and their receivers dropped them.
#[test]
fn tags_of_1rma_in_a_train_leave_a_captured_port_unchanged() {
    let file = Temporary::new("train-of-tags");
    let open = || UdpPort::open("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let one = open();
    let mut two = open();
    let ends = [one.endpoint(), two.endpoint()];
    let mut one = Capture::create(one, &file.0).unwrap();
    let to_two = one.port_mut().peer(ends[1]).unwrap();
    for number in 0..12 {
        one.lend(to_two, Class::default(), 60).unwrap().bytes.copy_from_slice(&message(number));
        one.commit();
    }
    one.flush();
    let mut came = Vec::new();
    while came.len() < 12 {
        two.receive(12, &mut |frame| came.push(frame.bytes.to_vec()));
    }
    one.finish().unwrap();
    let captured = frames(&file.0);
    for (number, (came, captured)) in (0..12).zip(came.iter().zip(&captured)) {
        assert_eq!((&came[..], &captured[42..]), (&message(number)[..], &message(number)[..]));
    }
    let ids: Vec<u8> = captured.iter().map(|frame| frame[19]).collect();
    assert_eq!(ids, (0..12).collect::<Vec<u8>>(), "all frames of the train are captured in order");
}

#[test]
fn a_frame_that_finds_no_room_waits_and_is_captured_once() {
    let file = Temporary::new("space");
    let inner = Loop { frames: Vec::new(), lent: Vec::new(), space: 0 };
    let mut port = Capture::create(inner, &file.0).unwrap();
    port.lend(Peer(0), Class::default(), 60).unwrap().bytes.fill(1);
    port.commit();
    assert!(port.lend(Peer(0), Class::default(), 60).is_none(), "the first is still here");
    assert!(port.arm(), "a frame waits, so the caller must not sleep");
    port.port_mut().space = 2;
    port.lend(Peer(0), Class::default(), 60).unwrap().bytes.fill(2);
    port.commit();
    let (inner, recorded) = port.finish().unwrap();
    assert_eq!(inner.frames, [vec![1; 60], vec![2; 60]]);
    assert_eq!(recorded, Recorded { seen: 2, dropped: 0 });
}
