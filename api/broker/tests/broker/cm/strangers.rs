//! A communication manager of another host. It is answered like any peer, and nothing that it sends too much
//! or corrupted does harm.

use remora_broker::{Broker, Connect, IdEventKind, Options};
use remora_cm::{Cm, CmConfig, ConnectParam, EventKind, GidPair, Instant};
use remora_host::wait_readable;
use remora_port::udp::{self, Options as UdpOptions, Socket};
use remora_wire::icrc::{self, Flow};
use remora_wire::mad::{
    self, Answered, CmMessage, PortSpace, RejectReason, ServiceId, drep, dreq, ip_cm, rej, rtu,
};
use remora_wire::{Endpoint, Extensions, Opcode, Packet, Psn, Qpn, bth, deth};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Side, asking, param};
use crate::{LONG, at, report, until};

/// A manager without a broker, on an address of its own, as on another host.
struct Stranger {
    cm: Cm,
    socket: UdpSocket,
    here: Endpoint,
    there: Endpoint,
}

impl Stranger {
    fn new(here: &str, there: &str) -> Stranger {
        let socket = UdpSocket::bind(at(here)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let [here, there] = [here, there].map(|text| udp::endpoint(at(text)));
        Stranger { cm: Cm::new(CmConfig::new(0x5eed, 7)), socket, here, there }
    }

    /// Requests a connection to a service of the other side, with this queue pair.
    fn ask(&mut self, port: u16, qpn: u32) {
        let gids = GidPair::new(self.here.address, self.there.address);
        let ip = ip_cm::Repr { port: 50_000, addresses: ip_cm::Addresses::of(gids.local, gids.remote) };
        let new = ConnectParam::new(gids, ServiceId::rdma_ip(PortSpace::Tcp, port), Qpn::new(qpn));
        let param = ConnectParam { ip: Some(ip), ..new };
        self.cm.connect(Instant(1), qpn.into(), &param).unwrap();
        self.send(0xbeef);
    }

    /// Sends the manager's MADs, with this IPv4 identification in the ICRC.
    fn send(&mut self, ip_id: u16) {
        let mut mad = [0; mad::LEN];
        while self.cm.transmit(&mut mad).is_some() {
            self.send_mad(&mad, ip_id);
        }
    }

    fn send_mad(&self, mad: &[u8; mad::LEN], ip_id: u16) {
        self.socket.send_to(&self.frame(mad, ip_id), udp::socket_address(self.there, 0)).unwrap();
    }

    /// The frame of a MAD.
    fn frame(&self, mad: &[u8; mad::LEN], ip_id: u16) -> Vec<u8> {
        let bth = bth::Repr::new(Opcode::UD_SEND_ONLY, Qpn::new(1), Psn::new(1));
        let deth = Some(deth::Repr { qkey: mad::QKEY, src_qp: Qpn::new(1) });
        let packet = Packet::new(bth, Extensions { deth, ..Extensions::NONE }, mad);
        let mut frame = vec![0; packet.buffer_len()];
        let end = packet.emit(&mut frame);
        let sealed = Flow::new(self.here, self.there).seal(ip_id, &frame[..end]);
        icrc::write(&mut frame, sealed);
        frame
    }

    /// Receives the next MAD, whose ICRC must be right.
    #[track_caller]
    fn receive(&mut self) {
        let mut buffer = [0; 2048];
        let len = self.socket.recv(&mut buffer).unwrap();
        let packet = Packet::parse(&buffer[..len]).unwrap();
        let covered = &buffer[..len - icrc::LEN];
        let received = icrc::read(&buffer[..len]).unwrap();
        assert!(Flow::new(self.there, self.here).accepts(0, covered, received));
        let gids = GidPair::new(self.here.address, self.there.address);
        self.cm.receive(Instant(2), gids, packet.payload, 1 << 40);
    }
}

#[test]
fn a_stranger_connects_and_its_flood_and_its_broken_mads_harm_nobody() {
    let address = "127.95.0.15:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let server = Side::open(address);
    let (_, service) = server.listen(address);
    let mut stranger = Stranger::new("127.95.0.16:4791", "127.95.0.15:4791");
    stranger.ask(service.port(), 77);
    let (accepts, _) = server.request();
    server.cm.accept(accepts, &param(0x20_0000), b"").unwrap();
    stranger.receive();
    let event = stranger.cm.next_event().unwrap();
    assert!(matches!(event.kind, EventKind::ConnectResponse(_)), "{event:?}");
    stranger.cm.ready_to_use(77, b"").unwrap();
    stranger.send(3);
    server.expect(accepts, IdEventKind::Established);
    // More requests than may wait, each for another queue pair. Those beyond the backlog are refused.
    for qpn in 100..400 {
        stranger.ask(service.port(), qpn);
    }
    let came = until(at(address), |report| report.broker.tally.mads >= 2 + 8);
    assert_eq!(came.broker.tally.management, 0);
    let waiting: Vec<u64> = (0..8).map(|_| server.request().0).collect();
    assert!(
        !wait_readable(server.channel.as_fd(), Some(Duration::ZERO)).unwrap(),
        "only 8 requests may wait"
    );
    // Corrupted messages of all lengths. The socket may have no space for some of them.
    let mut frame = [0x5a; 280];
    frame[..8].copy_from_slice(&[0x64, 0x40, 0xff, 0xff, 0, 0, 0, 1]);
    let len = std::cell::Cell::new(8);
    until(at(address), |report| {
        len.set(if len.get() < frame.len() { len.get() + 4 } else { 8 });
        stranger.socket.send_to(&frame[..len.get()], at("127.95.0.15:4791")).unwrap();
        report.broker.tally.management >= 64
    });
    for id in waiting {
        server.cm.destroy(id).unwrap();
    }
    let client = Side::open(address);
    let asks = client.connect(address, service);
    let own = loop {
        // Repeated requests of the stranger may come first.
        let (id, request) = server.request();
        let IdEventKind::ConnectRequest { remote, .. } = request.kind else { panic!("{request:?}") };
        if remote.ip() == at(address).ip() {
            break id;
        }
    };
    server.cm.reject(own, b"").unwrap();
    client.expect(asks, IdEventKind::Rejected(28));
}

#[test]
fn an_answer_that_belongs_to_no_id_has_the_traffic_class_of_its_question() {
    const CLASS: u8 = 0x68;
    let there = "127.95.0.23:4791";
    let _broker = Broker::open(at(there), &Options::default()).unwrap();
    let _listens = Side::open(there).listen(there);
    let stranger = Stranger::new("127.95.0.25:4791", there);
    let mut mad = [0; mad::LEN];
    CmMessage::GetClassPortInfo.emit(1, &mut mad);
    let options = UdpOptions { traffic_class: CLASS, ..UdpOptions::default() };
    let socket = Socket::open(at("127.95.0.24:4791"), &options).unwrap();
    socket.show_ip_fields().unwrap();
    let here = udp::endpoint(socket.local());
    let frame = Stranger { here, ..stranger }.frame(&mad, 3);
    socket.send_to(&frame, &socket.destination(at(there))).unwrap();
    assert!(wait_readable(socket.as_fd(), Some(LONG)).unwrap(), "no answer");
    let answer = socket.recv_train(&mut [0; 2048]).unwrap().unwrap();
    assert_eq!(answer.fields.unwrap().traffic_class, CLASS);
}

/// Returns a message of an arbitrary connection between two hosts, with ids and queue pairs derived from a
/// number.
fn forged(number: u64) -> [u8; mad::LEN] {
    let random = |salt: u64| (number ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let local_comm_id = random(1) as u32;
    let remote_comm_id = random(2) as u32;
    let qpn = Qpn::new(2 + random(3) as u32 % (1 << 18));
    let message = match number % 5 {
        0 => {
            let guid = random(4).to_be_bytes();
            let [timeout, req] = [RejectReason::TIMEOUT, RejectReason::CONSUMER];
            let (reason, answered) =
                if random(5) % 2 == 0 { (timeout, Answered::Other) } else { (req, Answered::Req) };
            CmMessage::Rej(rej::Repr::new(local_comm_id, remote_comm_id, answered, reason, &guid, &[]))
        }
        1 => CmMessage::Drep(drep::Repr {
            local_comm_id,
            remote_comm_id,
            private_data: [0; drep::PRIVATE_LEN],
        }),
        2 => CmMessage::Rtu(rtu::Repr { local_comm_id, remote_comm_id, private_data: [0; rtu::PRIVATE_LEN] }),
        _ => CmMessage::Dreq(dreq::Repr {
            local_comm_id,
            remote_comm_id,
            remote_qpn: qpn,
            private_data: [0; dreq::PRIVATE_LEN],
        }),
    };
    let mut mad = [0; mad::LEN];
    message.emit(number, &mut mad);
    mad
}

/// Any user of a peer's host may send from that host's address.
#[test]
fn a_storm_of_forged_messages_from_a_peers_host_ends_no_connection_and_keeps_nobody_from_connecting() {
    const CONNECTIONS: u32 = 20;
    let address = "127.95.0.20:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let server = Side::open(address);
    let client = Side::open(address);
    let (_, service) = server.listen(address);
    let other = UdpSocket::bind(at(address)).unwrap().local_addr().unwrap();
    let stranger = Stranger::new(&other.to_string(), "127.95.0.20:4791");
    let over = AtomicBool::new(false);
    let connections = std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..).take_while(|_| !over.load(Ordering::Relaxed)).for_each(|number| {
                stranger.send_mad(&forged(number), 0);
                // As many as the socket has space for, so that some messages of the client get through.
                if number % 32 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
        // The storm ends with the test, also after a panic.
        let _ends = Ends(&over);
        let connect = |number| {
            let asks =
                client.connect_by(address, Connect { param: param(0x1000 + number), ..asking(service) });
            let (accepts, _) = server.request();
            server.cm.accept(accepts, &param(0x2000 + number), b"").unwrap();
            client.event();
            client.cm.ready_to_use(asks, b"").unwrap();
            server.expect(accepts, IdEventKind::Established);
            [asks, accepts]
        };
        (0..CONNECTIONS).map(connect).collect::<Vec<_>>()
    });
    let forged = report(at(address)).broker.tally.mads;
    assert!(forged > u64::from(3 * CONNECTIONS) + 100, "{forged} messages");
    for side in [&server, &client] {
        assert!(
            !wait_readable(side.channel.as_fd(), Some(Duration::ZERO)).unwrap(),
            "a connection has ended"
        );
    }
    for [asks, accepts] in connections {
        client.cm.disconnect(asks, b"").unwrap();
        server.expect(accepts, IdEventKind::Disconnected);
    }
}

/// Sets a flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
