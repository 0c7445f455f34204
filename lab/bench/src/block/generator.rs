//! Clients in a closed loop. Each has its own connections to all replicas and a constant number of
//! operations in flight. One thread drives them all through one completion queue.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use remora_host::Clock;
use remora_nic::Remote;
use remora_store::Connections;
use remora_store::block::{
    AnyClient, ClientConfig, ClientId, Design, Finished, Hello, Machine as _, Operation, Outcome, Purpose,
    Refused, Welcome,
};
use remora_verbs::{
    Access, CompletionQueue, Context, EMPTY, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ready,
    WorkCompletion, work,
};

use remora_options::device::PortArgs;
use remora_service::block::client_config as config;
use remora_service::flush::Flush;
use remora_service::post::{Ringing, registered};
use remora_service::server::READS;

/// The number of completions taken at a time.
const TAKEN: usize = 64;
/// The maximum time of one operation.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum time for which messages of completed operations may still be in flight.
const CLOSING: Duration = Duration::from_secs(1);

/// A client's connections in the form that its state machine uses.
struct Ends<'a>(&'a mut [QueuePair<Ready>]);

impl Connections for Ends<'_> {
    type Endpoint<'a>
        = Ringing<'a>
    where
        Self: 'a;

    fn endpoint(&mut self, server: usize) -> Ringing<'_> {
        Ringing::of(&mut self.0[server])
    }
}

/// A client: its state machine and a queue pair for each replica.
struct Client {
    machine: AnyClient,
    pairs: Vec<QueuePair<Ready>>,
    /// The start time of the operation in each slot.
    begun: Vec<Instant>,
    /// The operation and its block that were drawn from the workload and have not started.
    drawn: Option<(Operation, u64)>,
    _arena: MemoryRegion,
}

/// The client and the replica of every queue pair, sorted by the queue pair's number. The list is searched
/// for every completion while the benchmark measures.
#[derive(Default)]
struct Owners(Vec<(u32, Owner)>);

/// The index of the client and of the replica of a queue pair.
#[derive(Copy, Clone)]
struct Owner {
    client: usize,
    replica: usize,
}

impl Owners {
    fn add(&mut self, number: u32, owner: Owner) {
        let index = self.0.partition_point(|(other, _)| *other < number);
        self.0.insert(index, (number, owner));
    }

    #[inline]
    fn of(&self, number: u32) -> Option<Owner> {
        let index = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.0[index].1)
    }
}

/// All clients of a benchmark, with their NIC.
pub(crate) struct LoadGenerator {
    clock: Clock,
    clients: Vec<Client>,
    owners: Owners,
    cq: CompletionQueue,
    done: [WorkCompletion; TAKEN],
    value: Vec<u8>,
    /// The memory of the replicas that bare READs read. `local` receives the data.
    tables: Vec<Remote>,
    local: MemoryRegion,
    context: Context,
    domain: ProtectionDomain,
    /// Number of clients that issue operations; the others are idle.
    active: usize,
}

/// Number and kind of the clients that generate load.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Size {
    /// Number of clients.
    pub clients: usize,
    /// The maximum number of operations that each client has in flight.
    pub window: u16,
}

fn connect(
    domain: &ProtectionDomain,
    cq: &CompletionQueue,
    replicas: usize,
    window: u16,
    address: SocketAddr,
    wants_number: bool,
) -> Result<(QueuePair<Ready>, Welcome)> {
    let needs = AnyClient::needs(&config(ClientId::new(0).context("a number")?, replicas, window));
    let options = QpOptions {
        max_send_wr: needs.send * 2,
        max_recv_wr: needs.receive,
        private_data: Hello { replicas, purpose: Purpose::Use { wants_number } }.encode(),
        max_rd_atomic: READS,
        max_dest_rd_atomic: READS,
        prism: true,
        ..QpOptions::default()
    };
    let pair = remora_service::connect::connect(domain, cq, &options, address)?;
    let welcome = Welcome::decode(pair.peer_private_data()).context("no replica of blocks answers there")?;
    Ok((pair, welcome))
}

impl LoadGenerator {
    /// Connects each client to all replicas.
    ///
    /// # Errors
    /// Fails if a replica does not answer.
    pub(crate) fn open(port: &PortArgs, replicas: &[SocketAddr], size: Size) -> Result<LoadGenerator> {
        let context = port.open()?;
        let domain = context.alloc_pd()?;
        LoadGenerator::with(context, domain, replicas, size)
    }

    /// Creates another load generator on the same NIC.
    ///
    /// # Errors
    /// Fails if a replica does not answer.
    pub(crate) fn beside(&self, replicas: &[SocketAddr], size: Size) -> Result<LoadGenerator> {
        LoadGenerator::with(self.context.clone(), self.domain.clone(), replicas, size)
    }

