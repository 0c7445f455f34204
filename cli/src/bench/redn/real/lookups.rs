//! Hash GETs and searches of a list: by a chain, by READs one behind the other, by a call.

mod tables;

use std::time::{Duration, Instant};

use ::chain::offload::{BUCKET, LIST, ask, ask_list, places, wanted};
use anyhow::{Context as _, Result, ensure};
use verbs::{
    Access, Call, CompletionKind, CompletionQueue, EMPTY, MemoryRegion, QpOptions, QueuePair, ReceiveRequest,
    RemoteMemory, Status, work,
};

use self::tables::{BUCKETS, CALLS, KEYS, LIST_AT, READS, Tables, VALUE};
use super::server::Server;
use crate::bench::cores::pin;
use crate::bench::{Args, PortName, Row};
use crate::device::LOOPBACK;

/// `FaRM`'s neighbourhood: buckets that one READ brings.
const NEIGHBOURHOOD: u64 = 6;
/// Lookups of a round.
const LOOKUPS: u64 = 4000;
/// An arm, and what its client connects as: a program that ships, or one of the others.
type Way = (&'static str, &'static str);
const HASH_WAYS: [Way; 3] = [("chain", "get"), ("two-reads", READS), ("call", CALLS)];
const BREAKS: &str = "list-break";
const LIST_WAYS: [Way; 4] =
    [("chain", "list"), ("chain-break", BREAKS), ("two-reads", READS), ("call", CALLS)];

/// What is looked up.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Lookup {
    /// A value of so many bytes, by its hash.
    Hash(u64),
    /// One of the first so many of a list of eight, values of 64 bytes.
    List(u64),
}

impl Lookup {
    fn name(self) -> String {
        match self {
            Lookup::Hash(len) => format!("hash-get/{len}"),
            Lookup::List(range) => format!("list-of-{LIST}/range-{range}"),
        }
    }

    fn ways(self) -> &'static [Way] {
        match self {
            Lookup::Hash(_) => &HASH_WAYS,
            Lookup::List(_) => &LIST_WAYS,
        }
    }

    fn key(self, number: u64) -> u64 {
        match self {
            Lookup::Hash(_) => 1 + number % KEYS,
            Lookup::List(range) => 1 + number.wrapping_mul(7) % range,
        }
    }
}

/// The rows of one port.
pub fn run(args: &Args, port: PortName, cores: [usize; 2]) -> Result<Vec<Row>> {
    let hashes = [64, 1024, 4096, 16_384, 65_536].map(Lookup::Hash);
    let lists = [1, 2, 4, 8].map(Lookup::List);
    let case = |lookup: Lookup, way: &str| format!("software/{}/{}/{way}", port.name(), lookup.name());
    let mut rows = Vec::new();
    for lookup in hashes.into_iter().chain(lists) {
        let mut ways = lookup.ways().iter();
        let any = ways.any(|(way, _)| args.wants_case(&format!("{}/latency_p50", case(lookup, way))));
        if !any {
            continue;
        }
        let measured = measure(args, port, cores, lookup)?;
        let chain = &measured[0];
        for ((way, _), rounds) in lookup.ways().iter().zip(&measured) {
            let row = Row::new("redn", case(lookup, way), "latency_p50", "ns", rounds);
            rows.push(if *way == "chain" { row } else { row.against("the chain", chain) });
        }
    }
    Ok(rows)
}

/// Medians of each way's rounds.
fn measure(args: &Args, port: PortName, cores: [usize; 2], lookup: Lookup) -> Result<Vec<Vec<f64>>> {
    let len = if let Lookup::Hash(len) = lookup { len } else { 64 };
    let server = Server::start(cores[1], move || Tables::open(port, len))?;
    pin(cores[0])?;
    let ways = lookup.ways();
    let mut clients: Vec<Client> =
        ways.iter().map(|(_, way)| Client::connect(port, &server, way)).collect::<Result<_>>()?;
    let mut rounds = vec![Vec::new(); ways.len()];
    for _ in 0..args.rounds {
        for ((client, (_, way)), rounds) in clients.iter_mut().zip(ways).zip(&mut rounds) {
            server.poll(*way == CALLS);
            rounds.push(client.median(lookup, way, len)?);
        }
    }
    server.poll(false);
    Ok(rounds)
}

