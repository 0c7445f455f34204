//! Frames of Linux Soft-RoCE as a UDP socket shows them: from the BTH on, without the IP header whose
//! identification the ICRC covers (`core/wire/tests/data/host-guest-ipv4.pcap`).
#![cfg(not(miri))]

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use remora_memory::{Access, Bytes, Config as TableConfig, Key, Pd, Range, Table};
use remora_nic::{
    AddressVector, Bare, Command, CompletionPoller, Config, CqFlags, Fetching, GRH, Modify, QueuePairInit,
    ReceiveQueue, ReceiveRequest, Receives, Ring, Service, Sge, Status,
};
use remora_transport::Instant;
use remora_transport::state::State;
use remora_wire::frame::{Endpoint, Ingress, Peer, Route, Start};
use remora_wire::icrc::MAX_UNKNOWN_ID;
use remora_wire::{Opcode, Psn, Qpn, ROCE_PORT};

/// The queue pair of our side in the recording, and who sent to it.
const OURS: u32 = 0x1234;
const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const RECEIVES: u32 = 32;
const BUFFER: usize = 2048;

/// A frame of the guest.
struct Frame {
    /// Nanoseconds since some moment.
    time: u64,
    identification: u16,
    source: Endpoint,
    /// From the BTH to the end of the ICRC.
    transport: Vec<u8>,
}

impl Frame {
    fn opcode(&self) -> Opcode {
        Opcode(self.transport[0])
    }

    fn psn(&self) -> u32 {
        u32::from_be_bytes([0, self.transport[9], self.transport[10], self.transport[11]])
    }
}

/// Returns the frames that the guest sent, from a pcap file of Ethernet frames.
fn recording() -> Vec<Frame> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data/host-guest-ipv4.pcap");
    let bytes = std::fs::read(&path).unwrap();
    let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap());
    let half = |frame: &[u8], offset: usize| u16::from_be_bytes([frame[offset], frame[offset + 1]]);
    let mut offset = 24;
    let mut frames = Vec::new();
    while offset < bytes.len() {
        let seconds = word(offset);
        let micros = word(offset + 4);
        let len = word(offset + 8) as usize;
        let frame = &bytes[offset + 16..offset + 16 + len];
        offset += 16 + len;
        if half(frame, 12) == 0x0800 && frame[26..30] == GUEST.octets() && half(frame, 36) == ROCE_PORT {
            frames.push(Frame {
                time: u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000,
                identification: half(frame, 18),
                source: Endpoint { address: GUEST.into(), udp_port: half(frame, 34) },
                transport: frame[42..].to_vec(),
            });
        }
    }
    frames
}

/// A NIC at our side's address, with our side's queue pair.
struct Bench {
    engine: Bare,
    poller: CompletionPoller,
    memory: Bytes,
}

fn ring(slots: u32) -> Ring {
    Ring::heap(slots).unwrap()
}

/// Makes queue pairs until one has this number.
fn numbered(nic: &Bare, number: u32, init: impl Fn() -> QueuePairInit) -> Qpn {
    loop {
        let qp: Qpn = nic.ask(Command::CreateQp(init())).unwrap();
        if qp.get() == number {
            return qp;
        }
        nic.ask::<()>(Command::DestroyQp(qp)).unwrap();
    }
}

fn posted(memory: &Bytes, key: Key) -> Ring {
    let mut receives = ReceiveQueue::new(ring(RECEIVES), 1);
    for id in 0..u64::from(RECEIVES) {
        let sge = Sge { addr: memory.address() + id * BUFFER as u64, len: BUFFER as u32, lkey: key };
        receives.post(&ReceiveRequest { id, sges: &[sge] }).unwrap();
    }
    receives.ring().clone()
}

/// The ways to RTR.
fn way(service: Service, first: &Frame) -> [Modify; 2] {
    let change = |state| Modify { state: Some(state), ..Modify::default() };
    let init = Modify { pkey_index: Some(0), port: Some(1), ..change(State::Init) };
    if service == Service::Ud {
        let qkey = u32::from_be_bytes(first.transport[12..16].try_into().unwrap());
        return [Modify { qkey: Some(qkey), ..init }, change(State::Rtr)];
    }
    let here = Endpoint { address: HERE.into(), udp_port: ROCE_PORT };
    let there = Endpoint { address: GUEST.into(), udp_port: ROCE_PORT };
    let rtr = Modify {
        address: Some(AddressVector::new(Peer(0), Route::new(here, there))),
        path_mtu: Some(1024),
        dest_qp: Some(Qpn::new(51)),
        rq_psn: Some(Psn::new(first.psn())),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        ..change(State::Rtr)
    };
    [Modify { access: Some(Access::NONE), ..init }, rtr]
}

fn bench(service: Service, first: &Frame) -> Bench {
    let table = Arc::new(Table::new(TableConfig::default()).unwrap());
    let pd: Pd = table.alloc_pd().unwrap();
    let memory = Bytes::heap(RECEIVES as usize * BUFFER).unwrap();
    let key = table.register(pd, &[Range::whole(&memory)], Access::LOCAL_WRITE).unwrap();
    let endpoint = Endpoint { address: HERE.into(), udp_port: ROCE_PORT };
    let nic = Bare::new(&table, Config { max_qps: 30, endpoint, ..Config::default() });
    let completions = ring(2 * RECEIVES);
    let cq = nic
        .ask(Command::CreateCq { ring: nic.hand(completions.clone()), flags: CqFlags::default() })
        .unwrap();
    let receives = posted(&memory, key);
    let qp = numbered(&nic, OURS, || QueuePairInit {
        service,
        pd,
        send_ring: nic.hand(ring(1)),
        receives: Receives::Own { ring: nic.hand(receives.clone()), max_sge: 1 },
        send_cq: cq,
        receive_cq: cq,
        signal_all: false,
        fetching: Fetching::Posted,
    });
    for change in way(service, first) {
        nic.ask::<()>(Command::ModifyQp { qp, change: Box::new(change) }).unwrap();
    }
    Bench { engine: nic, poller: CompletionPoller::new(completions), memory }
}

