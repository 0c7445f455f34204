//! What the machines cost by themselves: a client and a server in one thread, joined by copies instead of NICs.
//!
//! `cargo bench -p remora-store --bench kv` prints, for each design and length of value, nanoseconds of a GET and of a
//! PUT: in all, of that the copies that a NIC would make (timed alone in the same round), and the rest, which is
//! client and server code.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use memory::{Bytes, Key};
use nic::{
    CompletionKind, Operation, Payload, PostError, ReceiveRequest, Remote, Sge, WorkCompletion, WorkRequest,
};
use remora_store::kv::farm::{self, Farm, FarmTable};
use remora_store::kv::pilaf::{self, Pilaf, PilafTable};
use remora_store::kv::two_sided::{self, TwoSided, TwoSidedTable};
use remora_store::kv::{
    Client, ClientConfig, Connection, Lookup, Outcome, Post, Registered, Server, ServerConfig, Table,
};
use remora_store::ycsb::{Random, Values, record};
use transport::Status;

const RECORDS: u64 = 2000;
const ROUNDS: usize = 200;
const OPERATIONS: usize = 500;

/// A copy that a NIC would make: blocks, offsets, length.
type Copied = (usize, usize, usize, usize, usize);

/// One end of the wire.
#[derive(Default)]
struct End {
    receives: VecDeque<(u64, Sge)>,
    completions: VecDeque<WorkCompletion>,
}

/// Both ends and all memory: block n is at address n * 2^32 under key n.
struct Wire {
    blocks: Vec<Bytes>,
    ends: [End; 2],
    through: Vec<u8>,
    log: Option<Vec<Copied>>,
}

impl Wire {
    fn register(&mut self, len: usize) -> Registered {
        let bytes = Bytes::heap(len).unwrap();
        self.blocks.push(bytes.clone());
        let number = self.blocks.len() as u32;
        Registered { bytes, addr: u64::from(number) << 32, key: Key::new(number) }
    }

    fn copy(&mut self, from: (Key, u64), to: (Key, u64), len: usize) {
        let place = |(key, addr): (Key, u64)| (key.get() as usize - 1, addr as u32 as usize);
        let ((from, from_at), (to, to_at)) = (place(from), place(to));
        if let Some(log) = &mut self.log {
            log.push((from, from_at, to, to_at, len));
        }
        copy(&self.blocks, &mut self.through, (from, from_at, to, to_at, len));
    }
}

fn copy(blocks: &[Bytes], through: &mut [u8], (from, from_at, to, to_at, len): Copied) {
    blocks[from].read(from_at, &mut through[..len]).unwrap();
    blocks[to].write(to_at, &through[..len]).unwrap();
}

/// The wire as one end sees it: everything is done as it is posted.
struct Seen<'a> {
    wire: &'a mut Wire,
    end: usize,
}

fn completion(id: u64, kind: CompletionKind, byte_len: u32, imm: Option<u32>) -> WorkCompletion {
    let status = Status::Success;
    WorkCompletion {
        id,
        status,
        kind,
        byte_len,
        imm,
        invalidated: None,
        qp_num: 1,
        src_qp: 0,
        grh: false,
        vendor_err: 0,
    }
}

impl Post for Seen<'_> {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let Payload::Sges(sges) = request.payload else { return Err(PostError::BadPayload) };
        let kind = match request.operation {
            Operation::Read(Remote { addr, rkey }) => {
                self.wire.copy((rkey, addr), (sges[0].lkey, sges[0].addr), sges[0].len as usize);
                CompletionKind::Read
            }
            Operation::Send => {
                let (id, sge) = self.wire.ends[1 - self.end].receives.pop_front().unwrap();
                let len = sges[0].len;
                self.wire.copy((sges[0].lkey, sges[0].addr), (sge.lkey, sge.addr), len as usize);
                let arrived = completion(id, CompletionKind::Receive, len, None);
                self.wire.ends[1 - self.end].completions.push_back(arrived);
                CompletionKind::Send
            }
            Operation::WriteImm(remote, imm) => {
                let (id, _) = self.wire.ends[1 - self.end].receives.pop_front().unwrap();
                let mut len = 0;
                for sge in sges {
                    let to = (remote.rkey, remote.addr + u64::from(len));
                    self.wire.copy((sge.lkey, sge.addr), to, sge.len as usize);
                    len += sge.len;
                }
                let arrived = completion(id, CompletionKind::ReceiveWriteImm, len, Some(imm));
                self.wire.ends[1 - self.end].completions.push_back(arrived);
                CompletionKind::Write
            }
            _ => return Err(PostError::BadPayload),
        };
        if request.flags.signaled {
            self.wire.ends[self.end].completions.push_back(completion(request.id, kind, 0, None));
        }
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.wire.ends[self.end].receives.push_back((request.id, request.sges[0]));
        Ok(())
    }
}

struct World<L: Lookup, T> {
    wire: Wire,
    client: Client<L>,
    server: Server<T>,
    connection: Connection,
    round_trips: u64,
}

