//! The guest's rping against a program of this test that connects by [`CmClient`]: the communication
//! managers, and rping's READ, WRITE and SENDs. rping's messages are an address, a key and a length,
//! big-endian.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use remora_broker::client::{self, CmClient, EventChannel, Options, Watch};
use remora_broker::{Connect, ConnectedService, IdEvent, IdEventKind, PortSpace};
use remora_cm::ConnParam;
use remora_host::wait_readable;
use remora_verbs::raw::{ChannelAdapter, Cq, Pd, Qp, QpAttributes};
use remora_verbs::{
    Access, Bytes, Device, Key, Modify, Psn, Range, ReceiveRequest, Remote, Service, Sge, State, Status,
    WorkRequest, work,
};
use remora_wire::{Endpoint, ROCE_PORT};

use crate::capture::Capture;
use crate::guest::Guest;
use crate::network::{GUEST, Network, OWN};
use crate::{LIMIT, image};

/// Bytes that rping sends in each direction, and the number of rounds.
const SIZE: usize = 4000;
const ROUNDS: usize = 30;
/// rping's port of the communication manager.
const PORT: u16 = 7174;
/// Length of rping's message in bytes.
const MESSAGE: usize = 16;
/// Offsets in the memory of received messages, of sent messages, and of the data.
const INBOX: usize = 0;
const OUTBOX: usize = 64;
const DATA: usize = 4096;
const SINK: usize = 8192;

/// A program: its share of the address, one queue pair, and memory.
struct Program {
    adapter: Arc<ChannelAdapter>,
    _watch: Watch,
    pd: Pd,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    key: Key,
    memory: Bytes,
    cm: CmClient,
    channel: EventChannel,
    /// Completed requests that nobody has waited for yet.
    ended: Vec<u64>,
}

