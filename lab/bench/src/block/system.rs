//! A design in the benchmark: its three replicas, one single client, and a group of many clients.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use remora_store::Random;
use remora_store::block::{Design, Operation};

use super::generator::{LoadGenerator, Size, half_writes, read_len};
use crate::testbed::Testbed;
use crate::testbed::process::Process;
use crate::{histogram, median};
use remora_service::block::WINDOW;

/// The number of replicas of a store.
pub(crate) const REPLICAS: usize = 3;
/// The number of slices of a round. Single operations and bare READs alternate in slices, because the speed
/// of the machine changes within a second.
const SLICES: usize = 10;

/// The size of a store.
#[derive(Copy, Clone, Debug)]
pub(crate) struct StoreSize {
    /// Number of blocks.
    pub blocks: u64,
    /// Length of a block in bytes.
    pub block_len: usize,
    /// The number of clients in the measurement with many clients.
    pub clients: usize,
}

/// The number of operations of a round. The parts of a round keep their proportions.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RoundSize(pub u64);

impl RoundSize {
    /// Returns the operations of one client with a full window.
    fn together(self) -> u64 {
        self.0
    }

    /// Returns the operations of one client, one at a time.
    fn alone(self) -> u64 {
        self.0 / 10
    }

    /// Operations of a round in which `clients` clients take part.
    fn crowded(self, clients: usize) -> u64 {
        self.0 / 10 + self.0 * 3 / 400 * clients as u64
    }

    /// Returns the number of bare READs.
    fn trips(self) -> usize {
        (self.0 / 20) as usize
    }
}

/// A design and the results of its rounds.
pub(crate) type Rounds = (Design, Vec<Round>);

/// Results of one round; latencies in nanoseconds.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Round {
    /// Median latency of the operations.
    pub p50: f64,
    /// Mean latency of the operations.
    pub mean: f64,
    /// 99th percentile of the latency.
    pub p99: f64,
    /// Operations per second.
    pub rate: f64,
    /// Mean number of round trips of an operation.
    pub round_trips: f64,
    /// Median time until a majority has answered a READ of the bytes that the design reads, sent to all
    /// replicas in the same round; for the single client only.
    pub bare: f64,
}

/// A design's replicas and clients.
pub(crate) struct SystemUnderTest {
    /// Design of the store.
    pub design: Design,
    /// The process that runs all replicas.
    replicas: Process,
    one: LoadGenerator,
    generator: LoadGenerator,
    block_len: usize,
    blocks: u64,
    round: RoundSize,
}

/// Starts the replicas of a store and returns their addresses.
fn start(
    testbed: &Testbed,
    size: StoreSize,
    store: usize,
    design: Design,
) -> Result<(Process, Vec<SocketAddr>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["__replicas", "--design", design.name()])
        .args(["--replicas", &REPLICAS.to_string(), "--clients", &(size.clients + 8).to_string()])
        .args(["--blocks", &size.blocks.to_string(), "--block-len", &size.block_len.to_string()])
        .args(["--core", &testbed.cores()[1].to_string()])
        .args(testbed.replicas_server(store));
    let (replicas, lines) =
        Process::start_ready(&mut command, REPLICAS).context("the replicas did not start")?;
    let address = |(replica, line): (usize, &String)| -> Result<SocketAddr> {
        Ok((testbed.replica_address(store, replica), line.trim().parse::<u16>()?).into())
    };
    let addresses = lines.iter().enumerate().map(address).collect::<Result<_>>()?;
    Ok((replicas, addresses))
}

impl SystemUnderTest {
    /// Starts a design, writes all its blocks, and stops the replicas until their turn comes.
    ///
    /// # Errors
    /// Fails if the replicas do not start.
    pub(crate) fn open(
        testbed: &Testbed,
        size: StoreSize,
        round: RoundSize,
        store: usize,
        design: Design,
    ) -> Result<SystemUnderTest> {
        let (replicas, addresses) = start(testbed, size, store, design)?;
        let port = testbed.replicas_client(store);
        let load = |clients, window| Size { clients, window };
        // An interface can have only one NIC, so both load generators share it.
        let one = LoadGenerator::open(&port, &addresses, load(1, WINDOW))?;
        let generator = one.beside(&addresses, load(size.clients, 1))?;
        let StoreSize { blocks, block_len, .. } = size;
        let mut system = SystemUnderTest { design, replicas, one, generator, block_len, blocks, round };
        let mut next = 0..blocks;
        let write = || (Operation::Write, next.next().unwrap_or(0));
        system.one.run(blocks, WINDOW.into(), write, |_, _| ())?;
        system.stop()?;
        Ok(system)
    }

