//! An executor of what clients have posted to servers' memories: one operation is executed whenever a test
//! requests it. The servers are shards, unless a test says otherwise.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use remora_memory::{Bytes, Key};
use remora_nic::prism::{Address, Data, Number, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest};
use remora_nic::{CompletionKind, Payload, PostError, ReceiveRequest, Sge, WorkCompletion};
use remora_transport::Status;
use xxhash_rust::xxh3::Xxh3;

use crate::heap::{Class, Classes, Reachable};
use crate::txn::{Grant, Shard, ShardConfig};
use crate::{Connections, Post, PostPrism, Registered};

pub(crate) fn block(addr: u64, key: u32, len: usize) -> Registered {
    Registered { bytes: Bytes::heap(len).unwrap(), addr, key: Key::new(key) }
}

const ARENAS: u64 = 1 << 40;
/// Bytes of a buffer.
const BUFFER: u32 = 128;

/// A posted operation, with its gathered bytes.
#[derive(Clone, Debug)]
enum Op {
    Read { from: Address, len: u32, into: Sge },
    Write { target: Address, data: Result<Vec<u8>, (u64, u32)> },
    Allocate { data: Vec<u8> },
    Swap { target: Address, operands: Operands },
    Message(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Posted {
    id: u64,
    op: Op,
    conditional: bool,
    redirect: bool,
    result: Option<Sge>,
    signaled: bool,
}

/// A client's queue pair at a shard.
#[derive(Default)]
struct Link {
    queue: VecDeque<Posted>,
    scratch: [u8; 32],
    failed: bool,
    completions: VecDeque<WorkCompletion>,
}

/// A shard with its buffers. They are reused in the worst order: the last one returned first.
pub(crate) struct Server<S = Shard> {
    pub shard: S,
    pub memory: Registered,
    pub classes: Classes,
    pub free: Vec<u64>,
}

impl Server {
    fn new(number: usize, config: ShardConfig, buffers: u32) -> Server {
        let table = config.table_len().next_multiple_of(64);
        let base = (number as u64 + 1) << 32;
        let memory = block(base, number as u32 + 1, table + (BUFFER * buffers) as usize);
        let class = Class { list: 1, base: base + table as u64, size: BUFFER, count: buffers };
        let shard = Shard::open(config, &memory).unwrap();
        let free = (0..buffers).map(|index| class.address(index)).collect();
        Server { shard, memory, classes: Classes::new(vec![class]).unwrap(), free }
    }
}

impl<S: Reachable> Server<S> {
    /// Returns the buffers to which the table points.
    pub(crate) fn live(&self) -> BTreeSet<u64> {
        let mut live = BTreeSet::new();
        (0..self.shard.entries())
            .for_each(|entry| self.shard.buffers(entry, &mut |addr| live.extend([addr])));
        live
    }

    fn load(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read((addr - self.memory.addr) as usize, &mut out);
        out
    }

    fn store(&self, addr: u64, bytes: &[u8]) {
        self.memory.write((addr - self.memory.addr) as usize, bytes);
    }

    fn number(&self, addr: u64, size: usize) -> Number {
        let bytes = self.load(addr, size);
        let mut number = [0; 4];
        number.iter_mut().zip(bytes.chunks_exact(8)).for_each(|(word, bytes)| {
            *word = u64::from_le_bytes(bytes.try_into().unwrap());
        });
        number
    }
}

/// All servers, and the queues of all clients.
pub(crate) struct Net<S = Shard> {
    pub servers: Vec<Server<S>>,
    links: Vec<Vec<Link>>,
    arenas: Vec<Registered>,
    /// Digest of all results that each client has received.
    seen: Vec<Xxh3>,
}

impl Net {
    pub(crate) fn new(shards: usize, config: ShardConfig, buffers: u32) -> Net {
        Net::of((0..shards).map(|number| Server::new(number, config, buffers)).collect())
    }

    /// Adds a client, and returns its grants and its arena.
    pub(crate) fn join(&mut self, arena_len: usize) -> (Vec<Grant>, Registered) {
        let grants =
            self.servers.iter_mut().map(|server| server.shard.accept(&server.classes).unwrap()).collect();
        (grants, self.connect(arena_len))
    }
}

impl<S: Reachable> Net<S> {
    /// Returns a network of these servers without clients.
    pub(crate) fn of(servers: Vec<Server<S>>) -> Net<S> {
        Net { servers, links: Vec::new(), arenas: Vec::new(), seen: Vec::new() }
    }

    /// Adds a client, and returns its arena.
    pub(crate) fn connect(&mut self, arena_len: usize) -> Registered {
        let arena = block(ARENAS * (self.arenas.len() as u64 + 1), 99, arena_len);
        self.arenas.push(arena.clone());
        self.seen.push(Xxh3::new());
        self.links.push(self.servers.iter().map(|_| Link::default()).collect());
        arena
    }

    pub(crate) fn connections(&mut self, client: usize) -> Endpoints<'_, S> {
        Endpoints { net: self, client }
    }

    /// Returns true if a client has posted an operation to a shard that is not executed yet.
    pub(crate) fn has_work(&self, client: usize, shard: usize) -> bool {
        !self.links[client][shard].queue.is_empty()
    }

    /// Returns the operations that a client has posted and that are not executed yet, as text.
    pub(crate) fn queue(&self, client: usize, shard: usize) -> String {
        format!("{:?}", self.links[client][shard].queue)
    }

    /// Returns true if a client has not received the result of an executed operation.
    pub(crate) fn has_answer(&self, client: usize, shard: usize) -> bool {
        !self.links[client][shard].completions.is_empty()
    }

    /// Drops the requests that a client has posted.
    pub(crate) fn kill(&mut self, client: usize) {
        self.links[client].iter_mut().for_each(|link| link.queue.clear());
    }

    pub(crate) fn poll(&mut self, client: usize, shard: usize) -> Option<WorkCompletion> {
        self.links[client][shard].completions.pop_front()
    }

    /// Returns a digest of the client's results. Two clients with the same results are in the same state.
    pub(crate) fn seen(&self, client: usize) -> u64 {
        self.seen[client].finish()
    }

    /// Executes a client's operations at a shard, up to the first that others can observe, and those after
    /// it that they cannot observe.
    pub(crate) fn step(&mut self, client: usize, shard: usize) {
        let mut visible = false;
        while let Some(posted) = self.links[client][shard].queue.front() {
            let shows = posted.shows();
            if shows && visible {
                return;
            }
            visible |= shows;
            let posted = self.links[client][shard].queue.pop_front().unwrap();
            self.execute(client, shard, &posted);
        }
    }

    fn execute(&mut self, client: usize, shard: usize, posted: &Posted) {
        let link = &mut self.links[client][shard];
        let (outcome, bytes) = if posted.conditional && link.failed {
            (Verdict::Skipped, vec![0; 32])
        } else {
            Self::perform(&mut self.servers[shard], link, posted)
        };
        link.failed = outcome != Verdict::Done;
        (shard, posted.id, outcome as u32, &bytes).hash(&mut self.seen[client]);
        let into = match posted.op {
            Op::Read { into, .. } => Some(into),
            _ => posted.result,
        };
        if let Some(sge) = into {
            let arena = &self.arenas[client];
            let len = bytes.len().min(sge.len as usize);
            arena.write((sge.addr - arena.addr) as usize, &bytes[..len]);
        }
        if posted.signaled {
            link.completions.push_back(WorkCompletion {
                id: posted.id,
                status: Status::Success,
                kind: CompletionKind::Read,
                byte_len: bytes.len() as u32,
                imm: None,
                invalidated: None,
                qp_num: 0,
                src_qp: 0,
                grh: None,
                outcome,
            });
        }
    }

    fn perform(server: &mut Server<S>, link: &mut Link, posted: &Posted) -> (Verdict, Vec<u8>) {
        let pointer = |server: &Server<S>, link: &Link, address: &Address| match address.remote.addr {
            addr if !address.indirect => (addr, u64::MAX),
            SCRATCH => (u64::from_le_bytes(link.scratch[..8].try_into().unwrap()), u64::MAX),
            addr => {
                let [target, bound, ..] = server.number(addr, 16);
                (target, if address.bounded { bound } else { u64::MAX })
            }
        };
        match &posted.op {
            Op::Read { from, len, .. } => {
                let (addr, bound) = pointer(server, link, from);
                let len = bound.min((*len).into()) as usize;
                if addr >= SCRATCH {
                    let offset = (addr - SCRATCH) as usize;
                    return (Verdict::Done, link.scratch[offset..offset + len].to_vec());
                }
                (Verdict::Done, server.load(addr, len))
            }
            Op::Write { target, data } => {
                let (addr, _) = pointer(server, link, target);
                let bytes = match data {
                    Ok(bytes) => bytes.clone(),
                    Err((from, len)) => link.scratch[(*from - SCRATCH) as usize..][..*len as usize].to_vec(),
                };
                match addr.checked_sub(SCRATCH) {
                    Some(offset) => link.scratch[offset as usize..][..bytes.len()].copy_from_slice(&bytes),
                    None => server.store(addr, &bytes),
                }
                (Verdict::Done, Vec::new())
            }
            Op::Allocate { data } => {
                assert!(posted.redirect, "to scratch memory");
                let Some(addr) = server.free.pop() else { return (Verdict::NoBuffer, Vec::new()) };
                server.store(addr, data);
                link.scratch[..8].copy_from_slice(&addr.to_le_bytes());
                (Verdict::Done, addr.to_le_bytes().to_vec())
            }
            Op::Swap { target, operands } => swap(server, link, target, operands),
            Op::Message(bytes) => {
                let live = server.live();
                for addr in bytes[16..].chunks_exact(8) {
                    let addr = u64::from_le_bytes(addr.try_into().unwrap());
                    assert!(!live.contains(&addr), "a buffer came back that the table leads to");
                    assert!(!server.free.contains(&addr), "a buffer came back twice");
                    server.free.push(addr);
                }
                (Verdict::Done, Vec::new())
            }
        }
    }
}

fn swap<S: Reachable>(
    server: &Server<S>,
    link: &Link,
    target: &Address,
    operands: &Operands,
) -> (Verdict, Vec<u8>) {
    let size = usize::from(operands.size);
    if target.remote.addr >= SCRATCH {
        assert_eq!(operands.swap_mask, [0; 4], "its own scratch memory is only looked at");
        return (Verdict::Done, link.scratch[..size].to_vec());
    }
    assert!(!target.indirect && target.remote.addr.is_multiple_of(size as u64), "aligned to its size");
    let old = server.number(target.remote.addr, size);
    let load = |operand: &Operand| match operand {
        Operand::Immediate(number) => *number,
        Operand::At(addr) => {
            assert_eq!(*addr, SCRATCH);
            std::array::from_fn(|word| u64::from_le_bytes(link.scratch[8 * word..][..8].try_into().unwrap()))
        }
    };
    let masked = |number: &Number| std::array::from_fn(|word| number[word] & operands.compare_mask[word]);
    let holds = operands.mode.holds(&masked(&load(&operands.compare)), &masked(&old));
    if holds {
        let new = load(&operands.swap_add);
        let mask = operands.swap_mask;
        for word in 0..size / 8 {
            let value = old[word] & !mask[word] | new[word] & mask[word];
            server.store(target.remote.addr + 8 * word as u64, &value.to_le_bytes());
        }
    }
    let bytes = old[..size / 8].iter().flat_map(|word| word.to_le_bytes()).collect();
    (if holds { Verdict::Done } else { Verdict::NotSwapped }, bytes)
}

impl Posted {
    /// Returns true if others can observe the operation, or if it observes others.
    fn shows(&self) -> bool {
        match &self.op {
            Op::Read { from, .. } => from.remote.addr < SCRATCH,
            // No other client knows this buffer yet.
            Op::Write { .. } | Op::Allocate { .. } | Op::Message(_) => false,
            Op::Swap { target, .. } => target.remote.addr < SCRATCH,
        }
    }
}

/// The queue pairs of a client.
pub(crate) struct Endpoints<'a, S = Shard> {
    net: &'a mut Net<S>,
    client: usize,
}

