//! A stranger's manager: it is answered as any peer, and what it sends too much or broken harms nobody.

use remora_broker::{Broker, IdEventKind, Options};
use remora_cm::{Cm, CmConfig, ConnectParam, EventKind, GidPair, Instant};
use remora_host::wait_readable;
use remora_port::udp;
use remora_wire::icrc::{self, Flow};
use remora_wire::mad::{self, PortSpace, ServiceId, ip_cm};
use remora_wire::{Endpoint, Extensions, Opcode, Packet, Psn, Qpn, bth, deth};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{Side, param};
use crate::{LONG, at, until};

/// A manager that is no broker's, on an address of its own, as another host's is.
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

    /// Asks for a connection to a service there, by this queue pair.
    fn ask(&mut self, port: u16, qpn: u32) {
        let gids = GidPair::new(self.here.address, self.there.address);
        let ip = ip_cm::Repr { port: 50_000, addresses: ip_cm::Addresses::of(gids.local, gids.remote) };
        let new = ConnectParam::new(gids, ServiceId::rdma_ip(PortSpace::Tcp, port), Qpn::new(qpn));
        let param = ConnectParam { ip: Some(ip), ..new };
        self.cm.connect(Instant(1), qpn.into(), &param).unwrap();
        self.send(0xbeef);
    }

    /// Sends what the manager has to send, with this IPv4 identification in the ICRC.
    fn send(&mut self, ip_id: u16) {
        let mut mad = [0; mad::LEN];
        while self.cm.transmit(&mut mad).is_some() {
            let bth = bth::Repr::new(Opcode::UD_SEND_ONLY, Qpn::new(1), Psn::new(1));
            let deth = Some(deth::Repr { qkey: mad::QKEY, src_qp: Qpn::new(1) });
            let packet = Packet::new(bth, Extensions { deth, ..Extensions::NONE }, &mad);
            let mut frame = vec![0; packet.buffer_len()];
            let end = packet.emit(&mut frame);
            let sealed = Flow::new(self.here, self.there).seal(ip_id, &frame[..end]);
            icrc::write(&mut frame, sealed);
            self.socket.send_to(&frame, udp::socket_address(self.there, 0)).unwrap();
        }
    }

    /// Takes the next MAD that comes, whose ICRC must be right.
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
    // More requests than may wait, each of another queue pair: those beyond the backlog are refused.
    for qpn in 100..400 {
        stranger.ask(service.port(), qpn);
    }
    let came = until(at(address), |report| report.broker.tally.mads >= 2 + 8);
    assert_eq!(came.broker.tally.management, 0);
    let waiting: Vec<u64> = (0..8).map(|_| server.request().0).collect();
    assert!(!wait_readable(server.channel.as_fd(), Some(Duration::ZERO)).unwrap(), "8 may wait");
    // Broken ones, of all lengths. The socket may have no space for some of them.
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
        // Those of the stranger that come again may be first.
        let (id, request) = server.request();
        let IdEventKind::ConnectRequest { remote, .. } = request.kind else { panic!("{request:?}") };
        if remote.ip() == at(address).ip() {
            break id;
        }
    };
    server.cm.reject(own, b"").unwrap();
    client.expect(asks, IdEventKind::Rejected(28));
}