    fn with(
        context: Context,
        domain: ProtectionDomain,
        replicas: &[SocketAddr],
        size: Size,
    ) -> Result<LoadGenerator> {
        let count = replicas.len();
        let needs = AnyClient::needs(&config(ClientId::new(0).context("a number")?, count, size.window));
        let cq = context.create_cq(needs.completions * 2 * (count * size.clients) as u32)?;
        let local = domain.allocate(1 << 16, Access::LOCAL_WRITE)?;
        let mut generator = LoadGenerator {
            clock: Clock::new(),
            clients: Vec::new(),
            owners: Owners::default(),
            cq,
            done: [EMPTY; TAKEN],
            value: Vec::new(),
            tables: Vec::new(),
            local,
            context,
            domain: domain.clone(),
            active: size.clients,
        };
        for _ in 0..size.clients {
            generator.join(&domain, replicas, size.window)?;
        }
        Ok(generator)
    }

    /// Returns the number of clients.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Lets only the first `clients` clients issue operations from now on.
    pub(crate) fn only(&mut self, clients: usize) {
        self.active = clients.min(self.clients.len());
    }

    /// Connects one more client to all replicas.
    fn join(&mut self, domain: &ProtectionDomain, replicas: &[SocketAddr], window: u16) -> Result<()> {
        let mut pairs = Vec::new();
        let mut grants = Vec::new();
        let mut number = None;
        for address in replicas {
            // The replicas assign client numbers slowly, and one number per client is enough.
            let wants_number = number.is_none();
            let (pair, welcome) = connect(domain, &self.cq, replicas.len(), window, *address, wants_number)
                .with_context(|| format!("the replica at {address}"))?;
            self.owners.add(pair.number(), Owner { client: self.clients.len(), replica: pairs.len() });
            number = number.or(welcome.number);
            grants.push(welcome.grant);
            pairs.push(pair);
        }
        let id = number.context("no replica has assigned a client number")?;
        let (design, layout) =
            grants.first().map(|grant| (grant.design, grant.layout)).context("a replica")?;
        let config = ClientConfig { layout, ..config(id, replicas.len(), window) };
        let len = AnyClient::arena_len(design, &config);
        let arena = domain.allocate(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let mut machine = AnyClient::new(design, config, registered(&arena), self.clients.len() as u64)
            .context("a store of blocks has 1, 3, 5 or 7 replicas")?;
        for (replica, grant) in grants.iter().enumerate() {
            machine
                .connect(replica, *grant, &mut Ends(&mut pairs))
                .map_err(|broken| anyhow::anyhow!("{broken}"))?;
        }
        self.value.resize(layout.block_len as usize, 7);
        self.tables = grants.iter().map(|grant| grant.table).collect();
        let begun = vec![Instant::now(); config.slots()];
        self.clients.push(Client { machine, pairs, begun, drawn: None, _arena: arena });
        Ok(())
    }

    /// Runs `count` operations with `each` in flight per client. Passes the latency in nanoseconds and the
    /// round trips of each to `took`.
    ///
    /// # Errors
    /// Fails if a replica has died or has no free buffer.
    pub(crate) fn run(
        &mut self,
        count: u64,
        each: usize,
        mut draw: impl FnMut() -> (Operation, u64),
        mut took: impl FnMut(u64, u32),
    ) -> Result<()> {
        // The clients that can start an operation, and those that a slow replica holds up although they have
        // fewer than `each` in flight.
        let mut free: Vec<usize> = (0..self.active).flat_map(|number| vec![number; each]).collect();
        let mut held = Vec::with_capacity(free.len());
        let mut begun = 0;
        let mut over = 0;
        let mut heard = Instant::now();
        while over < count {
            while begun < count
                && let Some(number) = free.pop()
            {
                match self.begin(number, &mut draw)? {
                    true => begun += 1,
                    false => held.push(number),
                }
            }
            free.append(&mut held);
            let before = over;
            self.turn(|number, nanoseconds, finished| {
                over += 1;
                free.push(number);
                took(nanoseconds, finished.round_trips);
            })?;
            if over > before {
                heard = Instant::now();
            } else if heard.elapsed() > PATIENCE {
                bail!("the replicas do not answer");
            }
        }
        Ok(())
    }

    /// Starts the drawn operation. Returns false if the client cannot start it now.
    fn begin(&mut self, number: usize, draw: impl FnMut() -> (Operation, u64)) -> Result<bool> {
        let client = &mut self.clients[number];
        let (operation, block) = *client.drawn.get_or_insert_with(draw);
        let value: &[u8] = if operation == Operation::Write { &self.value } else { &[] };
        let now = Instant::now();
        let ends = &mut Ends(&mut client.pairs);
        match client.machine.start(self.clock.now(), operation, block, value, ends) {
            Ok(slot) => {
                client.begun[slot.index()] = now;
                client.drawn = None;
                Ok(true)
            }
            Err(Refused::WindowFull) => Ok(false),
            Err(refused) => bail!("{refused}"),
        }
    }

    /// Takes the completed operations: the client of each, and its latency in nanoseconds.
    #[inline]
    fn turn(&mut self, mut ended: impl FnMut(usize, u64, &Finished<'_>)) -> Result<()> {
        let now = self.clock.now();
        let got = self.cq.poll(&mut self.done)?;
        for completion in &self.done[..got] {
            let Some(Owner { client: number, replica }) = self.owners.of(completion.qp_num) else { continue };
            let Client { machine, pairs, begun, .. } = &mut self.clients[number];
            if let Some(finished) = machine.complete(now, replica, completion, &mut Ends(pairs)) {
                let well = matches!(finished.outcome, Outcome::Value(_) | Outcome::Done);
                ensure!(well, "an operation ended as {:?}", finished.outcome);
                ended(number, begun[finished.slot.index()].elapsed().as_nanos() as u64, &finished);
            }
        }
        for Client { machine, pairs, .. } in &mut self.clients {
            machine.expire(now, &mut Ends(pairs));
            if let Some(lost) = machine.lost() {
                bail!("replica {} has failed: {}", lost.replica, lost.why);
            }
        }
        Ok(())
    }

    /// Polls until no operation is in progress.
    ///
    /// # Errors
    /// The errors of the NIC.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.clients.iter().all(|client| client.machine.is_quiet()) && started.elapsed() < CLOSING {
            self.turn(|_, _, _| ())?;
        }
        self.flush()
    }