impl Program {
    fn open(address: SocketAddr) -> Program {
        let options = Options::from_environment();
        let range = client::open(address, &options).unwrap();
        let adapter = ChannelAdapter::open(&Device::shared(range.endpoint().clone())).unwrap();
        let counted = Arc::clone(&adapter);
        let failing = Arc::clone(&adapter);
        let watch =
            Watch::of(&range, None, None, move || counted.counters(), move || failing.fail()).unwrap();
        let pd = adapter.alloc_domain().unwrap();
        let cq = Cq::create(&adapter, 64, None, false).unwrap();
        let caps = QpAttributes {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_recv_sge: 1,
            max_send_sge: 1,
            ..QpAttributes::default()
        };
        let qp = Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &caps).unwrap();
        let memory = Bytes::heap(SINK + SIZE).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let key = adapter.register(pd, &[Range::whole(&memory)], access).unwrap();
        let init = Modify {
            state: Some(State::Init),
            access: Some(access),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        };
        qp.modify(&init).unwrap();
        let cm = CmClient::open(address, &options).unwrap();
        let channel = cm.create_channel().unwrap();
        Program { adapter, _watch: watch, pd, cq, qp, key, memory, cm, channel, ended: Vec::new() }
    }

    fn param(&self) -> ConnParam {
        ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: true,
            retry_count: 6,
            rnr_retry_count: 7,
            srq: false,
            qpn: self.qp.number(),
            starting_psn: Psn::new(self.qp.number().get() ^ 0x5a_5a5a),
        }
    }

    #[track_caller]
    fn event(&self) -> IdEvent {
        assert!(wait_readable(self.channel.as_fd(), Some(LIMIT)).unwrap(), "no event comes");
        self.channel.next_event().unwrap()
    }

    /// Moves the queue pair to RTS, with the attributes that the communication managers agreed on.
    fn ready(&self, id: u64) {
        let agreed = self.cm.qp_attributes(id).unwrap();
        let peer = Endpoint { address: agreed.gids.remote, udp_port: ROCE_PORT };
        let rtr = Modify {
            state: Some(State::Rtr),
            address: Some(self.adapter.address_vector(peer, agreed.traffic_class, agreed.hop_limit).unwrap()),
            path_mtu: Some(128 << agreed.path_mtu),
            dest_qp: Some(agreed.remote_qpn),
            rq_psn: Some(agreed.rq_psn),
            max_dest_rd_atomic: Some(agreed.responder_resources),
            min_rnr_timer: Some(12),
            ..Modify::default()
        };
        self.qp.modify(&rtr).unwrap();
        let rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(agreed.sq_psn),
            timeout: Some(agreed.timeout.max(14)),
            retry_cnt: Some(agreed.retry_count),
            rnr_retry: Some(agreed.rnr_retry_count),
            max_rd_atomic: Some(agreed.initiator_depth),
            ..Modify::default()
        };
        self.qp.modify(&rts).unwrap();
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge { addr: self.at(offset), len: len as u32, lkey: self.key }
    }

    fn at(&self, offset: usize) -> u64 {
        self.memory.address() + offset as u64
    }

    fn receive(&self) {
        let sges = [self.sge(INBOX, MESSAGE)];
        self.qp.post_recv(|queue| queue.push(&ReceiveRequest { id: 0, sges: &sges })).unwrap().unwrap();
    }

    fn post(&self, request: &WorkRequest<'_>) {
        self.qp.post_send(|queue| queue.push(request)).unwrap().unwrap();
    }

    /// Sends rping's message, which describes these bytes of the program's memory.
    fn announce(&mut self, offset: usize, len: usize) {
        let mut message = self.at(offset).to_be_bytes().to_vec();
        message.extend(self.key.get().to_be_bytes());
        message.extend((len as u32).to_be_bytes());
        self.memory.write(OUTBOX, &message).unwrap();
        self.post(&work::send(1, &[self.sge(OUTBOX, MESSAGE)]));
    }

    /// Waits until each of these requests has succeeded; the receive has id 0. Other completions are kept,
    /// since the peer's next message may arrive before the last own one is acknowledged.
    #[track_caller]
    fn ended(&mut self, ids: &[u64]) {
        let limit = Instant::now() + LIMIT;
        for wanted in ids {
            loop {
                if let Some(index) = self.ended.iter().position(|id| id == wanted) {
                    self.ended.swap_remove(index);
                    break;
                }
                let ended = &mut self.ended;
                let polled = self.cq.poll(8, |cqe| {
                    assert_eq!(cqe.completion.status, Status::Success, "request {}", cqe.completion.id);
                    ended.push(cqe.completion.id);
                });
                polled.unwrap();
                assert!(Instant::now() < limit, "request {wanted} does not end");
            }
        }
    }

    /// Parses the peer's last message.
    fn announced(&self) -> (Remote, usize) {
        let mut message = [0; MESSAGE];
        self.memory.read(INBOX, &mut message).unwrap();
        let word = |offset: usize| u32::from_be_bytes(message[offset..offset + 4].try_into().unwrap());
        let addr = u64::from(word(0)) << 32 | u64::from(word(4));
        (Remote { addr, rkey: Key::new(word(8)) }, word(12) as usize)
    }

    /// Performs a round as rping's server: READs the client's data, and WRITEs them back.
    fn serve_round(&mut self) {
        self.ended(&[0]);
        let (source, len) = self.announced();
        assert_eq!(len, SIZE);
        self.receive();
        self.post(&work::read(2, &[self.sge(DATA, len)], source));
        self.ended(&[2]);
        self.announce(INBOX, MESSAGE);
        self.ended(&[1, 0]);
        let (sink, len) = self.announced();
        self.receive();
        self.post(&work::write(3, &[self.sge(DATA, len)], sink));
        self.ended(&[3]);
        self.announce(INBOX, MESSAGE);
        self.ended(&[1]);
    }

    /// Performs a round as rping's client.
    fn ask_round(&mut self, round: usize) {
        let mut data: Vec<u8> = (0..SIZE).map(|index| b'A' + ((index + round) % 57) as u8).collect();
        // rping's server sends back a zero-terminated string, whatever its length.
        data[SIZE - 1] = 0;
        self.memory.write(DATA, &data).unwrap();
        for offset in [DATA, SINK] {
            self.receive();
            self.announce(offset, SIZE);
            self.ended(&[1, 0]);
        }
        let mut back = vec![1; SIZE];
        self.memory.read(SINK, &mut back).unwrap();
        assert!(back == data, "round {round}");
    }

    /// Checks that no frame was counted as corrupted, and that all objects can be destroyed.
    fn end(self) {
        assert_eq!(self.adapter.counters().rx_icrc_encapsulated, 0);
        self.qp.destroy().unwrap();
        self.adapter.deregister(self.key).unwrap();
        self.adapter.free_domain(self.pd).unwrap();
    }
}