    fn go_on(&self) -> Result<()> {
        self.replicas.go_on()
    }

    fn stop(&mut self) -> Result<()> {
        self.one.settle()?;
        self.generator.settle()?;
        self.replicas.stop()
    }

    /// Measures one client: first with one operation at a time, then with a full window.
    ///
    /// # Errors
    /// Fails if a replica has died.
    pub(crate) fn one(&mut self, keys: impl Fn(&mut Random) -> u64, seed: u64) -> Result<Round> {
        self.go_on()?;
        let mut random = Random::new(seed);
        let mut draw = || half_writes(&mut random, &keys);
        // The system measured before has evicted this one's data from the caches.
        let round = self.round;
        let warm = (2 * self.blocks).clamp(round.alone() / 4, 2 * round.together());
        self.one.run(warm, WINDOW.into(), &mut draw, |_, _| ())?;
        let mut times = Times::new()?;
        let mut bare = Vec::with_capacity(round.trips());
        for _ in 0..SLICES {
            self.bare(round.trips() / SLICES, &mut bare)?;
            self.one
                .run(round.alone() / SLICES as u64, 1, &mut draw, |took, trips| times.add(took, trips))?;
        }
        let started = Instant::now();
        self.one.run(round.together(), WINDOW.into(), &mut draw, |_, _| ())?;
        let rate = round.together() as f64 / started.elapsed().as_secs_f64();
        self.stop()?;
        Ok(Round { bare: median(&bare), ..times.round(rate) })
    }

    /// Measures READs of all replicas at random blocks, so that they do not all hit a cache.
    fn bare(&mut self, count: usize, all: &mut Vec<f64>) -> Result<()> {
        // Afterwards, the only completions are those of these READs.
        self.one.settle()?;
        let len = read_len(self.design, self.block_len);
        let mut random = Random::new((self.round.trips() + all.len()) as u64);
        let places = (0..count).map(|_| random.below(self.blocks) * self.block_len as u64);
        self.one.bare_quorums(len, places, all)
    }

    /// Measures `clients` of the many clients, each with one operation at a time.
    ///
    /// # Errors
    /// Fails if a replica has died.
    pub(crate) fn generator(
        &mut self,
        clients: usize,
        keys: impl Fn(&mut Random) -> u64,
        seed: u64,
    ) -> Result<Round> {
        ensure!(clients <= self.generator.len(), "there are {} clients", self.generator.len());
        self.go_on()?;
        let mut random = Random::new(seed);
        let mut draw = || half_writes(&mut random, &keys);
        self.generator.only(clients);
        let count = self.round.crowded(clients);
        self.generator.run(count / 5, 1, &mut draw, |_, _| ())?;
        let mut times = Times::new()?;
        let started = Instant::now();
        self.generator.run(count, 1, &mut draw, |took, trips| times.add(took, trips))?;
        let rate = count as f64 / started.elapsed().as_secs_f64();
        self.stop()?;
        Ok(times.round(rate))
    }
}

/// Latencies of the operations of a round.
struct Times {
    each: Histogram<u64>,
    round_trips: u64,
}

impl Times {
    fn new() -> Result<Times> {
        Ok(Times { each: histogram()?, round_trips: 0 })
    }

    fn add(&mut self, nanoseconds: u64, round_trips: u32) {
        self.each.saturating_record(nanoseconds.max(1));
        self.round_trips += u64::from(round_trips);
    }

    fn round(&self, rate: f64) -> Round {
        Round {
            p50: self.each.value_at_quantile(0.5) as f64,
            mean: self.each.mean(),
            p99: self.each.value_at_quantile(0.99) as f64,
            rate,
            round_trips: self.round_trips as f64 / self.each.len() as f64,
            bare: f64::NAN,
        }
    }
}
