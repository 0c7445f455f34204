//! A design of the benchmark: its three replicas, one client for figures alone, and a crowd.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use store::block::{Design, Operation};
use store::ycsb::Random;

use super::WINDOW;
use super::crowd::{Crowd, Size, half_writes, read_len};
use crate::bench::veth::Veth;
use crate::bench::{PortName, histogram, median, turns};
use crate::device::PortArgs;

/// Replicas of a store.
pub const REPLICAS: usize = 3;
/// Operations of a round: alone, with the window full, and of a crowd; bare READs.
const ALONE: u64 = 2000;
const TOGETHER: u64 = 20_000;
const CROWDED: u64 = 2000;
/// And for each client of it.
const EACH: u64 = 150;
const TRIPS: usize = 1000;

/// The replicas' process.
struct Replicas(Child);

impl Drop for Replicas {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the stores are.
pub struct Ground {
    /// Over which port.
    pub port: PortName,
    /// Cores of clients and replicas.
    pub cores: [usize; 2],
    /// Blocks, and the bytes of each.
    pub blocks: u64,
    /// See there.
    pub block_len: usize,
    /// Clients of a crowd.
    pub clients: usize,
    /// Namespaces of the replicas; none on the loopback.
    pub spaces: Vec<String>,
}

/// What operations took, nanoseconds each.
#[derive(Copy, Clone, Debug, Default)]
pub struct Round {
    /// Median.
    pub p50: f64,
    /// Mean.
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Operations in a second.
    pub rate: f64,
    /// Round trips of one in the mean.
    pub round_trips: f64,
}

/// A design's replicas and clients.
pub struct Seat {
    /// Which.
    pub design: Design,
    replicas: Replicas,
    one: Crowd,
    crowd: Crowd,
    block_len: usize,
    blocks: u64,
}

impl Ground {
    /// The port of a client of a store.
    fn client(&self, store: usize) -> PortArgs {
        let plain = PortArgs::plain(self.port);
        match self.spaces.is_empty() {
            true => plain,
            false => PortArgs { interface: Some(Veth::store_name(store)), ..plain },
        }
    }

    /// Starts the replicas of a store; where they listen.
    fn start(&self, store: usize, design: Design) -> Result<(Replicas, Vec<SocketAddr>)> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["__replicas", "--design", design.name(), "--port", self.port.name()])
            .args(["--replicas", &REPLICAS.to_string(), "--clients", &(self.clients + 8).to_string()])
            .args(["--blocks", &self.blocks.to_string(), "--block-len", &self.block_len.to_string()])
            .args(["--core", &self.cores[1].to_string()]);
        if !self.spaces.is_empty() {
            command.args(["--interface", &Veth::store_name(store)]);
        }
        for space in &self.spaces {
            command.args(["--within", space]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting the replicas")?;
        let mut lines = BufReader::new(child.stdout.take().context("their output")?).lines();
        let replicas = Replicas(child);
        let mut addresses = Vec::new();
        for host in 1..=REPLICAS {
            let port: u16 = lines.next().context("the replicas did not start")??.trim().parse()?;
            let address = match self.spaces.is_empty() {
                true => crate::device::LOOPBACK,
                false => Veth::store_address(store, host),
            };
            addresses.push((address, port).into());
        }
        Ok((replicas, addresses))
    }

    /// Starts a design, writes all its blocks, and stops the replicas until their turn comes.
    ///
    /// # Errors
    /// They do not start.
    pub fn seat(&self, store: usize, design: Design) -> Result<Seat> {
        let (replicas, addresses) = self.start(store, design)?;
        let port = self.client(store);
        let size = |clients, window| Size { clients, window };
        // An interface has one NIC: both have the same.
        let one = Crowd::open(&port, &addresses, size(1, WINDOW))?;
        let crowd = one.beside(&addresses, size(self.clients, 1))?;
        let (block_len, blocks) = (self.block_len, self.blocks);
        let mut seat = Seat { design, replicas, one, crowd, block_len, blocks };
        let mut next = 0..self.blocks;
        let write = || (Operation::Write, next.next().unwrap_or(0));
        seat.one.run((self.blocks, WINDOW.into()), write, |_, _| ())?;
        seat.stop()?;
        Ok(seat)
    }
}

impl Seat {
    fn go_on(&self) -> Result<()> {
        turns::go_on(&self.replicas.0)
    }

    fn stop(&mut self) -> Result<()> {
        self.one.settle()?;
        self.crowd.settle()?;
        turns::stop(&self.replicas.0)
    }

    /// What a READ of all replicas takes until a majority has answered, of the bytes that the design reads.
    ///
    /// # Errors
    /// A replica is gone.
    pub fn bare(&mut self) -> Result<f64> {
        let len = read_len(self.design, self.block_len);
        self.go_on()?;
        // As spread as the blocks are: not all of them are in a cache.
        let mut random = Random::new(TRIPS as u64);
        let mut place = || random.below(self.blocks) * self.block_len as u64;
        let all: Result<Vec<f64>> = (0..TRIPS).map(|_| self.one.bare_quorum(len, place())).collect();
        self.stop()?;
        Ok(median(&all?))
    }

    /// One client, one operation after the other, then its window full.
    ///
    /// # Errors
    /// A replica is gone.
    pub fn one(&mut self, keys: impl Fn(&mut Random) -> u64, seed: u64) -> Result<Round> {
        self.go_on()?;
        let mut random = Random::new(seed);
        let mut draw = || half_writes(&mut random, &keys);
        // Who was measured before has left nothing of this one in the caches.
        let warm = (2 * self.blocks).clamp(ALONE / 4, 2 * TOGETHER);
        self.one.run((warm, WINDOW.into()), &mut draw, |_, _| ())?;
        let (alone, _) = timed(&mut self.one, (ALONE, 1), &mut draw)?;
        let (_, rate) = timed(&mut self.one, (TOGETHER, WINDOW.into()), &mut draw)?;
        self.stop()?;
        Ok(Round { rate, ..alone })
    }

    /// So many clients of the crowd, each with one operation at a time.
    ///
    /// # Errors
    /// A replica is gone.
    pub fn crowd(&mut self, clients: usize, keys: impl Fn(&mut Random) -> u64, seed: u64) -> Result<Round> {
        ensure!(clients <= self.crowd.len(), "there are {} clients", self.crowd.len());
        self.go_on()?;
        let mut random = Random::new(seed);
        let mut draw = || half_writes(&mut random, &keys);
        self.crowd.only(clients);
        let count = CROWDED + EACH * clients as u64;
        self.crowd.run((count / 5, 1), &mut draw, |_, _| ())?;
        let (round, rate) = timed(&mut self.crowd, (count, 1), &mut draw)?;
        self.stop()?;
        Ok(Round { rate, ..round })
    }
}

/// Runs them, by the clock.
fn timed(
    crowd: &mut Crowd,
    counts: (u64, usize),
    draw: impl FnMut() -> (Operation, u64),
) -> Result<(Round, f64)> {
    let (mut latencies, mut trips) = (histogram()?, 0);
    let started = Instant::now();
    crowd.run(counts, draw, |nanoseconds, round_trips| {
        latencies.saturating_record(nanoseconds.max(1));
        trips += u64::from(round_trips);
    })?;
    let rate = counts.0 as f64 / started.elapsed().as_secs_f64();
    let round = Round {
        p50: latencies.value_at_quantile(0.5) as f64,
        mean: latencies.mean(),
        p99: latencies.value_at_quantile(0.99) as f64,
        rate,
        round_trips: trips as f64 / counts.0 as f64,
    };
    Ok((round, rate))
}
