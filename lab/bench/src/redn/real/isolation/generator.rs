//! The clients: a reader and its writers, multiplexed on one core, each in a closed loop over its own keys.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use remora_chain::offload::ask;
use remora_verbs::{
    Access, Call, CompletionQueue, Context, EMPTY, Flags, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, ReceiveRequest, RemoteMemory, Status, WorkCompletion, WorkRequest, work,
};

use super::shop::{CALLS, CLIENTS, KEYS, VALUE, table};
use super::{Server, Way};
use crate::PortName;
use crate::SHORTER;
use remora_options::device::LOOPBACK;
use remora_store_cli::chains::table::{Table, late};

/// The number of GETs of a round.
const GETS: usize = 5000 / SHORTER as usize;
/// The maximum time of an answer.
const LONG: Duration = Duration::from_secs(30);
/// The size in bytes of one answer slot and of all slots. The program of the chain depends on the total.
const ANSWER: usize = 64;
const ANSWERS: usize = 1 << 16;

/// The results of a reader in one round.
pub(crate) struct Seen {
    /// Latencies of the GETs in nanoseconds.
    pub gets: Histogram<u64>,
    /// SETs per second of all writers.
    pub sets: f64,
}

/// A client: its connection, and the index of its next key.
struct Client {
    pair: QueuePair,
    next: usize,
}

/// All clients of the benchmark.
pub(crate) struct Generator {
    table: Table,
    answers: MemoryRegion,
    /// The completion queues of the reader and of the writers.
    reads: CompletionQueue,
    writes: CompletionQueue,
    chain: Client,
    calls: Client,
    writers: Vec<Client>,
    there: RemoteMemory,
}

/// Connects a client whose completions go to the given queue.
fn connect(
    domain: &ProtectionDomain,
    cq: &CompletionQueue,
    server: &Server,
    program: &str,
    reply: &MemoryRegion,
) -> Result<Client> {
    let call = Call { program: program.to_owned(), reply: reply.remote_memory() };
    let options = QpOptions { private_data: call.to_bytes(), ..late() };
    Ok(Client { pair: domain.create_qp(cq, cq, &options)?.connect(server.address)?, next: 0 })
}

impl Generator {
    /// Connects all clients.
    pub(crate) fn connect(port: PortName, server: &Server) -> Result<Generator> {
        let context: Context = port.device_on(LOOPBACK, "")?.open()?;
        let domain = context.alloc_pd()?;
        let reads = context.create_cq(64)?;
        let writes = context.create_cq(256)?;
        let answers = domain.allocate(ANSWERS, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let chain = connect(&domain, &reads, server, "get", &answers)?;
        let there = RemoteMemory::from_bytes(chain.pair.peer_private_data()).context("the table")?;
        let calls = connect(&domain, &reads, server, CALLS, &answers)?;
        let writer = |_| connect(&domain, &writes, server, CALLS, &answers);
        let writers = (1..CLIENTS).map(writer).collect::<Result<_>>()?;
        Ok(Generator { table: table(), answers, reads, writes, chain, calls, writers, there })
    }

    /// Runs one round of the reader's GETs while `writers` writers send SETs.
    pub(crate) fn round(&mut self, way: Way, writers: usize) -> Result<Seen> {
        let mut gets = crate::histogram()?;
        let mut sets = 0_u64;
        for number in 0..writers {
            self.set(number)?;
        }
        let mut began = Instant::now();
        for number in 0..GETS + GETS / 10 {
            // The first tenth of the GETs warms up the caches.
            if number == GETS / 10 {
                gets.reset();
                (began, sets) = (Instant::now(), 0);
            }
            let took = self.get(way, &mut sets)?;
            gets.record(took.as_nanos().max(1) as u64)?;
        }
        let sets = sets as f64 / began.elapsed().as_secs_f64();
        let mut left = writers;
        let stopped = Instant::now();
        while left > 0 {
            left -= usize::from(self.written()?.is_some());
            ensure!(stopped.elapsed() < LONG, "a SET is not answered");
        }
        Ok(Seen { gets, sets })
    }

    /// Performs a GET, and lets the writers send SETs meanwhile.
    fn get(&mut self, way: Way, sets: &mut u64) -> Result<Duration> {
        let client = if way == Way::Chain { &mut self.chain } else { &mut self.calls };
        let key = self.table.key(client.next);
        client.next = (client.next + 1) % KEYS;
        self.answers.put(0, &0_u64)?;
        let message = match way {
            Way::Chain => ask(self.there.addr + self.table.place(key) as u64, key),
            Way::Calls => key.to_le_bytes().to_vec(),
        };
        let started = Instant::now();
        say(client, 0, &self.answers, 0, &message)?;
        let answer = loop {
            if let Some(answer) = taken(&mut self.reads)? {
                break answer;
            }
            if let Some(writer) = self.written()? {
                *sets += 1;
                self.set(writer)?;
            }
            ensure!(started.elapsed() < LONG, "a GET is not answered");
        };
        let took = started.elapsed();
        ensure!(answer.byte_len as usize == VALUE, "the key is not there");
        ensure!(self.answers.get::<u64>(0)? == key, "the answer has the value of another key");
        Ok(took)
    }

    /// Sends the next SET of a writer.
    fn set(&mut self, number: usize) -> Result<()> {
        let client = &mut self.writers[number];
        let key = self.table.key((number + 1) * KEYS + client.next);
        client.next = (client.next + 1) % KEYS;
        let mut message = [0; 8 + VALUE];
        message[..8].copy_from_slice(&key.to_le_bytes());
        message[8..16].copy_from_slice(&key.to_le_bytes());
        say(client, number as u64, &self.answers, (number + 1) * ANSWER, &message)
    }

    /// Returns the writer whose SET has been answered, or `None`.
    fn written(&mut self) -> Result<Option<usize>> {
        let Some(done) = taken(&mut self.writes)? else { return Ok(None) };
        let number = done.id as usize;
        let client = &self.writers[number];
        let last = (number + 1) * KEYS + (client.next + KEYS - 1) % KEYS;
        let answer: u64 = self.answers.get((number + 1) * ANSWER)?;
        ensure!(answer == self.table.key(last), "the answer to a SET is another key's");
        Ok(Some(number))
    }
}

/// Sends a message and posts a receive for the answer.
fn say(client: &mut Client, id: u64, answers: &MemoryRegion, offset: usize, message: &[u8]) -> Result<()> {
    client.pair.post_recv(&ReceiveRequest { id, sges: &[answers.sge(offset, ANSWER)] })?;
    let quiet = WorkRequest { flags: Flags::default(), ..work::send_inline(id, message) };
    Ok(client.pair.post_send(&quiet)?)
}

/// Returns a completion, if there is one.
fn taken(cq: &mut CompletionQueue) -> Result<Option<WorkCompletion>> {
    let mut done = [EMPTY; 1];
    if cq.poll(&mut done)? == 0 {
        return Ok(None);
    }
    let status = done[0].status;
    ensure!(status == Status::Success, "a message ended: {}", status.explain());
    Ok(Some(done[0]))
}
