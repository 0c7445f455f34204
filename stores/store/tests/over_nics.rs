//! Tests of the stores over two real NICs that lose frames. The NIC executes the machines' requests. READs
//! that are retransmitted piece by piece while the server changes the table must still return no wrong
//! value.

use std::collections::VecDeque;
use std::sync::Arc;

use remora_memory::{Access, Bytes, Config as TableConfig, Pd, Range, Table as Regions};
use remora_nic::kernel::{Get, KernelInit};
use remora_nic::{
    AddressVector, Bare, Command, CompletionPoller, Config, CqFlags, HandedPart, Modify, Payload, PostError,
    QueuePairInit, ReceiveQueue, ReceiveRequest, Ring, SendQueue, WorkCompletion, WorkRequest, wqe,
};
use remora_store::Random;
use remora_store::kv::farm::{self, Farm, FarmTable};
use remora_store::kv::pilaf::{self, Pilaf, PilafTable};
use remora_store::kv::strom::{self, OPCODE, Strom, StromTable};
use remora_store::kv::two_sided::{self, TwoSided, TwoSidedTable};
use remora_store::kv::{
    Client, ClientConfig, Design, Finished, Lookup, Outcome, Post, QueueNeeds, Registered, Server,
    ServerConfig, Table,
};
use remora_store::ycsb::{Values, record};
use remora_transport::Instant;
use remora_transport::state::State;
use remora_wire::frame::{Class, Route};
use remora_wire::{Address, Egress, Endpoint, Ingress, Lease, Peer, Psn, Qpn, Start};

const RECORDS: u64 = 40;
const MTU: usize = 1024;

/// Frames under way, some of which are lost.
struct Link {
    frames: VecDeque<Vec<u8>>,
    random: Random,
    /// Number of frames of which one is lost; 0 loses none.
    loss: u64,
    lost: u64,
}

impl Egress for Link {
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }

    fn seals(&self, _: Peer) -> bool {
        false
    }

    fn lend(&mut self, _: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        self.frames.push_back(vec![0; len]);
        self.frames.back_mut().map(|bytes| Lease { bytes, ip_id: 0 })
    }

    fn commit(&mut self) {
        if self.loss > 0 && self.random.below(self.loss) == 0 {
            self.frames.pop_back();
            self.lost += 1;
        }
    }

    fn flush(&mut self) {}
}

/// A NIC with one queue pair, and the program's ends of its queues.
struct Side {
    regions: Arc<Regions>,
    pd: Pd,
    engine: Bare,
    out: Link,
    send: SendQueue,
    receive: ReceiveQueue,
    poller: CompletionPoller,
    qp: Qpn,
}

impl Side {
    fn new(needs: QueueNeeds, seed: u64, loss: u64) -> Side {
        let regions = Regions::new(TableConfig { key_seed: seed, ..TableConfig::default() }).unwrap();
        let regions = Arc::new(regions);
        let engine = Bare::new(&regions, Config { checks_icrc: false, max_qps: 4, ..Config::default() });
        let pd = regions.alloc_pd().unwrap();
        let ring = |slots| Ring::heap(slots).unwrap();
        // A request with two scatter/gather elements takes two slots.
        let (send, receive, cq_ring) =
            (ring(needs.send * needs.sges), ring(needs.receive), ring(needs.completions));
        let cq = engine
            .ask(Command::CreateCq { ring: engine.hand(cq_ring.clone()), flags: CqFlags::default() })
            .unwrap();
        let init = QueuePairInit {
            service: remora_nic::Service::Rc,
            pd,
            send_ring: engine.hand(send.clone()),
            receives: remora_nic::Receives::Own { ring: engine.hand(receive.clone()), max_sge: 1 },
            send_cq: cq,
            receive_cq: cq,
            signal_all: false,
            fetching: remora_nic::Fetching::Posted,
        };
        let qp = engine.ask(Command::CreateQp(init)).unwrap();
        let out = Link { frames: VecDeque::new(), random: Random::new(seed), loss, lost: 0 };
        let poller = CompletionPoller::new(cq_ring);
        let send = SendQueue::new(send, wqe::Bounds { max_sge: 2, max_inline: 64 });
        let receive = ReceiveQueue::new(receive, 1);
        Side { regions, pd, engine, out, send, receive, poller, qp }
    }

    fn register(&self, len: usize, access: Access) -> Registered {
        let bytes = Bytes::heap(len).unwrap();
        let key = self.regions.register(self.pd, &[Range::whole(&bytes)], access).unwrap();
        Registered { addr: bytes.address(), bytes, key }
    }

    fn modify(&self, changes: &[Modify]) {
        for change in changes {
            let command = Command::ModifyQp { qp: self.qp, change: Box::new(*change) };
            self.engine.ask::<()>(command).unwrap();
        }
    }

