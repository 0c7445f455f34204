//! Peer numbers of a port over `udp`: they become free with the queue pairs and address handles that used
//! them.

use remora_host::EngineId;
use remora_host::connect::{Hello, LinkOffer, Message};
use remora_verbs::raw::{Ah, ChannelAdapter, Cq, Qp, QpAttributes};
use remora_verbs::{
    Access, Address, Device, Endpoint, Listener, Modify, PortKind, Psn, QpOptions, Service, State,
};
use remora_wire::Qpn;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// More than a port's maximum number of peers at a time.
const ADDRESSES: u32 = 70_000;

fn endpoint(number: u32) -> Endpoint {
    Endpoint {
        address: Ipv4Addr::from(0x0a00_0001 + number / 50_000).into(),
        udp_port: 1024 + (number % 50_000) as u16,
    }
}

#[test]
fn address_handles_for_more_addresses_than_a_port_has_peers_are_made_one_after_the_other() {
    let context = Device::udp("127.0.0.1:0").unwrap().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    for number in 0..ADDRESSES {
        let handle = domain.create_address_handle(0, endpoint(number));
        assert_eq!(handle.unwrap().endpoint(), endpoint(number));
    }
}

#[test]
fn raw_queue_pairs_and_handles_for_more_addresses_than_a_port_has_peers_are_made_one_after_the_other() {
    let adapter = ChannelAdapter::open(&Device::udp("127.0.0.1:0").unwrap()).unwrap();
    let pd = adapter.alloc_domain().unwrap();
    let cq = Cq::create(&adapter, 16, None, false).unwrap();
    let qp = Qp::create(&adapter, Service::Uc, pd, &cq, &cq, None, &QpAttributes::default()).unwrap();
    let init = Modify {
        state: Some(State::Init),
        access: Some(Access::NONE),
        pkey_index: Some(0),
        port: Some(1),
        ..Modify::default()
    };
    for number in 0..ADDRESSES {
        let way = adapter.address_vector(endpoint(number), 0, 64).unwrap();
        if number % 2 == 0 {
            Ah::create(&adapter, pd, &way).unwrap().destroy().unwrap();
            continue;
        }
        let rtr = Modify {
            state: Some(State::Rtr),
            address: Some(way),
            path_mtu: Some(1024),
            dest_qp: Some(Qpn::new(2)),
            rq_psn: Some(Psn::new(7)),
            ..Modify::default()
        };
        qp.modify(&init).unwrap();
        qp.modify(&rtr).unwrap();
        qp.modify(&Modify { state: Some(State::Reset), ..Modify::default() }).unwrap();
    }
    // A refused change must not use up a peer.
    for number in 0..ADDRESSES / 2 {
        let way = adapter.address_vector(endpoint(number), 0, 64).unwrap();
        let too_early = Modify { state: Some(State::Rtr), address: Some(way), ..Modify::default() };
        assert!(qp.modify(&too_early).is_err());
    }
}

fn hello(number: u16, address: Address) -> Hello {
    Hello {
        kind: PortKind::Udp,
        link: LinkOffer::None,
        path_mtu: 1024,
        service: Service::Rc,
        qkey: 0,
        qp: Qpn::new(17),
        psn: Psn::new(1),
        initiator_depth: 1,
        responder_resources: 1,
        endpoint: Endpoint { address, udp_port: 1024 + number },
        engine: EngineId(number.into()),
        extensions: 0,
        irn_reach: 0,
        private_data: Vec::new(),
    }
}

/// Sends a client's request.
fn ask(server: SocketAddr, hello: Hello) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(&Message::Request(hello).emit()).unwrap();
    stream
}

#[test]
fn a_server_gives_the_numbers_of_clients_back_that_are_gone() {
    let context = Device::udp("127.0.0.1:0").unwrap().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut largest = 0;
    for number in 0..300 {
        let mut client = ask(listener.address(), hello(number, Ipv4Addr::new(127, 0, 0, 9).into()));
        client.write_all(&Message::Ready.emit()).unwrap();
        let request = listener.accept(None).unwrap().unwrap();
        let pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let pair = request.accept(pair).unwrap();
        largest = largest.max(pair.agreement().unwrap().peer.0);
    }
    assert!(largest < 100, "peer {largest} of 300 clients, one at a time");
}

/// Regression: the address in a client's hello was believed.
#[test]
fn a_client_whose_nic_is_on_another_host_than_its_connection_hears_how_to_mend_it() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut client = ask(listener.address(), hello(1, Ipv4Addr::new(192, 0, 2, 1).into()));
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let Ok(Message::Reject(words)) = Message::parse(&answer) else { panic!("no refusal: {answer:?}") };
    assert!(
        words.contains("127.0.0.1")
            && words.contains("192.0.2.1")
            && words.contains("open the client's device"),
        "{words}"
    );
    assert_eq!(listener.refused(), 1);
}
