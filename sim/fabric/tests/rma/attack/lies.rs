//! A peer that holds the key and sends false messages.

use remora_transport::rma::Status;
use remora_wire::frame::Endpoint;
use remora_wire::rma::{Body, Class, Kind, Nonce, TagSequence, completion, header, request, solicit};

use super::{Forger, Taken, patient};
use crate::bed::{Bed, CLIENT, SERVER};

/// Returns the nonce, the key and the slot of a command in progress whose request the server has not
/// received.
fn asked(bed: &mut Bed, slot: u16, kind: Kind, size: u32) -> (Nonce, [u8; 16], u16) {
    bed.world.tap();
    bed.taken();
    bed.world.cut(CLIENT, SERVER, true);
    let command = bed.command(slot, kind, size, [4096, 0]);
    bed.world.issue(&mut bed.portal, &command);
    bed.world.run_for(10);
    let request = bed.taken().into_iter().find(|taken| taken.kind() == kind).expect("it has left");
    (request.message().header.nonce, command.key, command.slot)
}

fn header(kind: Kind, slot: u16, region: u32, offset: u64, length: u32) -> header::Repr {
    header::Repr { kind, class: Class::Latency, slot, region, offset, length, nonce: Nonce::default() }
}

fn solicit(server_slot: u16, timeout: u32) -> Body {
    Body::Solicit(solicit::Repr { server_slot, max_payload: 4096, timeout })
}

/// Attack 7: the solicit of a server names other bytes than those of the command.
#[test]
fn a_server_gets_the_bytes_of_the_command_and_no_others_whatever_its_solicit_names() {
    for (region, offset, length) in [(1, 0, 64), (2, 8192, 4096), (u32::MAX, u64::MAX, u32::MAX), (0, 0, 0)] {
        let mut bed = Bed::new(&patient());
        let (nonce, key, slot) = asked(&mut bed, 3, Kind::Write, 64);
        let mut forger = Forger::new();
        let tags = TagSequence::new(nonce);
        let lie = header(Kind::Solicit, slot, region, offset, length);
        let (bytes, second) = forger.seal(lie, solicit(0x8005, u32::MAX), &tags, &key, &[]);
        bed.inject(SERVER, CLIENT, &bytes);
        // A second solicit, and solicits for slots that are idle or reading.
        let (again, _) = forger.seal(lie, solicit(0x8006, 1), &tags, &key, &[]);
        bed.inject(SERVER, CLIENT, &again);
        let (idle, _) =
            forger.seal(header::Repr { slot: slot + 1, ..lie }, solicit(0x8007, 1), &tags, &key, &[]);
        bed.inject(SERVER, CLIENT, &idle);
        bed.world.run_for(1_000);
        let left: Vec<Taken> = bed.taken();
        assert_eq!(left.len(), 1, "one piece of 64 bytes");
        let text = forger.open(&left[0].message(), &tags.then(second), &key).expect("it is for this server");
        assert_eq!(text, bed.local.memory.load(4096, 64), "the command's own bytes");
        // The timeout that a server may request is bounded, so the slot becomes free.
        assert_eq!(bed.wait().status, Status::Timeout);
    }
    let mut bed = Bed::new(&patient());
    let (nonce, key, slot) = asked(&mut bed, 0, Kind::Read, 64);
    let mut forger = Forger::new();
    let lie = header(Kind::Solicit, slot, 1, 0, 64);
    let (bytes, _) = forger.seal(lie, solicit(0x8005, 1), &TagSequence::new(nonce), &key, &[]);
    bed.inject(SERVER, CLIENT, &bytes);
    bed.world.run_for(1_000);
    assert!(bed.taken().is_empty(), "a read has nothing to give");
}

