//! The speed of one core in loopback: NOPs, `if`s, and rounds of a loop.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use remora_chain::{Code, Location, Operand, Program, Test, Work};
use remora_verbs::{CompletionQueue, Device, EMPTY, Fetching, Loader, Offload, ProtectionDomain, QpOptions};

use crate::{Args, Row, SHORTER};
use remora_options::cores::pin;

/// The number of NOPs of a ring, and the number of its rounds.
const RING: u64 = 1 << 10;
const ROUNDS: u64 = 2000 / SHORTER;
/// The number of `if`s in sequence.
const IFS: u64 = 20_000 / SHORTER;
/// The number of rounds of the loop.
const TURNS: u64 = 500_000 / SHORTER;
/// The maximum time of one measurement.
const LONG: Duration = Duration::from_secs(60);
/// Least rates that one core must reach, per second: NOPs, `if`s, and rounds of a recycled loop.
const AIMS: [(&str, f64); 3] = [("nop", 30e6), ("if", 5e6), ("while-recycled", 2e6)];

/// Returns the rows of all rates.
pub(crate) fn run(args: &Args, core: usize) -> Result<Vec<Row>> {
    let case = |name: &str| format!("software/loopback/{name}");
    let wanted: Vec<_> =
        AIMS.into_iter().filter(|(name, _)| args.wants_case(&format!("{}/rate", case(name)))).collect();
    if wanted.is_empty() || args.port.is_some() {
        return Ok(Vec::new());
    }
    pin(core)?;
    let mut bench = Bench::open()?;
    let mut rounds = vec![Vec::new(); wanted.len()];
    for _ in 0..args.rounds {
        for ((name, _), rounds) in wanted.iter().zip(&mut rounds) {
            rounds.push(match *name {
                "nop" => bench.nops()?,
                "if" => bench.ifs()?,
                _ => bench.turns()?,
            });
        }
    }
    let row = |((name, aim), rounds): (&(&str, f64), &Vec<f64>)| {
        Row::new("redn", case(name), "rate", "1/s", rounds)
            .against("what one core shall reach", &[*aim])
            .at_least(1.0)
    };
    Ok(wanted.iter().zip(&rounds).map(row).collect())
}

struct Bench {
    domain: ProtectionDomain,
    cq: CompletionQueue,
}

impl Bench {
    fn open() -> Result<Bench> {
        let context = Device::shm().open()?;
        Ok(Bench { domain: context.alloc_pd()?, cq: context.create_cq(64)? })
    }

    /// Measures a ring of NOPs, the last of them signaled, that is executed repeatedly.
    fn nops(&mut self) -> Result<f64> {
        let options =
            QpOptions { max_send_wr: RING as u32, fetching: Fetching::Recycled, ..QpOptions::default() };
        let mut ring = self.domain.create_loopback(&self.cq, &self.cq, &options)?;
        for id in 1..=RING {
            let mut nop = remora_verbs::work::nop(id);
            nop.flags.signaled = id == RING;
            ring.post_send(&nop)?;
        }
        let mut done = [EMPTY; 1];
        let started = Instant::now();
        for round in 1..=ROUNDS {
            ring.enable(round * RING)?;
            ensure!(self.cq.wait(&mut done, LONG)? == 1, "a round of NOPs does not end");
        }
        Ok((ROUNDS * RING) as f64 / started.elapsed().as_secs_f64())
    }

    /// Measures the rate of `if x == 5 { answer = 1 }` per second. The condition holds for every second `if`.
    fn ifs(&mut self) -> Result<f64> {
        let mut program = Program::new();
        let mut code = Code::once(&mut program, "main");
        let one = code.var("one", 1);
        let answer = code.var("answer", 0);
        let last = code.var("last", 0);
        let values: [Location; 2] = [code.var("", 5), code.var("", 6)];
        for index in 0..IFS as usize {
            let then = Work::write(one, answer, 8);
            code.when(values[index % 2], Test::Equal, Operand::Number(5), then);
        }
        code.push(Work::write(one, last, 8));
        let main = code.end();
        // The program starts only after the clock has been read.
        let first = std::mem::take(&mut program.queues[main].enabled);
        let offload = Loader::new(&program).load(&self.domain)?;
        let started = Instant::now();
        offload.queue("main").context("it has one")?.enable(first)?;
        self.until(&offload, "last", 1)?;
        let rate = IFS as f64 / started.elapsed().as_secs_f64();
        ensure!(offload.word("answer") == Some(1), "half of the conditions must hold");
        Ok(rate)
    }

    /// Measures the shipped loop, with a higher count.
    fn turns(&mut self) -> Result<f64> {
        let text = include_str!("../../../../../program/chain/programs/while.chain")
            .replace("1000", &TURNS.to_string());
        let mut program = remora_chain::assemble(&text)?;
        let queue = program.queue("loop").context("it has one")?;
        let first = std::mem::take(&mut program.queues[queue].enabled);
        let offload = Loader::new(&program).load(&self.domain)?;
        let begun = offload.word("i").context("it has one")?;
        let started = Instant::now();
        offload.queue("loop").context("it has one")?.enable(first)?;
        self.until(&offload, "i", begun + (TURNS << 16))?;
        Ok(TURNS as f64 / started.elapsed().as_secs_f64())
    }

    /// Drives the NIC until a word has the given value.
    fn until(&mut self, offload: &Offload, name: &str, value: u64) -> Result<()> {
        let started = Instant::now();
        let place = offload.program().find(name).context("a word")?.0;
        let value = value.to_le_bytes();
        while offload.read(place, 8).as_deref() != Some(&value) {
            self.cq.poll(&mut [EMPTY; 1])?;
            ensure!(started.elapsed() < LONG, "a chain does not end");
        }
        Ok(())
    }
}