    /// Polls until the replicas have acknowledged everything that was sent, including messages without a
    /// completion. The replicas are stopped next, and unacknowledged messages would run out of retries.
    fn flush(&mut self) -> Result<()> {
        let mut flush = Flush::of("a replica");
        while flush.goes_on(self.clients.iter_mut().flat_map(|client| &mut client.pairs))? {
            let now = self.clock.now();
            let got = self.cq.poll(&mut self.done)?;
            for completion in &self.done[..got] {
                let Some(Owner { client: number, replica }) = self.owners.of(completion.qp_num) else {
                    continue;
                };
                if flush.takes(completion)? {
                    continue;
                }
                let Client { machine, pairs, .. } = &mut self.clients[number];
                machine.complete(now, replica, completion, &mut Ends(pairs));
            }
        }
        Ok(())
    }

    /// Measures READs of `len` bytes at these places in the table of every replica, sent to all replicas at
    /// once. Returns the times in nanoseconds until a majority has answered. The next READ starts then, while
    /// the last replica is still busy, as the phases of an operation do. No operation may be in progress.
    ///
    /// # Errors
    /// Fails if a READ fails.
    pub(crate) fn bare_quorums(
        &mut self,
        len: usize,
        places: impl Iterator<Item = u64>,
        all: &mut Vec<f64>,
    ) -> Result<()> {
        let list = [self.local.sge(0, len)];
        let replicas = self.tables.len();
        let mut under_way = 0;
        for (number, place) in places.enumerate() {
            let started = Instant::now();
            for (pair, table) in self.clients[0].pairs.iter_mut().zip(&self.tables) {
                let remote = Remote { addr: table.addr + place, ..*table };
                pair.post_send(&work::read(number as u64, &list, remote))?;
            }
            under_way += replicas;
            let mut answered = 0;
            // The READs still in flight are fewer than one per replica.
            while answered <= replicas / 2 || under_way >= replicas {
                let before = answered;
                for completion in self.answers()? {
                    answered += usize::from(completion.id == number as u64);
                    under_way -= 1;
                }
                if before <= replicas / 2 && answered > replicas / 2 {
                    all.push(started.elapsed().as_nanos() as f64);
                }
            }
        }
        while under_way > 0 {
            under_way -= self.answers()?.len();
        }
        Ok(())
    }

    /// Returns the completions of READs that have arrived.
    fn answers(&mut self) -> Result<&[WorkCompletion]> {
        let got = self.cq.poll(&mut self.done)?;
        let done = &self.done[..got];
        let failed = done.iter().any(|completion| completion.status != remora_verbs::Status::Success);
        ensure!(!failed, "a READ of the replicas' tables failed");
        Ok(done)
    }
}

/// Returns a read or a write, with equal probability, of a block that `next` draws.
pub(crate) fn half_writes(
    random: &mut remora_store::Random,
    next: impl Fn(&mut remora_store::Random) -> u64,
) -> (Operation, u64) {
    let operation = if random.below(2) == 0 { Operation::Read } else { Operation::Write };
    (operation, next(random))
}

/// Returns the length in bytes of a design's longest verb, which all replicas execute: a READ of a block's
/// tag and value, or a WRITE of a copy.
pub(crate) fn read_len(design: Design, block_len: usize) -> usize {
    match design {
        Design::PrismRs => 8 + block_len,
        Design::AbdLock => 8 + block_len + 8,
    }
}
