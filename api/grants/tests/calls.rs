//! Tests of calls over the connection that carries the grants.

use remora_grants::{
    CallHandler, Caller, Certificate, Credential, Error, GrantOptions, GrantServer, Offer, Pin, Replies,
    ServerMessage, Token,
};
use remora_verbs::rma::{Client, Rights, RmaOptions};
use remora_verbs::{Access, Context, Device};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST: usize = 100_000;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A handler that echoes each message, treats "end" as a protocol error, and reports the connections that
/// end.
struct Echo(Sender<usize>);

impl CallHandler for Echo {
    fn longest(&self) -> usize {
        LONGEST
    }

    fn message(&mut self, _: usize, message: &[u8], replies: &mut Replies) -> bool {
        replies.push(message.to_vec());
        message != b"end"
    }

    fn ended(&mut self, connection: usize) {
        let _ = self.0.send(connection);
    }
}

struct Bed {
    server: GrantServer,
    token: Token,
    ended: Receiver<usize>,
    _context: Context,
}

impl Bed {
    fn new(echoes: bool) -> Bed {
        let here = SocketAddr::new(HERE, 0);
        let context = Device::udp(here).unwrap().open().unwrap();
        let memory = context.alloc_pd().unwrap().allocate(4096, Access::LOCAL_WRITE).unwrap();
        let rma = context.open_rma(&RmaOptions::default()).unwrap();
        let offer = Offer::new("memory", Rights::READ, rma.expose(memory, Rights::READ, None).unwrap());
        let token = Token::random().unwrap();
        let options =
            GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new().unwrap()) };
        let (tell, ended) = channel();
        let echo = echoes.then(|| Box::new(Echo(tell)) as Box<dyn CallHandler>);
        let server = GrantServer::start_with(here, options, vec![offer], echo).unwrap();
        Bed { server, token, ended, _context: context }
    }

    fn caller(&self) -> Caller {
        let pin = Pin { address: self.server.address(), fingerprint: self.server.fingerprint() };
        let client = Client { address: HERE.into(), pid: 1, incarnation: 1 };
        let credential = Credential::Token(self.token.clone());
        Caller::open(pin, &credential, &client, PATIENCE, LONGEST).unwrap().0
    }
}

/// Waits for the next message of the server.
fn next(caller: &mut Caller) -> Result<ServerMessage, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(message) = caller.try_recv()? {
            return Ok(message);
        }
        assert!(Instant::now() < until, "nothing came");
        caller.wait(until)?;
    }
}

fn reply(caller: &mut Caller) -> Vec<u8> {
    match next(caller).unwrap() {
        ServerMessage::Reply(message) => message,
        other => panic!("{other:?}"),
    }
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + len) as u8).collect()
}

#[test]
fn messages_of_any_length_come_back_in_order_and_grants_between_them() {
    let bed = Bed::new(true);
    let mut one = bed.caller();
    let mut other = bed.caller();
    let lens = [0, 1, 16_384, 3, 70_000, LONGEST];
    for len in lens {
        one.send(&message(len)).unwrap();
    }
    one.renew().unwrap();
    other.send(b"its own").unwrap();
    for len in lens {
        assert!(reply(&mut one) == message(len), "{len} bytes");
    }
    let ServerMessage::Grants(grants) = next(&mut one).unwrap() else { panic!("grants") };
    assert_eq!((grants.len(), &*grants[0].name), (1, "memory"));
    assert_eq!(reply(&mut other), b"its own");
    // A client with calls receives announcements like one without.
    bed.server.announce("memory", remora_verbs::rma::RegionKey::new([7; 16]).unwrap(), PATIENCE).unwrap();
    assert!(matches!(next(&mut one).unwrap(), ServerMessage::Announced(_)));
    drop(one);
    bed.ended.recv_timeout(PATIENCE).expect("the end of a connection");
}

#[test]
fn a_client_that_floods_keeps_nobody_else_out() {
    let bed = Bed::new(true);
    let mut flood = bed.caller();
    let mut other = bed.caller();
    // The messages exceed one turn of the server and the socket buffers.
    for _ in 0..400 {
        // This client reads nothing, so the server may end its connection.
        let _ = flood.send(&message(20_000));
    }
    other.send(b"in between").unwrap();
    assert_eq!(reply(&mut other), b"in between");
}

#[test]
fn who_breaks_the_protocol_is_ended_alone() {
    let bed = Bed::new(true);
    let mut good = bed.caller();
    for bad in [message(LONGEST + 1), b"end".to_vec()] {
        let mut caller = bed.caller();
        caller.send(&bad).unwrap();
        let ended = loop {
            match next(&mut caller) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, Error::HungUp(_)), "{ended}");
        bed.ended.recv_timeout(PATIENCE).expect("the end of a connection");
    }
    good.send(b"still there").unwrap();
    assert_eq!(reply(&mut good), b"still there");
    // A server without a handler ends a connection that sends a call.
    let bed = Bed::new(false);
    let mut caller = bed.caller();
    caller.send(b"call").unwrap();
    assert!(matches!(next(&mut caller), Err(Error::HungUp(_))));
}
