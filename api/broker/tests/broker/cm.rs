//! Programs that connect by the communication manager: on one address, on two, and with a program that dies.

mod strangers;

use remora_broker::client::{self, CmClient, EventChannel};
use remora_broker::{Broker, Connect, ConnectedService, IdEvent, IdEventKind, Options, PortSpace, Posted};
use remora_cm::ConnParam;
use remora_host::{wait_either, wait_readable};
use remora_wire::{Psn, Qpn};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Duration;

use crate::{LONG, at, never, report, until};

const EINVAL: i32 = 22;
const EMFILE: i32 = 24;
const ENOMEM: i32 = 12;
const EBADF: i32 = 9;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ENETUNREACH: i32 = 101;

/// Environment variables with the address of a program's own broker, and the service that it connects to.
const ADDRESS: &str = "REMORA_TEST_CM_ADDRESS";
const SERVICE: &str = "REMORA_TEST_CM_SERVICE";

/// A program's connection to the communication manager, and an event channel.
struct Side {
    cm: CmClient,
    channel: EventChannel,
}

impl Side {
    fn open(address: &str) -> Side {
        let cm = CmClient::open(at(address), &never()).unwrap();
        let channel = cm.create_channel().unwrap();
        Side { cm, channel }
    }

    /// Creates an id that listens at this address. Returns the id, and the address with its port.
    fn listen(&self, address: &str) -> (u64, SocketAddr) {
        let id = self.cm.create_id(&self.channel, PortSpace::Tcp).unwrap();
        self.cm.bind(id, at(address), false).unwrap();
        (id, self.cm.listen(id, 8).unwrap())
    }

    /// Creates an id that requests a connection to this service, from this address.
    fn connect(&self, local: &str, destination: SocketAddr) -> u64 {
        self.connect_by(local, asking(destination))
    }

    fn connect_by(&self, local: &str, connect: Connect) -> u64 {
        let id = self.cm.create_id(&self.channel, PortSpace::Tcp).unwrap();
        self.cm.bind(id, at(local), false).unwrap();
        self.cm.connect(id, connect).unwrap();
        id
    }

    #[track_caller]
    fn event(&self) -> IdEvent {
        assert!(wait_readable(self.channel.as_fd(), Some(LONG)).unwrap(), "no event comes");
        self.channel.next_event().unwrap()
    }

    /// Takes the next event, which must have this id and kind. Returns its private data.
    #[track_caller]
    fn expect(&self, id: u64, kind: IdEventKind) -> Vec<u8> {
        let event = self.event();
        assert_eq!((event.id, event.kind), (id, kind));
        event.private_data
    }

    /// Takes the next event, which must be a request. Returns the new id and the event.
    #[track_caller]
    fn request(&self) -> (u64, IdEvent) {
        let event = self.event();
        assert!(matches!(event.kind, IdEventKind::ConnectRequest { .. }), "{event:?}");
        (event.id, event)
    }
}

fn param(qpn: u32) -> ConnParam {
    ConnParam {
        responder_resources: 4,
        initiator_depth: 3,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 6,
        srq: false,
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn + 1),
    }
}

fn asking(destination: SocketAddr) -> Connect {
    let private_data = b"from the active side".to_vec();
    let service = ConnectedService::Rc;
    Connect { destination, service, path_mtu: 3, traffic_class: 0x20, param: param(0x10_0000), private_data }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: std::io::Result<T>, errno: i32) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
}

/// Returns the parameters of a program's queue pair as the other side sees them.
fn turned(param: ConnParam) -> ConnParam {
    let (responder_resources, initiator_depth) = (param.initiator_depth, param.responder_resources);
    ConnParam { responder_resources, initiator_depth, ..param }
}

