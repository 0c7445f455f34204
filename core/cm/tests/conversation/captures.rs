//! Replays of a capture of Linux's connection manager over Soft-RoCE: our manager takes the place of either
//! side, and must send what Linux sent, byte for byte, except for its own ids.

#[path = "../../../wire/tests/pcap/mod.rs"]
#[allow(dead_code, reason = "it also writes")]
mod pcap;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::Path;

use remora_cm::{AcceptParam, Cm, CmConfig, ConnectParam, EventKind, GidPair, Instant, Listen};
use remora_wire::frame::{Start, dissect};
use remora_wire::mad::{CmMessage, LEN, ip_cm, req};
use remora_wire::{Address, Qpn};

use crate::node::{Mad, message, name};

/// A MAD of the capture, with its addresses.
struct Recorded {
    source: Address,
    destination: Address,
    mad: Mad,
}

/// Returns all MADs of the capture, in order.
fn recorded() -> Vec<Recorded> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data/rxe.pcap");
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut mads = Vec::new();
    for bytes in pcap::read(&file) {
        let frame = dissect(Start::Ethernet, &bytes).expect("a frame of RoCE");
        if frame.packet.bth.dest_qp != Qpn::GSI {
            continue;
        }
        let (network, _) = frame.network.expect("an IP packet");
        let (source, destination) = network.addresses();
        mads.push(Recorded { source, destination, mad: frame.packet.payload.try_into().expect("256 bytes") });
    }
    mads
}

fn guest(n: u8) -> Address {
    Ipv4Addr::new(10, 77, 0, n).into()
}

/// Our manager in the place of one guest of the capture.
struct Replay {
    cm: Cm,
    side: Address,
    now: Instant,
    /// The communication ids of the recorded guest, and ours instead of them.
    ids: BTreeMap<u32, u32>,
    transactions: BTreeMap<u64, u64>,
    /// Our handles by the recorded ids.
    handles: BTreeMap<u32, u64>,
    /// Requests that have arrived and are not answered.
    requests: VecDeque<u64>,
    fresh: u64,
}

impl Replay {
    fn new(n: u8) -> Replay {
        let config =
            CmConfig { max_ids: 8, ..CmConfig::new(0x5054_00ff_fe4d_0000 | u64::from(n), 0x4242_4242) };
        let cm = Cm::new(config);
        let side = guest(n);
        let ids = BTreeMap::new();
        let transactions = BTreeMap::new();
        let handles = BTreeMap::new();
        Replay {
            cm,
            side,
            now: Instant(0),
            ids,
            transactions,
            handles,
            requests: VecDeque::new(),
            fresh: 100,
        }
    }

    /// Returns a recorded MAD with our ids in place of the guest's.
    fn with_our_ids(&self, mad: &Mad) -> Mad {
        let mut mad = *mad;
        let transaction = u64::from_be_bytes(mad[8..16].try_into().unwrap());
        let ours = self.transactions.get(&transaction).unwrap_or(&transaction);
        mad[8..16].copy_from_slice(&ours.to_be_bytes());
        for offset in [24, 28] {
            let id = u32::from_be_bytes(mad[offset..offset + 4].try_into().unwrap());
            mad[offset..offset + 4].copy_from_slice(&self.ids.get(&id).unwrap_or(&id).to_be_bytes());
        }
        mad
    }

    /// Passes to our manager a MAD that the guest received.
    fn hear(&mut self, recorded: &Recorded) {
        let gids = GidPair::new(recorded.destination, recorded.source);
        let mad = self.with_our_ids(&recorded.mad);
        if self.cm.receive(self.now, gids, &mad, self.fresh) {
            self.requests.push_back(self.fresh);
            self.fresh += 1;
        }
        self.cm.check();
    }

    /// Makes our manager send what the guest sent, and compares the bytes.
    fn say(&mut self, recorded: &Recorded) {
        let gids = GidPair::new(recorded.source, recorded.destination);
        let local = u32::from_be_bytes(recorded.mad[24..28].try_into().unwrap());
        if let CmMessage::Rep(_) = message(&recorded.mad) {
            let handle = self.requests.pop_front().expect("a request");
            self.handles.insert(local, handle);
        }
        let mut mad = [0; LEN];
        let sent = self.cm.transmit(&mut mad).or_else(|| {
            self.call(gids, local, &message(&recorded.mad));
            self.cm.transmit(&mut mad)
        });
        assert_eq!(sent.map(|path| path.gids), Some(gids), "{}", name(&recorded.mad));
        self.learn(&recorded.mad, &mad);
        assert_eq!(mad, self.with_our_ids(&recorded.mad), "{}", name(&recorded.mad));
        self.cm.check();
    }

