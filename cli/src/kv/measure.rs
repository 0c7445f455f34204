//! A key-value server in a process of its own, and what a client measures of it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use store::kv::{ClientConfig, Outcome};
use store::ycsb::Mix;
use store::ycsb::record::{self, Values};

use super::client::Session;
use super::parts::{Part, Parts};
use super::{Design, DesignName};
use crate::device::{PortArgs, PortName};

/// What is served and asked.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Records in the table.
    pub records: u64,
    /// Bytes of a value.
    pub value_len: u32,
    /// Operations in flight for rates.
    pub window: u32,
    /// Cores of client and server.
    pub cores: [usize; 2],
    /// Seed of the workload.
    pub seed: u64,
}

/// A running `remora serve kv`.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: String,
}

impl Server {
    /// Starts one with its records loaded; it shows its own progress.
    pub fn start(design: DesignName, port: PortName, plan: &Plan) -> Result<Server> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "kv", "--child", "--spin", "--listen", "127.0.0.1:0"])
            .args(["--design", design.name(), "--port", port.name()])
            .args(["--records", &plan.records.to_string(), "--value-len", &plan.value_len.to_string()])
            .args(["--core", &plan.cores[1].to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the server process")?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("the server's output")?).read_line(&mut address)?;
        if address.is_empty() {
            let status = child.wait()?;
            bail!("the {} server over {} did not start ({status})", design.name(), port.name());
        }
        Ok(Server { child, address: address.trim().to_owned() })
    }

    /// CPU time that all its threads have used, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).context("schedstat")?;
        }
        Ok(total)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What operations took.
#[derive(Copy, Clone, Debug, Default)]
pub struct Figures {
    /// Mean round trips of an operation.
    pub round_trips: f64,
    /// Median latency of one operation alone, nanoseconds.
    pub p50: f64,
    /// Its 99th percentile.
    pub p99: f64,
}

/// A client that runs a workload and checks every value.
pub struct Runner<D: Design> {
    session: Session<D>,
    parts: Parts,
    window: usize,
    values: Values,
    value: Vec<u8>,
    version: u64,
    wrong: u64,
    /// What the operation in each slot is, for checking.
    asked: Vec<Part>,
}

impl<D: Design> Runner<D> {
    /// Connects.
    pub fn connect(server: &Server, port: PortName, plan: &Plan, mix: Mix) -> Result<Runner<D>> {
        let port = PortArgs::plain(port);
        let config = ClientConfig {
            window: plan.window,
            max_key: 64,
            max_value: plan.value_len,
            ..ClientConfig::default()
        };
        Ok(Runner {
            session: Session::connect(&port, &server.address, config)?,
            parts: Parts::new(mix, plan.records, plan.seed),
            window: plan.window as usize,
            values: Values::fixed(plan.value_len),
            value: vec![0; plan.value_len as usize],
            version: 0,
            wrong: 0,
            asked: vec![Part::NONE; plan.window as usize],
        })
    }

    /// `count` operations one after the other; only the GETs of a scan are asked together.
    pub fn alone(&mut self, count: u64) -> Result<Figures> {
        let (mut histogram, mut trips) = (crate::bench::histogram()?, 0u64);
        for _ in 0..count {
            let started = Instant::now();
            self.fill(1, false)?;
            while self.session.in_flight() > 0 || self.parts.has_waiting() {
                if self.parts.has_waiting() {
                    self.fill(self.window, true)?;
                }
                trips += self.drain()?.1;
            }
            histogram.saturating_record(started.elapsed().as_nanos() as u64);
        }
        self.judge()?;
        Ok(Figures {
            round_trips: trips as f64 / count as f64,
            p50: histogram.value_at_quantile(0.5) as f64,
            p99: histogram.value_at_quantile(0.99) as f64,
        })
    }

    /// Operations per second with `window` of them in flight.
    pub fn together(&mut self, count: u64, window: usize) -> Result<f64> {
        let (started, mut done) = (Instant::now(), 0);
        while done < count {
            // Refilled in batches: a doorbell for each single operation would be the figure.
            if self.session.in_flight() * 2 <= window {
                self.fill(window, false)?;
            }
            done += self.drain()?.0;
        }
        let rate = done as f64 / started.elapsed().as_secs_f64();
        while self.session.in_flight() > 0 || self.parts.has_waiting() {
            self.fill(window, true)?;
            self.drain()?;
        }
        self.judge()?;
        Ok(rate)
    }

    /// Starts parts of operations until `window` are in flight; only of those that have begun if `begun`.
    fn fill(&mut self, window: usize, begun: bool) -> Result<()> {
        let Runner { session, parts, values, value, version, asked, .. } = self;
        session.start(|client, nic| {
            if client.in_flight() >= window || (begun && !parts.has_waiting()) {
                return Ok(false);
            }
            let part = parts.next_part();
            let key = record::key(part.record);
            let slot = if part.reads() {
                client.get(&key, nic)?
            } else {
                *version += 1;
                let len = values.fill(part.record, *version, value);
                client.put(&key, &value[..len], nic)?
            };
            asked[slot.index()] = part;
            Ok(true)
        })
    }

    /// Operations that ended, and the round trips of their parts.
    fn drain(&mut self) -> Result<(u64, u64)> {
        let (mut ended, mut trips) = (0, 0);
        let Runner { session, parts, values, asked, wrong, .. } = self;
        session.poll(|finished| {
            let part = asked[finished.slot.index()];
            ended += u64::from(part.last);
            trips += u64::from(finished.round_trips);
            let right = match finished.outcome {
                Outcome::Value(value) => values.check(part.record, value).is_some(),
                Outcome::Done => !part.reads(),
                _ => false,
            };
            *wrong += u64::from(!right);
            parts.ended(part);
        })?;
        Ok((ended, trips))
    }

    fn judge(&self) -> Result<()> {
        if self.wrong > 0 {
            bail!("{} operations gave a wrong answer", self.wrong);
        }
        Ok(())
    }
}