/// Connects two programs: checks private data both ways, the attributes of the queue pairs, and the end.
#[track_caller]
fn two_programs_connect(passive: &str, active: &str) {
    let server = Side::open(passive);
    let client = Side::open(active);
    let (listener, service) = server.listen(passive);
    let asks = client.connect(active, service);
    let (accepts, request) = server.request();
    assert_eq!(&request.private_data[..20], b"from the active side");
    let IdEventKind::ConnectRequest { listener: event_listener, local, remote, param: proposed, .. } =
        request.kind
    else {
        panic!("{request:?}")
    };
    assert_eq!((event_listener, local, remote.ip()), (listener, service, at(active).ip()));
    assert!(remote.port() >= 32_768, "an ephemeral port");
    assert_eq!(proposed, turned(param(0x10_0000)));
    server.cm.accept(accepts, &param(0x20_0000), b"from the passive side").unwrap();
    let response = ConnParam { retry_count: 0, ..turned(param(0x20_0000)) };
    let reply = client.expect(asks, IdEventKind::ConnectResponse(response));
    assert_eq!(&reply[..21], b"from the passive side");
    client.cm.ready_to_use(asks, b"ready").unwrap();
    assert_eq!(&server.expect(accepts, IdEventKind::Established)[..5], b"ready");
    let [here, there] = [client.cm.qp_attributes(asks), server.cm.qp_attributes(accepts)].map(Result::unwrap);
    assert_eq!((here.remote_qpn, there.remote_qpn), (Qpn::new(0x20_0000), Qpn::new(0x10_0000)));
    assert_eq!((here.sq_psn, here.rq_psn), (there.rq_psn, there.sq_psn));
    assert_eq!((here.path_mtu, there.path_mtu, there.traffic_class), (3, 3, 0x20));
    client.cm.disconnect(asks, b"").unwrap();
    server.expect(accepts, IdEventKind::Disconnected);
    server.cm.disconnect(accepts, b"").unwrap();
    client.expect(asks, IdEventKind::Disconnected);
    refused(client.cm.disconnect(asks, b""), EINVAL);
    for (side, id) in [(&client, asks), (&server, accepts), (&server, listener)] {
        side.cm.destroy(id).unwrap();
        refused(side.cm.destroy(id), EINVAL);
    }
}

#[test]
fn two_programs_of_one_address_connect_speak_and_disconnect() {
    let _broker = Broker::open(at("127.95.0.1:0"), &Options::default()).unwrap();
    two_programs_connect("127.95.0.1:7174", "127.95.0.1:0");
    let tally = report(at("127.95.0.1:0")).broker.tally;
    assert_eq!((tally.management, tally.unsent, tally.refused), (0, 0, 0), "{tally:?}");
    assert!(tally.mads >= 5, "REQ, REP, RTU, DREQ, DREP: {tally:?}");
}

#[test]
fn programs_of_two_addresses_connect_over_both_families_and_also_where_the_kernel_cannot_steer() {
    let relaying = Options { steered: remora_broker::SteeredBy::Reader, ..Options::default() };
    let _brokers = [
        Broker::open(at("127.95.0.2:0"), &Options::default()).unwrap(),
        Broker::open(at("127.95.0.3:0"), &relaying).unwrap(),
        Broker::open(at("[::1]:0"), &Options::default()).unwrap(),
    ];
    two_programs_connect("127.95.0.2:7174", "127.95.0.3:0");
    two_programs_connect("127.95.0.3:7174", "127.95.0.2:0");
    two_programs_connect("[::1]:7174", "[::1]:0");
}

#[test]
fn a_program_that_has_its_address_alone_connects_by_the_device_that_reads_the_only_socket() {
    let here = "127.95.0.18:0";
    let there = "127.95.0.19:0";
    let alone = client::Options { start: client::Start::Alone, ..never() };
    let _device = client::open_device(at(here), &alone, |device| device).unwrap();
    let _broker = Broker::open(at(there), &Options::default()).unwrap();
    two_programs_connect("127.95.0.18:7174", there);
    two_programs_connect("127.95.0.19:7174", here);
    two_programs_connect("127.95.0.18:7175", here);
}

#[test]
fn a_refusal_has_its_reason_and_private_data_and_nobody_who_listens_is_one_too() {
    let address = "127.95.0.4:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let server = Side::open(address);
    let client = Side::open(address);
    let (listener, service) = server.listen(address);
    let asks = client.connect(address, service);
    let (refuses, _) = server.request();
    server.cm.reject(refuses, b"not today").unwrap();
    let reply = client.expect(asks, IdEventKind::Rejected(28));
    assert_eq!(&reply[..9], b"not today");
    // An id that is destroyed with an unanswered request refuses it.
    let asks = client.connect(address, service);
    let (forgotten, _) = server.request();
    server.cm.destroy(forgotten).unwrap();
    client.expect(asks, IdEventKind::Rejected(28));
    // The active side may refuse the response.
    let asks = client.connect(address, service);
    let (accepts, _) = server.request();
    server.cm.accept(accepts, &param(0x20_0000), b"").unwrap();
    assert!(matches!(client.event().kind, IdEventKind::ConnectResponse(_)));
    client.cm.reject(asks, b"").unwrap();
    server.expect(accepts, IdEventKind::Rejected(28));
    server.cm.destroy(listener).unwrap();
    let asks = client.connect(address, service);
    client.expect(asks, IdEventKind::Rejected(8));
}