    fn initialise(&self) {
        let access = Some(Access::REMOTE_WRITE | Access::REMOTE_READ);
        let pkey_index = Some(0);
        let port = Some(1);
        self.modify(&[Modify { state: Some(State::Init), access, pkey_index, port, ..Modify::default() }]);
    }

    fn connect(&self, peer: Qpn, udp_port: u16, peer_udp_port: u16, with_strom: bool) {
        let address = Address::from(std::net::Ipv4Addr::LOCALHOST);
        let endpoint = |udp_port| Endpoint { address, udp_port };
        let route = Route::new(endpoint(udp_port), endpoint(peer_udp_port));
        let rtr = Modify {
            state: Some(State::Rtr),
            address: Some(AddressVector::new(Peer(0), route)),
            path_mtu: Some(MTU as u32),
            dest_qp: Some(peer),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(16),
            // Receive requests are posted before they are needed, so a store that needs the RNR timer has
            // miscounted.
            min_rnr_timer: Some(12),
            strom: Some(with_strom),
            ..Modify::default()
        };
        let rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(Psn::new(0)),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(0),
            max_rd_atomic: Some(16),
            ..Modify::default()
        };
        self.modify(&[rtr, rts]);
    }

    /// Performs one pass of the engine. Returns true if anything changed.
    fn pass(&mut self, now: Instant, arriving: &mut VecDeque<Vec<u8>>) -> bool {
        let mut guard = self.engine.enter();
        let (nic, mem) = guard.parts();
        nic.doorbell(self.qp);
        nic.expire(now, now, 4);
        let source = Endpoint { address: Address([0; 16]), udp_port: 0 };
        let moved = arriving.pop_front();
        if let Some(bytes) = &moved {
            nic.receive(
                now,
                mem,
                &Ingress { bytes, start: Start::Ip, sealed: false, source, destination: None, origin: None },
            );
        }
        nic.transmit(now, mem, &mut self.out, 4) > 0 || moved.is_some()
    }

    fn deadline(&self) -> Instant {
        let mut guard = self.engine.enter();
        guard.parts().0.next_deadline()
    }

    fn poll(&mut self) -> Option<WorkCompletion> {
        let cqe = self.poller.poll()?;
        self.poller.free();
        Some(cqe.completion)
    }
}

impl Post for Side {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        assert!(!matches!(request.payload, Payload::Inline(_)));
        self.send.push(request)?;
        self.send.publish();
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.receive.post(request)
    }
}

struct World<L: Lookup, T> {
    sides: [Side; 2],
    client: Client<L>,
    server: Server<T>,
    connection: remora_store::kv::Connection,
    now: u64,
}

impl<L: Lookup, T: Table> World<L, T> {
    fn new(loss: u64, seed: u64, table: impl FnOnce(&Side) -> T) -> World<L, T> {
        let config = ClientConfig { window: 8, max_key: 24, max_value: 9000, eager: 512, inline: 0 };
        let serving = ServerConfig {
            connections: 1,
            window: 8,
            max_key: 24,
            max_value: 9000,
            eager: 512,
            inline: 0,
            staging: 2,
        };
        let mut sides = [Side::new(config.needs(), seed, loss), Side::new(serving.needs(), seed + 1, loss)];
        let local = sides[1].register(serving.local_len(), Access::LOCAL_WRITE);
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let staging = sides[1].register(serving.staging_len(), written);
        let mut server = Server::new(table(&sides[1]), serving, local, staging).unwrap();
        let arena = sides[0].register(config.arena_len::<L>(), written);
        sides.iter().for_each(Side::initialise);
        let (connection, grant) = server.accept(&config.hello::<L>(&arena), &mut sides[1]).unwrap();
        let mut client = Client::new(config, &grant, arena).unwrap();
        client.start(&mut sides[0]).unwrap();
        sides[0].connect(sides[1].qp, 1, 2, L::ASKS);
        sides[1].connect(sides[0].qp, 2, 1, L::ASKS);
        World { sides, client, server, connection, now: 1 }
    }