struct Client {
    cq: CompletionQueue,
    pair: QueuePair,
    reply: MemoryRegion,
    small: MemoryRegion,
    there: RemoteMemory,
}

impl Client {
    fn connect(port: PortName, server: &Server, program: &str) -> Result<Client> {
        let context = port.device_on(LOOPBACK, "")?.open()?;
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        let reply = domain.allocate(VALUE as usize, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let small = domain.allocate(4096, Access::LOCAL_WRITE)?;
        crate::bench::touch(&reply)?;
        let call = Call { program: program.to_owned(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = domain.create_qp(&cq, &cq, &options)?.connect(server.address)?;
        let there = RemoteMemory::from_bytes(pair.peer_private_data()).context("the server's memory")?;
        Ok(Client { cq, pair, reply, small, there })
    }

    /// Nanoseconds of a lookup.
    fn median(&mut self, lookup: Lookup, way: &str, len: u64) -> Result<f64> {
        let mut times = crate::bench::histogram()?;
        for number in 0..LOOKUPS + LOOKUPS / 10 {
            let key = lookup.key(number);
            self.reply.put(0, &0_u64)?;
            let started = Instant::now();
            match way {
                READS => self.read(lookup, key, len)?,
                CALLS => self.call(lookup, key)?,
                program => self.chain(program, key)?,
            }
            let took = started.elapsed().as_nanos() as u64;
            ensure!(self.reply.get::<u64>(0)? == key, "the value that came is another key's");
            // The first tenth warms up.
            if number >= LOOKUPS / 10 {
                times.record(took.max(1))?;
            }
        }
        Ok(times.value_at_quantile(0.5) as f64)
    }

    fn chain(&mut self, program: &str, key: u64) -> Result<()> {
        let message = match program {
            "list" => ask_list(self.there.addr + LIST_AT, key),
            BREAKS => ask(self.there.addr + LIST_AT, key),
            _ => ask(self.there.addr + places(key, BUCKETS)[0] * BUCKET, key),
        };
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[self.small.sge(0, 1024)] })?;
        self.pair.post_send(&work::send_inline(2, &message))?;
        self.complete(CompletionKind::Receive)
    }

    fn call(&mut self, lookup: Lookup, key: u64) -> Result<()> {
        let list = u64::from(matches!(lookup, Lookup::List(_)));
        let message = [key.to_le_bytes(), list.to_le_bytes()].concat();
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[self.reply.sge(0, VALUE as usize)] })?;
        self.pair.post_send(&work::send_inline(2, &message))?;
        self.complete(CompletionKind::Receive)
    }

    /// READs, each when the one before has come: a neighbourhood of buckets or node after node, then the value.
    fn read(&mut self, lookup: Lookup, key: u64, len: u64) -> Result<()> {
        let (mut at, bytes) = match lookup {
            Lookup::Hash(_) => (places(key, BUCKETS)[0] * BUCKET, NEIGHBOURHOOD * BUCKET),
            Lookup::List(_) => (LIST_AT, BUCKET),
        };
        loop {
            self.fetch(true, at, bytes)?;
            let [header, value, _, next]: [u64; 4] = self.small.get(0)?;
            if header == wanted(key) {
                return self.fetch(false, value - self.there.addr, len);
            }
            ensure!(matches!(lookup, Lookup::List(_)) && header != wanted(0), "the key is not there");
            at = next - self.there.addr;
        }
    }

    fn fetch(&mut self, small: bool, at: u64, len: u64) -> Result<()> {
        let region = if small { &self.small } else { &self.reply };
        self.pair.post_send(&work::read(1, &[region.sge(0, len as usize)], self.there.at(at)))?;
        self.complete(CompletionKind::Read)
    }

    /// Waits for a completion of this kind; others may come before it.
    fn complete(&mut self, kind: CompletionKind) -> Result<()> {
        let mut done = [EMPTY; 4];
        loop {
            let came = self.cq.wait(&mut done, Duration::from_secs(30))?;
            for completion in &done[..came] {
                let status = completion.status;
                ensure!(status == Status::Success, "a lookup ended: {}", status.explain());
            }
            if done[..came].iter().any(|completion| completion.kind == kind) {
                return Ok(());
            }
        }
    }
}