/// Regression: a connect to a port without a listener took 126 ms, because the broker repeated the
/// request six times even where no program could be about to listen.
#[test]
fn a_request_where_no_program_could_listen_is_refused_and_one_that_comes_early_is_served() {
    let address = "127.95.0.47:0";
    let service = at("127.95.0.47:7174");
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let client = Side::open(address);
    let asks = client.connect(address, service);
    client.expect(asks, IdEventKind::Rejected(8));
    assert_eq!(report(at(address)).broker.tally.mads, 2, "the MADs are a request and its refusal");
    let server = Side::open(address);
    loop {
        let before = report(at(address)).broker.tally.mads;
        let asks = client.connect(address, service);
        until(at(address), |report| report.broker.tally.mads > before);
        let (listener, _) = server.listen("127.95.0.47:7174");
        wait_either(&server.channel, &client.channel).unwrap();
        if wait_readable(server.channel.as_fd(), Some(Duration::ZERO)).unwrap() {
            let (refuses, _) = server.request();
            server.cm.reject(refuses, b"").unwrap();
            client.expect(asks, IdEventKind::Rejected(28));
            break;
        }
        // On a busy machine, the request has waited long enough and was refused.
        client.expect(asks, IdEventKind::Rejected(8));
        server.cm.destroy(listener).unwrap();
    }
}

#[test]
fn a_response_is_enough_for_the_passive_side_when_its_queue_pair_has_heard_the_peer() {
    let address = "127.95.0.5:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let server = Side::open(address);
    let client = Side::open(address);
    let (_, service) = server.listen(address);
    let asks = client.connect(address, service);
    let (accepts, _) = server.request();
    refused(server.cm.establish(accepts), EINVAL);
    server.cm.accept(accepts, &param(0x20_0000), b"").unwrap();
    assert!(matches!(client.event().kind, IdEventKind::ConnectResponse(_)));
    server.cm.establish(accepts).unwrap();
    server.expect(accepts, IdEventKind::Established);
    client.cm.ready_to_use(asks, b"").unwrap();
    client.cm.disconnect(asks, b"").unwrap();
    server.expect(accepts, IdEventKind::Disconnected);
}

#[test]
fn a_service_of_datagrams_says_its_queue_pair_or_refuses_and_its_ports_are_others() {
    let address = "127.95.0.17:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let server = Side::open(address);
    let client = Side::open(address);
    let (_, service) = server.listen("127.95.0.17:7174");
    let listener = server.cm.create_id(&server.channel, PortSpace::Udp).unwrap();
    server.cm.bind(listener, service, false).unwrap();
    server.cm.listen(listener, 8).unwrap();
    refused(client.cm.create_id(&client.channel, PortSpace::Ipoib), 93);
    let ask = |port: u16| {
        let id = client.cm.create_id(&client.channel, PortSpace::Udp).unwrap();
        client.cm.bind(id, at(address), false).unwrap();
        client.cm.connect(id, asking(SocketAddr::new(service.ip(), port))).unwrap();
        id
    };
    let request = || {
        let event = server.event();
        let IdEventKind::DatagramRequest { listener: event_listener, local, remote } = event.kind else {
            panic!("{event:?}")
        };
        assert_eq!((event_listener, local, remote.ip()), (listener, service, service.ip()));
        assert_eq!(&event.private_data[..20], b"from the active side");
        event.id
    };
    let response = |status, qpn, qkey| IdEventKind::DatagramResponse { status, qpn: Qpn::new(qpn), qkey };
    let asks = ask(7174);
    let answers = request();
    refused(server.cm.accept(answers, &param(1), b""), EINVAL);
    refused(server.cm.accept_datagrams(answers, Qpn::new(5), 1, &[0; 137]), EINVAL);
    server.cm.accept_datagrams(answers, Qpn::new(0x20_0005), 0x0123_4567, b"here").unwrap();
    assert_eq!(&client.expect(asks, response(0, 0x20_0005, 0x0123_4567))[..4], b"here");
    let asks = ask(7174);
    let answers = request();
    server.cm.reject(answers, b"no").unwrap();
    assert_eq!(&client.expect(asks, response(2, 0, 0))[..2], b"no");
    let asks = ask(7174);
    let answers = request();
    server.cm.destroy(answers).unwrap();
    client.expect(asks, response(2, 0, 0));
    let asks = ask(7175);
    client.expect(asks, response(1, 0, 0));
}