    /// Performs a pass of both engines, and processes each program's completions. `judge` receives the
    /// operations that ended.
    fn turn(&mut self, mut judge: impl FnMut(Finished<'_>)) {
        let [client, server] = &mut self.sides;
        let moved = client.pass(Instant(self.now), &mut server.out.frames)
            | server.pass(Instant(self.now), &mut client.out.frames);
        self.now += 100;
        let mut polled = false;
        if let Some(completion) = self.sides[1].poll() {
            self.server.handle(self.connection, &completion, &mut self.sides[1]).unwrap();
            polled = true;
        }
        if let Some(completion) = self.sides[0].poll() {
            if let Some(finished) = self.client.complete(&completion, &mut self.sides[0]).unwrap() {
                judge(finished);
            }
            polled = true;
        }
        if !moved && !polled {
            // Only the passage of time can cause further progress.
            let next = self.sides.iter().map(|side| side.deadline().0).min().unwrap();
            self.now = self.now.max(next);
        }
    }
}

fn run<L: Lookup, T: Table>(loss: u64, table: impl FnOnce(&Side) -> T) {
    let mut world = World::<L, T>::new(loss, 10 + loss, table);
    let values = Values { shortest: 0, longest: 9000 };
    let mut buffer = vec![0; 9000];
    // The version with which each record was last PUT, and the number of completed PUTs.
    let mut versions = [0u64; RECORDS as usize];
    for number in 0..RECORDS {
        let len = values.fill(number, 0, &mut buffer);
        world.server.table_mut().put(&record::key(number), &buffer[..len]).unwrap();
    }
    let mut random = Random::new(3);
    let mut flights: [Option<(u64, u64)>; 8] = [None; 8];
    let mut gets = 0;
    let mut tries = 0;
    // Calls are atomic. So are kernels in this test, because the server takes its turn after its NIC.
    let whole = L::DESIGN == Design::TwoSided || L::ASKS;
    // The loop continues until a change has coincided with a read.
    while gets < 3000 || (!whole && tries == 0 && gets < 100_000) {
        let number = random.below(RECORDS);
        if world.client.in_flight() < 8 {
            let key = record::key(number);
            // At most one PUT per record is in flight, so that versions only grow.
            let putting = flights.iter().flatten().any(|(other, version)| *other == number && *version > 0);
            let started = if random.below(4) == 0 && !putting {
                versions[number as usize] += 1;
                let version = versions[number as usize];
                let len = values.fill(number, version, &mut buffer);
                (world.client.put(&key, &buffer[..len], &mut world.sides[0]), version)
            } else {
                (world.client.get(&key, &mut world.sides[0]), 0)
            };
            flights[started.0.unwrap().index()] = Some((number, started.1));
        }
        world.turn(|finished| {
            tries += finished.tries;
            let (number, put) = flights[finished.slot.index()].take().expect("it was started");
            match finished.outcome {
                Outcome::Value(value) => {
                    let version = values.check(number, value).expect("one whole value of the record");
                    assert!(version <= versions[number as usize]);
                    gets += 1;
                }
                Outcome::Done => assert!(put > 0),
                other => panic!("record {number}: {other:?}"),
            }
        });
    }
    let lost = world.sides[0].out.lost + world.sides[1].out.lost;
    assert_eq!(lost > 20, loss > 0, "{lost} frames lost");
    // The server does change what is being read.
    assert_eq!(tries > 0, !whole, "{tries} torn or vanished reads");
}

fn pilaf(side: &Side) -> PilafTable {
    let config = pilaf::Config::for_keys(RECORDS as u32, 5);
    let index = side.register(config.index_len(), Access::LOCAL_WRITE | Access::REMOTE_READ);
    PilafTable::new(config, index, side.register(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ))
}

fn farm(side: &Side) -> FarmTable {
    let config = farm::Config::for_keys(RECORDS as u32, 5);
    let index = side.register(config.index_len(), Access::LOCAL_WRITE | Access::REMOTE_READ);
    FarmTable::new(config, index, side.register(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ))
}

fn two_sided(side: &Side) -> TwoSidedTable {
    let config = two_sided::Config { keys: RECORDS as u32, hash_seed: 5 };
    TwoSidedTable::new(config, side.register(1 << 20, Access::LOCAL_WRITE))
}

/// Returns the table, and deploys the kernel that looks up keys in it.
fn with_a_kernel(side: &Side) -> StromTable {
    let config = strom::Config::for_keys(RECORDS as u32, 5);
    let index = side.register(config.index_len(), Access::LOCAL_WRITE);
    let extents = side.register(1 << 20, Access::LOCAL_WRITE);
    let init = KernelInit {
        pd: side.pd,
        opcode: Some(OPCODE),
        code: side.engine.hand(HandedPart::Kernels(vec![Box::new(Get::default())])),
        grants: vec![index.key, extents.key],
        answers: 16,
        longest: 1 << 14,
        limit: 64,
    };
    side.engine.ask::<u32>(Command::DeployKernel(init)).unwrap();
    StromTable::new(config, index, extents)
}

#[test]
fn every_design_runs_over_real_nics() {
    run::<Pilaf, _>(0, pilaf);
    run::<Farm, _>(0, farm);
    run::<TwoSided, _>(0, two_sided);
    run::<Strom, _>(0, with_a_kernel);
}

#[test]
fn every_design_survives_lost_frames() {
    run::<Pilaf, _>(50, pilaf);
    run::<Farm, _>(50, farm);
    run::<TwoSided, _>(50, two_sided);
    run::<Strom, _>(50, with_a_kernel);
}