impl<S: Reachable> Connections for Endpoints<'_, S> {
    type Endpoint<'a>
        = Endpoint<'a, S>
    where
        Self: 'a;

    fn endpoint(&mut self, server: usize) -> Endpoint<'_, S> {
        Endpoint { net: self.net, client: self.client, shard: server }
    }
}

/// A queue pair of a client.
pub(crate) struct Endpoint<'a, S = Shard> {
    net: &'a mut Net<S>,
    client: usize,
    shard: usize,
}

impl<S: Reachable> Endpoint<'_, S> {
    fn gather(&self, payload: Payload<'_>) -> Vec<u8> {
        match payload {
            Payload::Inline(bytes) => bytes.to_vec(),
            Payload::Sges(sges) => {
                let arena = &self.net.arenas[self.client];
                let load = |sge: &Sge| {
                    let mut out = vec![0; sge.len as usize];
                    arena.read((sge.addr - arena.addr) as usize, &mut out);
                    out
                };
                sges.iter().flat_map(load).collect()
            }
        }
    }

    fn post(&mut self, posted: Posted) {
        self.net.links[self.client][self.shard].queue.push_back(posted);
    }
}

impl<S: Reachable> Post for Endpoint<'_, S> {
    fn post_send(&mut self, request: &remora_nic::WorkRequest<'_>) -> Result<(), PostError> {
        let bytes = self.gather(request.payload);
        let op = match request.operation {
            remora_nic::Operation::Write(destination) => {
                Op::Write { target: Address::direct(destination), data: Ok(bytes) }
            }
            _ => Op::Message(bytes),
        };
        let id = request.id;
        let signaled = request.flags.signaled;
        self.post(Posted { id, op, conditional: false, redirect: false, result: None, signaled });
        Ok(())
    }

    fn post_receive(&mut self, _: &ReceiveRequest<'_>) -> Result<(), PostError> {
        Ok(())
    }
}

impl<S: Reachable> PostPrism for Endpoint<'_, S> {
    fn post_prism(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let data = |data: &Data<'_>| match data {
            Data::Local(payload) => Ok(self.gather(*payload)),
            Data::There { addr, len } => Err((*addr, *len)),
        };
        let op = match &request.operation {
            Operation::Read { from, len, into } => Op::Read { from: *from, len: *len, into: into[0] },
            Operation::Write { to: target, data: payload } => {
                Op::Write { target: *target, data: data(payload) }
            }
            Operation::Allocate { data: payload, .. } => Op::Allocate { data: data(payload).unwrap() },
            Operation::CompareSwap { at: target, operands } => {
                Op::Swap { target: *target, operands: *operands }
            }
            Operation::FetchAdd { .. } => return Err(PostError::BadPayload),
        };
        self.post(Posted {
            id: request.id,
            op,
            conditional: request.conditional,
            redirect: request.redirect == Some(SCRATCH),
            result: request.result,
            signaled: request.flags.signaled,
        });
        Ok(())
    }
}