/// The entry point of a program that connects, prints that, and stays connected until it is killed. Without
/// an address it does nothing.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn a_program_that_connects() {
    let address = std::env::var(ADDRESS).expect("set by the test that starts this process");
    let side = Side::open(&address);
    let id = side.connect(&address, at(&std::env::var(SERVICE).unwrap()));
    assert!(matches!(side.event().kind, IdEventKind::ConnectResponse(_)));
    side.cm.ready_to_use(id, b"").unwrap();
    println!("connected");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_program_that_is_killed_is_disconnected_for_it_and_its_ports_are_free() {
    let here = "127.95.0.6:0";
    let there = "127.95.0.7:0";
    let _brokers = [here, there].map(|address| Broker::open(at(address), &Options::default()).unwrap());
    let server = Side::open(here);
    let (_, service) = server.listen(here);
    // On the server's own address, and on another address.
    for address in [here, there] {
        let mut program = crate::own::test(module_path!(), "a_program_that_connects");
        program.env(ADDRESS, address).env(SERVICE, service.to_string());
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (accepts, _) = server.request();
        server.cm.accept(accepts, &param(0x20_0000), b"").unwrap();
        server.expect(accepts, IdEventKind::Established);
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.contains("connected")));
        program.kill().unwrap();
        program.wait().unwrap();
        server.expect(accepts, IdEventKind::Disconnected);
        server.cm.disconnect(accepts, b"").unwrap();
        server.cm.destroy(accepts).unwrap();
    }
    // A program that ends with a listener and an unanswered request.
    let client = Side::open(there);
    let asks = client.connect(there, service);
    server.request();
    drop(server);
    client.expect(asks, IdEventKind::Rejected(28));
    let next = Side::open(here);
    until(at(here), |_| {
        let id = next.cm.create_id(&next.channel, PortSpace::Tcp).unwrap();
        next.cm.bind(id, service, false).is_ok()
    });
}

#[test]
fn a_port_is_one_programs_and_addresses_are_those_of_the_broker() {
    let address = "127.95.0.8:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let one = Side::open(address);
    let other = Side::open(address);
    let (listener, service) = one.listen("0.0.0.0:7174");
    assert_eq!(service, at("[::]:7174"), "the listener is bound to every address");
    let id = other.cm.create_id(&other.channel, PortSpace::Tcp).unwrap();
    refused(other.cm.bind(id, at("127.95.0.8:7174"), false), EADDRINUSE);
    refused(other.cm.bind(id, at("127.95.0.8:7174"), true), EADDRINUSE);
    refused(other.cm.bind(id, at("127.95.0.9:7174"), false), EADDRNOTAVAIL);
    refused(other.cm.connect(id, asking(service)), EINVAL);
    refused(one.cm.bind(id, at(address), false), EINVAL);
    refused(one.cm.destroy(id), EINVAL);
    refused(other.cm.listen(listener, 1), EINVAL);
    let bound = other.cm.bind(id, at(address), false).unwrap();
    assert!(bound.ip() == at(address).ip() && bound.port() >= 32_768, "{bound}");
    refused(other.cm.bind(id, at(address), false), EINVAL);
    refused(other.cm.connect(id, asking(at("[::1]:7174"))), ENETUNREACH);
    for wrong in [
        Connect { path_mtu: 6, ..asking(at("127.95.0.8:7174")) },
        Connect { private_data: vec![0; 57], ..asking(at("127.95.0.8:7174")) },
        asking(at("224.0.0.1:7174")),
    ] {
        refused(other.cm.connect(id, wrong), EINVAL);
    }
    refused(other.cm.accept(id, &param(1), &[0; 225]), EINVAL);
    other.cm.connect(id, asking(at("127.95.0.8:7174"))).unwrap();
    let (accepts, _) = one.request();
    refused(one.cm.accept(accepts, &param(1), &[0; 197]), EINVAL);
    one.cm.accept(accepts, &param(0x20_0000), &[0; 196]).unwrap();
    assert!(matches!(other.event().kind, IdEventKind::ConnectResponse(_)));
    // While an id listens at a port of all addresses, another id cannot bind to it; afterwards it can.
    one.cm.destroy(listener).unwrap();
    let id = other.cm.create_id(&other.channel, PortSpace::Tcp).unwrap();
    assert_eq!(other.cm.bind(id, at("127.95.0.8:7174"), false).unwrap(), at("127.95.0.8:7174"));
}

