//! `remora bench block`: PRISM-RS and ABDLOCK with three replicas each, in alternating rounds, and etcd.

use anyhow::Result;
use clap::Parser;
use remora_store::Random;
use remora_store::block::{Design, MIN_BLOCK};
use remora_store::ycsb::Skewed;

use super::etcd;
use super::rows::{beside, crowded, point};
use super::system::{REPLICAS, Round, RoundSize, Rounds, StoreSize, SystemUnderTest};
use crate::kv::curves::windows;
use crate::prism::loads::{CROWD, SKEWS};
use crate::testbed::Testbed;
use crate::{PortName, Report};
use remora_options::cores;
use remora_options::number::{natural, whole};

/// Arguments of `remora bench block`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench block\n  remora bench block --port udp --blocks 1000000 --json\n  remora bench block --curves --port shm --json > blocks.jsonl\n\nThe clients share one core, and the replicas of a design another: three NICs with separate memory, which one thread polls in turn. The\ndesigns take turns. A single client has one operation in flight for latency and 16 for throughput. Each of the --clients clients has its\nown connections and one operation in flight.\n\nThe replicas keep the blocks in memory only. etcd writes each change to a log and waits for the disk (fsync) on two of three members. It\nis also measured with its files in memory, which is as durable as the replicas. The requests go through etcd's JSON gateway, one at a\ntime on each of as many connections as there are clients."
)]
pub struct Args {
    /// Measure over this port only.
    #[arg(long)]
    port: Option<PortName>,
    /// The number of blocks in the store.
    #[arg(long, default_value_t = 16_384, value_parser = whole::<u64>(1..=1_000_000))]
    blocks: u64,
    /// The size of a block in bytes.
    #[arg(long, default_value_t = MIN_BLOCK, value_parser = remora_store_cli::designs::block_len)]
    block_len: u32,
    /// Clients that work at the same time in the measurement of the highest rate.
    #[arg(long, default_value_t = CROWD, value_parser = whole::<u32>(1..=200))]
    clients: u32,
    /// Operations of a client with a full window in one round; the other parts of a round are proportional.
    #[arg(long, default_value_t = 20_000, value_parser = whole::<u64>(1000..=10_000_000))]
    operations: u64,
    /// Number of rounds; the systems take turns in each.
    #[arg(long, default_value_t = 5, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// Measure Figures 6 and 7 of the paper instead: 1, 2, 4, ... clients with uniform keys, then all
    /// clients.
    #[arg(long)]
    curves: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not measure etcd.
    #[arg(long)]
    no_rivals: bool,
    /// CPU cores of clients and replicas [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    cores: Vec<usize>,
}

/// The blocks that the operations access.
pub struct Keys {
    blocks: u64,
    /// Distribution of the skewed keys; `None` draws all keys with equal probability.
    skewed: Option<Skewed>,
    /// The name of the distribution in the paths of rows.
    pub name: String,
}

impl Keys {
    /// Creates a distribution with this Zipf exponent; 0 means uniform.
    fn of(blocks: u64, skew: f64) -> Keys {
        let skewed = (skew > 0.0).then(|| Skewed::new(blocks, skew));
        let name = if skew > 0.0 { format!("zipf-{skew}") } else { "uniform".to_owned() };
        Keys { blocks, skewed, name }
    }

    /// Draws the next key.
    pub fn next(&self, random: &mut Random) -> u64 {
        match &self.skewed {
            None => random.below(self.blocks),
            Some(skewed) => skewed.next(random),
        }
    }
}

/// The maximum number of clients of the curves.
const MOST: u32 = 64;
/// The exponent of YCSB's Zipf distribution.
const SKEW: f64 = 0.99;

