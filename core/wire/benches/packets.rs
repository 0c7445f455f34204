//! Benchmarks of parsing, writing, sealing and checking one packet: `cargo bench --package remora-wire`.
//!
//! The frame of "64" is a WRITE Only of 64 bytes: BTH, RETH and payload are 92 bytes.

use std::net::Ipv4Addr;

use divan::{Bencher, black_box};
use remora_wire::frame::Start;
use remora_wire::icrc::{Flow, IdSpans};
use remora_wire::{
    Endpoint, Extensions, Opcode, Packet, Psn, Qpn, ROCE_PORT, bth, frame, icrc, packet, reth,
};

const PAYLOADS: [usize; 4] = [0, 64, 1024, 4096];

fn main() {
    divan::main();
}

fn endpoint(last: u8, udp_port: u16) -> Endpoint {
    Endpoint { address: Ipv4Addr::new(10, 0, 0, last).into(), udp_port }
}

fn flow() -> Flow {
    Flow::new(endpoint(1, 0xc001), endpoint(2, ROCE_PORT))
}

/// Returns the transport bytes of a WRITE with the ICRC for this identification.
fn write(payload: usize, ip_id: u16) -> Vec<u8> {
    let payload = vec![0x5a; payload];
    let reth = reth::Repr { va: 0x1000, rkey: 7, dma_len: payload.len() as u32 };
    let packet = Packet::new(
        bth::Repr::new(Opcode::RC_RDMA_WRITE_ONLY, Qpn::new(17), Psn::new(42)),
        Extensions { reth: Some(reth), ..Extensions::NONE },
        &payload,
    );
    let mut bytes = vec![0; packet.buffer_len()];
    let icrc_at = packet.emit(&mut bytes);
    let sealed = flow().seal(ip_id, &bytes[..icrc_at]);
    icrc::write(&mut bytes, sealed);
    bytes
}

#[divan::bench(args = PAYLOADS)]
fn seal(bencher: Bencher, payload: usize) {
    let flow = flow();
    let bytes = write(payload, 0);
    let covered = &bytes[..bytes.len() - icrc::LEN];
    bencher.bench_local(|| black_box(&flow).seal(black_box(3), black_box(covered)));
}

#[divan::bench]
fn new_flow() -> Flow {
    Flow::new(black_box(endpoint(1, 0xc001)), black_box(endpoint(2, ROCE_PORT)))
}

/// Lower bound of `seal`: the CRC over the same bytes alone.
#[divan::bench(args = PAYLOADS)]
fn crc_alone(bencher: Bencher, payload: usize) {
    let bytes = write(payload, 0);
    let covered = &bytes[..bytes.len() - icrc::LEN];
    bencher.bench_local(|| crc32fast::hash(black_box(covered)));
}

#[divan::bench(args = [0, 1, 127])]
fn accept_unknown_id_64(bencher: Bencher, ip_id: u16) {
    let flow = flow();
    let bytes = write(64, ip_id);
    let covered = &bytes[..bytes.len() - icrc::LEN];
    let received = icrc::read(&bytes).unwrap();
    let mut spans = IdSpans::new();
    bencher.bench_local(|| black_box(&flow).accepts_unknown_id(&mut spans, black_box(covered), received));
}

#[divan::bench]
fn unknown_id_of_a_length_not_seen(bencher: Bencher) {
    let flow = flow();
    let bytes = write(64, 1);
    let covered = &bytes[..bytes.len() - icrc::LEN];
    let received = icrc::read(&bytes).unwrap();
    bencher
        .with_inputs(IdSpans::new)
        .bench_local_refs(|spans| black_box(&flow).accepts_unknown_id(spans, black_box(covered), received));
}

/// Parses a packet like a responder: destination, PSN and payload.
#[divan::bench]
fn parse_64(bencher: Bencher) {
    let bytes = write(64, 0);
    bencher.bench_local(|| {
        let packet = Packet::parse(black_box(&bytes)).unwrap();
        let reth = packet.ext.reth.unwrap();
        (packet.bth.dest_qp, packet.bth.psn, reth.va, reth.rkey, packet.bth.ack_req, packet.payload.len())
    });
}

/// Parses and stores every field as a value.
#[divan::bench]
fn parse_64_and_keep(bencher: Bencher) {
    let bytes = write(64, 0);
    bencher.bench_local(|| Packet::parse(black_box(&bytes)));
}

#[divan::bench]
fn emit_64(bencher: Bencher) {
    let bytes = write(64, 0);
    let packet = Packet::parse(&bytes).unwrap();
    let mut out = [0; 128];
    bencher.bench_local(|| black_box(&packet).emit(black_box(&mut out)));
}

/// Writes BTH and RETH in place, without the payload.
#[divan::bench]
fn emit_headers_of_a_write(bencher: Bencher) {
    let mut out = [0; 128];
    bencher.bench_local(|| {
        let bth =
            bth::Repr::new(Opcode::RC_RDMA_WRITE_ONLY, Qpn::new(black_box(17)), Psn::new(black_box(42)));
        let reth = reth::Repr { va: black_box(0x1000), rkey: black_box(7), dma_len: black_box(64) };
        let ext = Extensions { reth: Some(reth), ..Extensions::NONE };
        packet::emit_headers(&bth, &ext, black_box(&mut out))
    });
}

/// Writes IPv4 and UDP headers before the BTH.
#[divan::bench]
fn emit_route_from_ip(bencher: Bencher) {
    let route = frame::Route::new(endpoint(1, 0xc001), endpoint(2, ROCE_PORT));
    let mut out = [0; 64];
    bencher.bench_local(|| black_box(&route).emit(Start::Ip, 0, black_box(96), black_box(&mut out)));
}