/// The guest's rping is the client.
fn serve(guest: &mut Guest, address: SocketAddr) {
    let mut program = Program::open(address);
    let listener = program.cm.create_id(&program.channel, PortSpace::Tcp).unwrap();
    program.cm.bind(listener, SocketAddr::new(address.ip(), PORT), false).unwrap();
    program.cm.listen(listener, 1).unwrap();
    let rping = guest.spawn(&format!("rping -c -a {} -p {PORT} -C {ROUNDS} -S {SIZE} -V", address.ip()));
    let request = program.event();
    assert!(matches!(request.kind, IdEventKind::ConnectRequest { .. }), "{request:?}");
    program.receive();
    program.cm.accept(request.id, &program.param(), b"").unwrap();
    program.ready(request.id);
    (0..ROUNDS).for_each(|_| program.serve_round());
    let rping = guest.wait(rping, LIMIT);
    assert_eq!(rping.status, Some(0), "{}", rping.printed);
    assert_eq!(program.event().kind, IdEventKind::Established);
    assert_eq!(program.event().kind, IdEventKind::Disconnected);
    program.end();
}

/// The guest's rping is the server.
fn ask(guest: &mut Guest, address: SocketAddr, destination: SocketAddr) {
    let rping = guest.spawn(&format!("rping -s -a {} -p {PORT} -C {ROUNDS} -S {SIZE}", destination.ip()));
    while guest.run("rdma resource show cm_id | grep -q LISTEN").status != Some(0) {
        assert!(!guest.has_ended(rping), "rping does not listen");
    }
    let mut program = Program::open(address);
    let id = program.cm.create_id(&program.channel, PortSpace::Tcp).unwrap();
    program.cm.bind(id, SocketAddr::new(address.ip(), 0), false).unwrap();
    let connect = Connect {
        destination,
        service: ConnectedService::Rc,
        path_mtu: 3,
        traffic_class: 0,
        param: program.param(),
        private_data: Vec::new(),
    };
    program.cm.connect(id, connect).unwrap();
    let response = program.event();
    assert!(matches!(response.kind, IdEventKind::ConnectResponse(_)), "{response:?}");
    program.ready(id);
    program.cm.ready_to_use(id, b"").unwrap();
    (0..ROUNDS).for_each(|round| program.ask_round(round));
    program.cm.disconnect(id, b"").unwrap();
    assert_eq!(program.event().kind, IdEventKind::Disconnected);
    let rping = guest.wait(rping, LIMIT);
    assert!(rping.printed.is_empty() || rping.status == Some(0), "{rping:?}");
    program.end();
}

#[test]
#[ignore = "`make interop` starts the guest"]
fn a_program_of_ours_connects_with_rping_of_soft_roce_each_way() {
    let image = image();
    let network = Network::new().unwrap();
    let mut guest = Guest::start(&image, &network.wire);
    let capture = Capture::begin(&network.wire, "rping");
    for family in [0, 1] {
        let endpoint = |addresses: [&str; 2], port| SocketAddr::new(addresses[family].parse().unwrap(), port);
        let inside = network.host.inside(|| {
            serve(&mut guest, endpoint(OWN, ROCE_PORT));
            ask(&mut guest, endpoint(OWN, ROCE_PORT), endpoint(GUEST, PORT));
        });
        inside.unwrap();
    }
    let [own, theirs] = capture.check(false);
    assert!(own > 10 * ROUNDS && theirs > 10 * ROUNDS, "{own} and {theirs} frames");
}