/// The benchmark of `remora bench block`.
impl Args {
    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// A process does not start or ends early, an answer is wrong, or a file cannot be written.
    pub(crate) fn measure(&self, report: &mut Report) -> Result<()> {
        let cores = cores::two_cores(&self.cores)?;
        cores::pin(cores[0])?;
        if !self.no_rivals && !self.curves {
            let clients = [1, self.clients];
            if let Err(error) = etcd::run(cores[1], self.block_len, self.blocks, clients, self.rounds, report)
            {
                tracing::warn!("left out: {error:#}");
            }
        }
        for port in Testbed::ports(self.port) {
            over(self, port, cores, report)?;
        }
        Ok(())
    }
}

/// Measures both designs over a port.
fn over(args: &Args, port: PortName, cores: [usize; 2], report: &mut Report) -> Result<()> {
    let stores = Design::ALL.len();
    let opened = Testbed::open_replicated(port, cores, stores, REPLICAS, args.port.is_some())?;
    let Some(testbed) = opened else { return Ok(()) };
    let blocks = args.blocks;
    let block_len = args.block_len as usize;
    let clients = args.clients as usize;
    let size = StoreSize { blocks, block_len, clients };
    // The replicas must end before the network namespaces that contain them.
    let mut systems = Vec::new();
    for (store, design) in Design::ALL.into_iter().enumerate() {
        systems.push(SystemUnderTest::open(&testbed, size, RoundSize(args.operations), store, design)?);
    }
    let mut measuring = Measuring { args, port, systems: &mut systems, report };
    if args.curves {
        measuring.curves()?;
    } else {
        measuring.alone()?;
    }
    measuring.generator()
}

/// The designs over one port, with the state of their measurement.
struct Measuring<'a> {
    args: &'a Args,
    port: PortName,
    systems: &'a mut [SystemUnderTest],
    report: &'a mut Report,
}

impl Measuring<'_> {
    fn case(&self, design: Design, keys: &Keys) -> String {
        format!("{}/{}/{}/{}", self.port.name(), design.name(), self.args.block_len, keys.name)
    }

    /// Runs the rounds; in each, the designs take turns.
    fn turns(
        &mut self,
        mut turn: impl FnMut(&mut SystemUnderTest, u64) -> Result<Round>,
    ) -> Result<Vec<Rounds>> {
        let mut rounds: Vec<Rounds> = self.systems.iter().map(|system| (system.design, Vec::new())).collect();
        for number in 0..self.args.rounds {
            for (system, (_, rounds)) in self.systems.iter_mut().zip(&mut rounds) {
                rounds.push(turn(system, number.into())?);
            }
        }
        Ok(rounds)
    }

    /// Measures a single client, with uniform and with skewed keys.
    fn alone(&mut self) -> Result<()> {
        for skew in [0.0, SKEW] {
            let keys = Keys::of(self.args.blocks, skew);
            let rounds = self.turns(|system, seed| system.one(|random| keys.next(random), seed))?;
            let rows = beside(&rounds, |design| self.case(design, &keys));
            rows.into_iter().for_each(|row| self.report.add(row));
        }
        Ok(())
    }

    /// Measures with an increasing number of clients.
    fn curves(&mut self) -> Result<()> {
        let keys = Keys::of(self.args.blocks, 0.0);
        for clients in windows(MOST.min(self.args.clients)) {
            let rounds = self
                .turns(|system, seed| system.generator(clients as usize, |random| keys.next(random), seed))?;
            let rows = point(&rounds, |design| format!("{}/window-{clients}", self.case(design, &keys)));
            rows.into_iter().for_each(|row| self.report.add(row));
        }
        Ok(())
    }

    /// Measures all clients with increasingly skewed keys.
    fn generator(&mut self) -> Result<()> {
        let clients = self.args.clients;
        let mut uniform = Vec::new();
        for skew in SKEWS {
            let keys = Keys::of(self.args.blocks, skew);
            let rounds = self
                .turns(|system, seed| system.generator(clients as usize, |random| keys.next(random), seed))?;
            let rows = crowded(&rounds, &uniform, |design| {
                format!("{}/clients-{clients}", self.case(design, &keys))
            });
            rows.into_iter().for_each(|row| self.report.add(row));
            if uniform.is_empty() {
                uniform = rounds;
            }
        }
        Ok(())
    }
}