#[test]
fn an_id_moves_to_another_channel_and_a_closed_channel_takes_nobody_with_it() {
    let address = "127.95.0.10:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let mut server = Side::open(address);
    let client = Side::open(address);
    let (listener, service) = server.listen(address);
    let first = std::mem::replace(&mut server.channel, server.cm.create_channel().unwrap());
    server.cm.migrate(listener, &server.channel).unwrap();
    refused(client.cm.create_id(&server.channel, PortSpace::Tcp), EBADF);
    let asks = client.connect(address, service);
    let (accepts, _) = server.request();
    server.cm.migrate(accepts, &first).unwrap();
    server.cm.accept(accepts, &param(0x20_0000), b"").unwrap();
    assert!(matches!(client.event().kind, IdEventKind::ConnectResponse(_)));
    client.cm.ready_to_use(asks, b"").unwrap();
    assert!(wait_readable(first.as_fd(), Some(LONG)).unwrap());
    assert_eq!(first.next_event().unwrap().kind, IdEventKind::Established);
    drop(first);
    client.cm.disconnect(asks, b"").unwrap();
    // The request is for a closed channel, so nobody is notified of it, and its queue pair stays in use. The
    // listener's channel is unaffected.
    let by = |qpn| Connect { param: param(qpn), ..asking(service) };
    client.connect_by(address, by(0x10_0001));
    server.request();
    // A request of which nobody can be notified is refused.
    drop(server.channel);
    let asks = client.connect_by(address, by(0x10_0002));
    loop {
        let event = client.event();
        if event.id == asks {
            break assert_eq!(event.kind, IdEventKind::Rejected(28));
        }
    }
}

#[test]
fn a_program_that_reads_no_events_is_hung_up_and_everybody_else_is_served() {
    let address = "127.95.0.11:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let deaf = Side::open(address);
    let good = Side::open(address);
    let (_, service) = good.listen(address);
    // Each request to a port where nobody listens causes an event.
    let mut asked = 0;
    let hung_up = loop {
        let asking = || -> std::io::Result<()> {
            let id = deaf.cm.create_id(&deaf.channel, PortSpace::Tcp)?;
            deaf.cm.bind(id, at(address), false)?;
            deaf.cm.connect(id, asking(at("127.95.0.11:9")))
        };
        match asking() {
            Ok(()) => asked += 1,
            Err(error) => break error,
        }
    };
    assert!(asked > 4096, "{asked}: {hung_up}");
    let tally = until(at(address), |report| report.broker.tally.dropped == 1).broker.tally;
    assert_eq!(tally.refused, 0);
    drop(deaf);
    let next = Side::open(address);
    let asks = next.connect(address, service);
    let (refuses, _) = good.request();
    good.cm.reject(refuses, b"").unwrap();
    next.expect(asks, IdEventKind::Rejected(28));
}

#[test]
fn ids_and_channels_are_bounded_and_free_again_when_their_program_is_gone() {
    let address = "127.95.0.12:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let greedy = Side::open(address);
    let other = Side::open(address);
    let mut ids = 0;
    while greedy.cm.create_id(&greedy.channel, PortSpace::Tcp).map_err(|error| error.raw_os_error()).is_ok() {
        ids += 1;
    }
    assert_eq!(ids, 16_384);
    refused(other.cm.create_id(&other.channel, PortSpace::Tcp), ENOMEM);
    let channels: Vec<EventChannel> = std::iter::from_fn(|| greedy.cm.create_channel().ok()).collect();
    assert_eq!(channels.len(), 254);
    refused(other.cm.create_channel(), EMFILE);
    drop((greedy, channels));
    until(at(address), |_| other.cm.create_id(&other.channel, PortSpace::Tcp).is_ok());
    other.cm.create_channel().unwrap();
}