impl<L: Lookup, T: Table> World<L, T> {
    fn new(value_len: usize, table: impl FnOnce(&mut Wire) -> T) -> World<L, T> {
        let through = vec![0; 1 << 17];
        let mut wire = Wire { blocks: Vec::new(), ends: Default::default(), through, log: None };
        let table = table(&mut wire);
        let max_value = value_len as u32;
        let config = ServerConfig { connections: 1, max_key: 64, max_value, ..ServerConfig::default() };
        let (local, staging) = (wire.register(config.local_len()), wire.register(config.staging_len()));
        let mut server = Server::new(table, config, local, staging).unwrap();
        let config = ClientConfig { max_key: 64, max_value, ..ClientConfig::default() };
        let arena = wire.register(config.arena_len::<L>());
        let hello = config.hello::<L>(&arena);
        let (connection, grant) = server.accept(&hello, &mut Seen { wire: &mut wire, end: 1 }).unwrap();
        let mut client = Client::new(config, &grant, arena).unwrap();
        client.start(&mut Seen { wire: &mut wire, end: 0 }).unwrap();
        World { wire, client, server, connection, round_trips: 0 }
    }

    #[inline]
    fn finish(&mut self) {
        loop {
            if let Some(completion) = self.wire.ends[1].completions.pop_front() {
                let nic = &mut Seen { wire: &mut self.wire, end: 1 };
                self.server.handle(self.connection, &completion, nic).unwrap();
            }
            if let Some(completion) = self.wire.ends[0].completions.pop_front() {
                let nic = &mut Seen { wire: &mut self.wire, end: 0 };
                if let Some(finished) = self.client.complete(&completion, nic).unwrap() {
                    assert!(matches!(finished.outcome, Outcome::Value(_) | Outcome::Done));
                    self.round_trips += u64::from(finished.round_trips);
                    return;
                }
            }
        }
    }

    #[inline]
    fn get(&mut self, key: &[u8]) {
        self.client.get(key, &mut Seen { wire: &mut self.wire, end: 0 }).unwrap();
        self.finish();
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.client.put(key, value, &mut Seen { wire: &mut self.wire, end: 0 }).unwrap();
        self.finish();
    }

    /// Nanoseconds of an operation and of its copies alone. Rounds are shorter than a time slice, and of each time the
    /// quickest tenth counts: others may be using the machine.
    fn time(&mut self, mut operation: impl FnMut(&mut Self, usize)) -> (f64, f64) {
        let mut times = [(); 2].map(|()| Vec::with_capacity(ROUNDS));
        let each = |begin: Instant| begin.elapsed().as_nanos() as f64 / OPERATIONS as f64;
        self.wire.log = Some(Vec::new());
        (0..OPERATIONS).for_each(|at| operation(self, at));
        let log = self.wire.log.take().unwrap();
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            (0..OPERATIONS).for_each(|at| operation(self, at));
            times[0].push(each(begin));
            let begin = Instant::now();
            for copied in &log {
                copy(&self.wire.blocks, &mut self.wire.through, black_box(*copied));
            }
            times[1].push(each(begin));
        }
        times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        (times[0][ROUNDS / 10], times[1][ROUNDS / 10])
    }
}

fn bench<L: Lookup, T: Table>(value_len: usize, table: impl FnOnce(&mut Wire) -> T) {
    let mut world = World::<L, T>::new(value_len, table);
    let values = Values::fixed(value_len as u32);
    let mut value = vec![0; value_len];
    for number in 0..RECORDS {
        values.fill(number, 0, &mut value);
        world.server.table_mut().put(&record::key(number), &value).unwrap();
    }
    let mut random = Random::new(1);
    let keys: Vec<_> = (0..OPERATIONS).map(|_| record::key(random.below(RECORDS))).collect();
    world.round_trips = 0;
    let get = world.time(|world, at| world.get(&keys[at % keys.len()]));
    let trips = world.round_trips as f64 / ((ROUNDS + 1) * OPERATIONS) as f64;
    let put = world.time(|world, at| world.put(&keys[at % keys.len()], &value));
    let name = L::DESIGN.name();
    for (what, (all, copies), trips) in [("get", get, trips), ("put", put, 1.0)] {
        println!(
            "{name:9} {what} {value_len:5} B  {all:7.0} ns  copies {copies:6.0}  own {:6.0}  round trips {trips:.2}",
            all - copies
        );
    }
}

fn main() {
    let keys = RECORDS as u32;
    for value_len in [64, 512, 4096, 65536] {
        let room = 2 * RECORDS as usize * (value_len + 192);
        bench::<Pilaf, _>(value_len, |wire| {
            let config = pilaf::Config::for_keys(keys, 1);
            let index = wire.register(config.index_len());
            PilafTable::new(config, index, wire.register(room))
        });
        bench::<Farm, _>(value_len, |wire| {
            let config = farm::Config::for_keys(keys, 1);
            let index = wire.register(config.index_len());
            FarmTable::new(config, index, wire.register(room))
        });
        bench::<TwoSided, _>(value_len, |wire| {
            TwoSidedTable::new(two_sided::Config { keys, hash_seed: 1 }, wire.register(room))
        });
    }
}