/// Attack 11: pieces of data arrive twice, overlap or lie outside of the operation.
#[test]
fn pieces_that_come_twice_overlap_or_lie_outside_make_no_success() {
    let mut bed = Bed::new(&patient());
    let (nonce, key, slot) = asked(&mut bed, 0, Kind::Read, 4096);
    let mut forger = Forger::new();
    let tags = TagSequence::new(nonce);
    let mut send = |bed: &mut Bed, offset: u64, text: &[u8]| {
        let (bytes, _) = forger.seal(header(Kind::Data, slot, 1, offset, 0), Body::None, &tags, &key, text);
        bed.inject(SERVER, CLIENT, &bytes);
        bed.world.poll_rma(bed.cq)
    };
    let guard = [bed.local.memory.load(0, 4096), bed.local.memory.load(8192, 4096)];
    for _ in 0..70 {
        assert_eq!(send(&mut bed, 0, &[1; 64]), None, "one unit, again and again");
    }
    for (offset, len) in
        [(32, 64), (0, 4096), (4096, 64), (4064, 64), (u64::MAX, 64), (u64::MAX - 63, 64), (64, 63)]
    {
        assert_eq!(send(&mut bed, offset, &vec![2; len]), None, "{offset} {len}");
    }
    assert_eq!(send(&mut bed, 128, &[3; 4096 - 128]), None, "the second unit is missing");
    assert_eq!(send(&mut bed, 64, &[3; 64]).map(|end| end.status), Some(Status::Ok));
    let read = bed.local.memory.load(4096, 4096);
    assert!(read[..64] == [1; 64] && read[64..] == [3; 4032], "what came first stays");
    assert!(guard[0] == bed.local.memory.load(0, 4096) && guard[1] == bed.local.memory.load(8192, 4096));
}

/// Attack 12: an authentication failure is forged.
#[test]
fn a_forged_failure_needs_the_nonce_of_the_request_and_ends_that_operation_alone() {
    let mut bed = Bed::new(&patient());
    let (nonce, _, slot) = asked(&mut bed, 0, Kind::Read, 64);
    let (other, _, beside) = asked(&mut bed, 1, Kind::Read, 64);
    let mut forger = Forger::new();
    let mut failure = |bed: &mut Bed, slot, nonce| {
        let plain = header(Kind::AuthenticationFailure, slot, 1, 0, 0);
        let key = remora_nic::rma::RESERVED_KEY;
        let (bytes, _) = forger.seal(plain, Body::None, &TagSequence::new(nonce), &key, &[]);
        bed.inject(SERVER, CLIENT, &bytes);
        bed.world.poll_rma(bed.cq)
    };
    for guess in [Nonce::default(), Nonce { counter: nonce.counter + 1, ..nonce }, other] {
        assert_eq!(failure(&mut bed, slot, guess), None, "{guess:?}");
    }
    let ended = failure(&mut bed, slot, nonce).unwrap();
    assert_eq!((ended.slot, ended.status), (slot, Status::RemoteAuthenticationFailure));
    assert_eq!(bed.world.poll_rma(bed.cq), None, "slot {beside} goes on");
}

/// Attack 12: the forger has seen the request but sends from its own address or UDP port.
///
/// Regression: a failure under the reserved key was accepted from any address.
#[test]
fn a_forged_failure_from_another_address_or_port_than_the_servers_is_not_believed() {
    let mut bed = Bed::new(&patient());
    let (nonce, _, slot) = asked(&mut bed, 0, Kind::Read, 64);
    let plain = header(Kind::AuthenticationFailure, slot, 1, 0, 0);
    let key = remora_nic::rma::RESERVED_KEY;
    let (bytes, _) = Forger::new().seal(plain, Body::None, &TagSequence::new(nonce), &key, &[]);
    let server = bed.world.endpoint(SERVER);
    let mut address = server.address;
    address.0[15] ^= 1;
    for source in [Endpoint { udp_port: server.udp_port ^ 1, ..server }, Endpoint { address, ..server }] {
        bed.inject_from(source, SERVER, CLIENT, &bytes);
        assert_eq!(bed.world.poll_rma(bed.cq), None, "{source:?}");
    }
    assert_eq!(bed.world.counters(CLIENT).rma_bad_responses, 2);
    bed.inject(SERVER, CLIENT, &bytes);
    assert_eq!(bed.world.poll_rma(bed.cq).map(|ended| ended.slot), Some(slot));
}