#[test]
fn a_broker_stays_while_a_program_connects_and_its_end_ends_the_channels() {
    let address = "127.95.0.14:0";
    let options = Options { linger: Some(Duration::from_millis(300)), ..Options::default() };
    let broker = Broker::open(at(address), &options).unwrap();
    let side = Side::open(address);
    let stays = !wait_readable(broker.ended(), Some(Duration::from_millis(900))).unwrap();
    assert!(stays, "a program connects");
    drop(side);
    assert!(wait_readable(broker.ended(), Some(LONG)).unwrap());
    let broker = Broker::open(at(address), &Options::default()).unwrap();
    let side = Side::open(address);
    drop(broker);
    assert!(wait_readable(side.channel.as_fd(), Some(LONG)).unwrap());
    refused(side.channel.next_event(), 32);
    assert!(side.cm.create_id(&side.channel, PortSpace::Tcp).is_err());
}

#[test]
fn a_program_of_the_communication_manager_may_not_ask_for_ranges_nor_others_for_ids() {
    let address = at("127.95.0.13:0");
    let _broker = Broker::open(address, &Options::default()).unwrap();
    let connect = || {
        remora_host::packet::PacketSocket::connect_abstract("remora-broker/127.95.0.13:4791", LONG).unwrap()
    };
    // A program of the communication manager asks for counters and opens it once more, and a program that
    // only asks creates a channel.
    for (kind, then) in [(7_u8, &[crate::clients::COUNTERS][..]), (7, &[7]), (2, &[15, 0])] {
        let socket = connect();
        socket
            .send(&[&[kind][..], b"RemoraBr", &crate::clients::VERSION.to_le_bytes()].concat(), &[])
            .unwrap();
        let mut buffer = [0; 2048];
        assert!(socket.receive(&mut buffer).unwrap().len > 0 && buffer[0] != 1, "opened");
        socket.send(then, &[]).unwrap();
        assert!(socket.receive(&mut buffer).unwrap().len > 0 && buffer[0] == 1, "refused");
    }
    assert_eq!(client::open(address, &never()).unwrap().number(), 1);
}

#[test]
fn an_event_of_the_programs_own_comes_behind_those_that_are_there() {
    let address = "127.95.0.21:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let side = Side::open(address);
    let id = side.cm.create_id(&side.channel, PortSpace::Tcp).unwrap();
    let posted = |code| Posted { code, status: -110, subject: u64::MAX };
    for code in 0..3 {
        side.cm.post(id, posted(code)).unwrap();
    }
    for code in 0..3 {
        side.expect(id, IdEventKind::Posted(posted(code)));
    }
    refused(side.cm.post(id + 1, posted(0)), EINVAL);
    side.cm.destroy(id).unwrap();
    refused(side.cm.post(id, posted(0)), EINVAL);
}

#[test]
fn a_port_of_all_addresses_becomes_the_same_port_of_one() {
    let address = "127.95.0.22:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let side = Side::open(address);
    let [id, other] = [(); 2].map(|()| side.cm.create_id(&side.channel, PortSpace::Tcp).unwrap());
    let everywhere = side.cm.bind(id, at("0.0.0.0:0"), false).unwrap();
    refused(side.cm.bind(id, at("0.0.0.0:0"), false), EINVAL);
    refused(side.cm.bind(id, at("127.95.0.22:1"), false), EINVAL);
    let here = side.cm.bind(id, at(address), false).unwrap();
    assert_eq!(here, SocketAddr::new(at(address).ip(), everywhere.port()));
    refused(side.cm.bind(id, at(address), false), EINVAL);
    refused(side.cm.bind(other, here, false), EADDRINUSE);
    side.cm.listen(id, 1).unwrap();
    refused(side.cm.bind(id, at(address), false), EINVAL);
}

#[test]
fn programs_of_xrc_connect_in_the_port_space_of_ib() {
    let address = "127.95.0.24:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let side = Side::open(address);
    let [listener, asks] = [(); 2].map(|()| side.cm.create_id(&side.channel, PortSpace::Ib).unwrap());
    side.cm.bind(listener, at(address), false).unwrap();
    let service = side.cm.listen(listener, 8).unwrap();
    side.cm.bind(asks, at(address), false).unwrap();
    side.cm.connect(asks, Connect { service: ConnectedService::Xrc, ..asking(service) }).unwrap();
    let (accepts, request) = side.request();
    let IdEventKind::ConnectRequest { service, .. } = request.kind else { panic!("{request:?}") };
    assert_eq!(service, ConnectedService::Xrc);
    side.cm.accept(accepts, &param(0x20_0000), b"").unwrap();
    let response = side.event();
    assert!(matches!(response.kind, IdEventKind::ConnectResponse(_)), "{response:?}");
    assert_eq!(side.cm.qp_attributes(asks).unwrap().service, ConnectedService::Xrc);
}