impl Bench {
    fn receive(&mut self, frame: &Frame, transport: &[u8]) {
        let source = frame.source;
        let ingress = Ingress {
            bytes: transport,
            start: Start::Bth,
            sealed: true,
            source,
            destination: None,
            origin: None,
        };
        let mut pass = self.engine.enter();
        let (nic, mem) = pass.parts();
        nic.receive(Instant(frame.time), mem, &ingress);
    }

    /// Bytes of the messages that were delivered since last asked.
    fn delivered(&mut self) -> Vec<Vec<u8>> {
        let done = std::iter::from_fn(|| self.poller.poll());
        let read = |done: remora_nic::WorkCompletion| {
            assert_eq!(done.status, Status::Success);
            let mut bytes = vec![0; done.byte_len as usize];
            self.memory.read(done.id as usize * BUFFER, &mut bytes).unwrap();
            bytes
        };
        done.map(|entry| read(entry.completion)).collect()
    }

    fn bad_icrc(&self) -> u64 {
        self.engine.enter().counters().rx_icrc_encapsulated
    }
}

/// Regression: nearly all frames of Soft-RoCE over IPv4 were dropped as corrupt, because it counts its
/// identifications and only those below 128 were tried.
#[test]
fn a_connection_of_soft_roce_is_heard_whose_identifications_no_socket_shows() {
    let frames: Vec<Frame> =
        recording().into_iter().filter(|frame| frame.opcode() != Opcode::UD_SEND_ONLY).collect();
    assert!(frames.iter().all(|frame| frame.identification > MAX_UNKNOWN_ID));
    let first = frames.iter().find(|frame| frame.opcode() == Opcode::RC_SEND_ONLY).unwrap();
    let mut bench = bench(Service::Rc, first);
    frames.iter().for_each(|frame| bench.receive(frame, &frame.transport));
    let sent = frames.iter().filter(|frame| frame.opcode() == Opcode::RC_SEND_ONLY);
    let expected: Vec<&[u8]> = sent.map(|frame| &frame.transport[12..frame.transport.len() - 4]).collect();
    assert_eq!(
        (bench.delivered(), bench.bad_icrc()),
        (expected.iter().map(|bytes| bytes.to_vec()).collect(), 0)
    );
    assert_eq!(expected.len(), 20);
}

#[test]
fn datagrams_of_soft_roce_are_heard_whose_identifications_no_socket_shows() {
    let frames: Vec<Frame> =
        recording().into_iter().filter(|frame| frame.opcode() == Opcode::UD_SEND_ONLY).collect();
    let mut bench = bench(Service::Ud, &frames[0]);
    frames.iter().for_each(|frame| bench.receive(frame, &frame.transport));
    let delivered = bench.delivered();
    assert_eq!((delivered.len(), bench.bad_icrc()), (4, 0));
    for (bytes, frame) in delivered.iter().zip(&frames) {
        assert_eq!(bytes[GRH..], frame.transport[20..frame.transport.len() - 4]);
    }
}

#[test]
fn no_frame_of_soft_roce_with_one_wrong_bit_is_heard() {
    let frames = recording();
    let datagrams = |frame: &&Frame| frame.opcode() == Opcode::UD_SEND_ONLY;
    let frame = frames.iter().find(datagrams).unwrap();
    let mut bench = bench(Service::Ud, frame);
    let mut broken = frame.transport.clone();
    for bit in 0..broken.len() * 8 {
        broken[bit / 8] ^= 1 << (bit % 8);
        bench.receive(frame, &broken);
        broken[bit / 8] ^= 1 << (bit % 8);
    }
    // Byte 4 of the BTH counts as ones: frames that differ there alone are intact.
    assert_eq!(bench.delivered().len(), 8);
}

/// A sender of datagrams is remembered, as many as there is space for; who was forgotten begins anew.
#[test]
fn any_number_of_strangers_may_send_datagrams_to_one_queue_pair() {
    let frames: Vec<Frame> =
        recording().into_iter().filter(|frame| frame.opcode() == Opcode::UD_SEND_ONLY).collect();
    let mut bench = bench(Service::Ud, &frames[0]);
    let endpoint = |host: u8| Endpoint { address: Ipv4Addr::new(10, 78, 0, host).into(), udp_port: 999 };
    let here = Endpoint { address: HERE.into(), udp_port: ROCE_PORT };
    let mut heard = 0;
    for turn in 0..3_u16 {
        for host in 1..=40 {
            let mut transport = frames[0].transport.clone();
            let covered = transport.len() - 4;
            let flow = remora_wire::icrc::Flow::new(endpoint(host), here);
            let sealed = flow.seal(60_000 + 100 * u16::from(host) + turn, &transport[..covered]);
            remora_wire::icrc::write(&mut transport, sealed);
            let frame = Frame { source: endpoint(host), transport: Vec::new(), ..frames[0] };
            bench.receive(&frame, &transport);
            heard += 1;
            if heard <= RECEIVES as usize {
                assert_eq!(bench.delivered().len(), 1, "host {host}");
            }
        }
    }
    let dropped = bench.engine.enter().counters().rx_dropped_messages;
    assert_eq!((bench.bad_icrc(), dropped), (0, heard as u64 - u64::from(RECEIVES)));
}