/// Attack 12: a stranger provokes failures to learn the nonces that the NIC will use for its own requests.
///
/// Regression: bad requests were answered under nonces of the counter that requests use, so a stranger could
/// predict the nonces of requests.
#[test]
fn a_failure_under_the_reserved_key_reveals_nothing_of_the_nonces_of_requests() {
    let mut bed = Bed::new(&patient());
    bed.world.tap();
    let mut forger = Forger::new();
    for _ in 0..3 {
        let plain = header(Kind::Read, 0, 1 << 20, 0, 64);
        let body = Body::Request(request::Repr { pid: 1, incarnation: 1, max_payload: 4096 });
        let (bytes, _) = forger.seal(plain, body, &TagSequence::EMPTY, &[7; 16], &[]);
        bed.inject(SERVER, CLIENT, &bytes);
        bed.world.run_for(5_000);
    }
    let kind = Kind::AuthenticationFailure;
    let sent = bed.taken();
    let failures = sent.iter().filter(|taken| taken.kind() == kind);
    let failures: Vec<Nonce> = failures.map(|taken| taken.message().header.nonce).collect();
    assert_eq!(failures.len(), 3);
    let (nonce, ..) = asked(&mut bed, 0, Kind::Read, 64);
    assert!(failures.iter().all(|failure| failure.sender != nonce.sender), "{failures:?} {nonce:?}");
}

/// A write whose data has been sent may take effect until the server's time is over. A failure that anyone
/// can seal must not end it earlier, because it may answer a damaged copy of the request.
///
/// Regression: a write ended with an authentication failure, and its data changed memory afterwards. A link
/// had duplicated its request and damaged one copy; the server rejected that copy and served the other.
#[test]
fn a_failure_under_the_reserved_key_does_not_end_a_write_whose_data_is_on_its_way() {
    for lost in [false, true] {
        let mut bed = Bed::new(&patient());
        bed.world.tap();
        let command = bed.command(0, Kind::Write, 4096, [4096, 0]);
        bed.world.issue(&mut bed.portal, &command);
        // Request, solicit and data take a microsecond each.
        bed.world.run_for(2_500);
        let taken = bed.taken();
        assert!(taken.iter().any(|taken| taken.kind() == Kind::Data), "the data has left");
        let request = taken.iter().find(|taken| taken.kind() == Kind::Write).expect("hop 1");
        let plain = header(Kind::AuthenticationFailure, command.slot, 1, 0, 0);
        let tags = TagSequence::new(request.message().header.nonce);
        let key = remora_nic::rma::RESERVED_KEY;
        let (bytes, _) = Forger::new().seal(plain, Body::None, &tags, &key, &[]);
        bed.inject(SERVER, CLIENT, &bytes);
        assert_eq!(bed.world.poll_rma(bed.cq), None);
        bed.world.cut(SERVER, CLIENT, lost);
        let expected = if lost { Status::RemoteAuthenticationFailure } else { Status::Ok };
        assert_eq!(bed.wait().status, expected);
        let before = bed.served.memory.load(0, 4096);
        assert!(before == bed.local.memory.load(4096, 4096), "the server has placed it");
        bed.world.run_for(1_000_000);
        assert!(bed.served.memory.load(0, 4096) == before);
    }
}

/// A server that reports success of a write before it has the bytes, or success of a read without data.
#[test]
fn a_completion_without_the_bytes_is_no_success() {
    for kind in [Kind::Read, Kind::Write] {
        let mut bed = Bed::new(&patient());
        let (nonce, key, slot) = asked(&mut bed, 0, kind, 64);
        let mut forger = Forger::new();
        let done = Body::Completion(completion::Repr { status: completion::Status::Ok });
        let plain = header(Kind::Completion, slot, 1, 0, 64);
        let (bytes, _) = forger.seal(plain, done, &TagSequence::new(nonce), &key, &[]);
        bed.inject(SERVER, CLIENT, &bytes);
        assert_eq!(bed.world.poll_rma(bed.cq), None, "{kind:?}");
        assert_eq!(bed.world.counters(CLIENT).rma_unexpected, 1);
    }
}