    /// Makes the call by which a program causes this message.
    fn call(&mut self, gids: GidPair, local: u32, message: &CmMessage) {
        let now = self.now;
        if let CmMessage::Req(req) = message {
            self.handles.insert(local, u64::from(local));
            return self.cm.connect(now, u64::from(local), &connect_param(gids, req)).unwrap();
        }
        let handle = self.handles[&local];
        match message {
            CmMessage::Rep(rep) => {
                let param = AcceptParam {
                    qpn: rep.local_qpn,
                    starting_psn: rep.starting_psn,
                    responder_resources: rep.responder_resources,
                    initiator_depth: rep.initiator_depth,
                    flow_control: rep.flow_control,
                    rnr_retry_count: rep.rnr_retry_count,
                    srq: rep.srq,
                    private_data: &rep.private_data,
                };
                self.cm.accept(now, handle, &param).unwrap();
            }
            CmMessage::Rtu(rtu) => self.cm.ready_to_use(handle, &rtu.private_data).unwrap(),
            CmMessage::Dreq(dreq) => self.cm.disconnect(now, handle, &dreq.private_data).unwrap(),
            CmMessage::Drep(drep) => self.cm.disconnect(now, handle, &drep.private_data).unwrap(),
            other => panic!("the capture has no {}", other.attribute()),
        }
    }

    /// Stores the mapping from recorded to our ids.
    fn learn(&mut self, recorded: &Mad, ours: &Mad) {
        let id = |mad: &Mad| u32::from_be_bytes(mad[24..28].try_into().unwrap());
        let transaction = |mad: &Mad| u64::from_be_bytes(mad[8..16].try_into().unwrap());
        self.ids.entry(id(recorded)).or_insert(id(ours));
        if matches!(message(recorded), CmMessage::Req(_) | CmMessage::Dreq(_)) {
            self.transactions.insert(transaction(recorded), transaction(ours));
        }
    }

    /// Takes the events for programs.
    fn events(&mut self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.cm.next_event()).map(|event| event.kind).collect()
    }
}

/// Returns the parameters that produce this REQ.
fn connect_param(gids: GidPair, req: &req::Repr) -> ConnectParam<'_> {
    let ip = ip_cm::Repr::parse(&ip_cm::View::new(&req.private_data).expect("a header of annex A11"));
    ConnectParam {
        ip: Some(ip),
        starting_psn: req.starting_psn,
        path_mtu: req.path_mtu,
        // The recorded kernel used a longer life time than today's.
        packet_life_time: req.primary.ack_timeout - 1,
        flow_label: req.primary.flow_label,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        private_data: &req.private_data[ip_cm::LEN..],
        ..ConnectParam::new(gids, req.service_id, req.local_qpn)
    }
}

#[test]
fn the_capture_has_three_connections() {
    let recorded = recorded();
    let names: Vec<_> = recorded.iter().map(|recorded| name(&recorded.mad)).collect();
    let ends = ["DREQ", "DREQ", "DREP", "DREQ", "DREP"];
    let expected =
        [&["REQ", "REP", "RTU", "DREQ", "DREP", "REQ", "REP", "RTU", "REQ", "REP", "RTU"][..], &ends]
            .concat();
    assert_eq!(names, expected);
}

#[test]
fn our_passive_side_says_what_that_of_linux_said() {
    let mut replay = Replay::new(3);
    let recorded = recorded();
    let mut listened = false;
    for one in &recorded {
        replay.now = replay.now.after(10_000_000);
        if let (false, CmMessage::Req(req)) = (listened, message(&one.mad)) {
            // The first connection belongs to rping, the others to perftest.
            let listen = |service_id| Listen { service_id, address: None, backlog: 1, zone: 0 };
            replay.cm.listen(1, &listen(req.service_id)).unwrap();
            replay.cm.listen(2, &listen(remora_wire::mad::ServiceId(0x0106_4853))).unwrap();
            listened = true;
        }
        if one.source == replay.side { replay.say(one) } else { replay.hear(one) }
    }
    let events = replay.events();
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|kind| is(kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::ConnectRequest(_))), 3);
    assert_eq!(count(|kind| matches!(kind, EventKind::Established)), 3);
    assert_eq!(count(|kind| matches!(kind, EventKind::Disconnected(_))), 3);
    replay.cm.expire(replay.now.after(3_000_000_000));
    assert_eq!((replay.cm.id_count(), replay.cm.next_deadline()), (0, Instant::NEVER));
}

#[test]
fn our_active_side_says_what_that_of_linux_said() {
    let mut replay = Replay::new(2);
    let mut recorded = recorded();
    // Both sides ended the third connection at once: the active guest had not received the DREQ yet that
    // the capture shows first.
    recorded.swap(11, 12);
    for (index, one) in recorded.iter().enumerate() {
        replay.now = replay.now.after(10_000_000);
        if one.source == replay.side {
            replay.say(one)
        } else {
            replay.hear(one)
        }
        if index == 12 {
            // Linux lets its program answer a DREQ that crossed its own; ours answers at once.
            let mut mad = [0; LEN];
            replay.cm.transmit(&mut mad).expect("an answer");
            assert_eq!(name(&mad), "DREP");
        }
    }
    let events = replay.events();
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|kind| is(kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::ConnectResponse(_))), 3);
    assert_eq!(count(|kind| matches!(kind, EventKind::Disconnected(_))), 3);
    replay.cm.expire(replay.now.after(3_000_000_000));
    assert_eq!((replay.cm.id_count(), replay.cm.next_deadline()), (0, Instant::NEVER));
}
