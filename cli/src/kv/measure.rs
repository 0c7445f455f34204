//! A key-value server in a process of its own, and what a client measures of it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use store::kv::{ClientConfig, Outcome};
use store::ycsb::record::{self, Values};
use store::ycsb::{Mix, Operation, Record, Stripe, Workload};

use super::client::Session;
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
    /// Core of the server.
    pub server_core: usize,
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
            .args(["--core", &plan.server_core.to_string()])
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
    workload: Workload,
    values: Values,
    value: Vec<u8>,
    version: u64,
    wrong: u64,
    /// Record of the operation in each slot, for checking.
    asked: Vec<Record>,
}

impl<D: Design> Runner<D> {
    /// Connects.
    pub fn connect(server: &Server, port: PortName, plan: &Plan, mix: Mix) -> Result<Runner<D>> {
        let port = PortArgs { port, address: None };
        let config = ClientConfig {
            window: plan.window,
            max_key: 64,
            max_value: plan.value_len,
            ..ClientConfig::default()
        };
        Ok(Runner {
            session: Session::connect(&port, &server.address, config)?,
            workload: Workload::new(mix, plan.records, Stripe::ALONE, plan.seed),
            values: Values::fixed(plan.value_len),
            value: vec![0; plan.value_len as usize],
            version: 0,
            wrong: 0,
            asked: vec![0; plan.window as usize],
        })
    }

    /// `count` operations one after the other.
    pub fn alone(&mut self, count: u64) -> Result<Figures> {
        let (mut histogram, mut trips) = (crate::bench::histogram()?, 0u64);
        for _ in 0..count {
            let started = Instant::now();
            self.fill(1)?;
            while self.session.in_flight() > 0 {
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
                self.fill(window)?;
            }
            done += self.drain()?.0;
        }
        let rate = done as f64 / started.elapsed().as_secs_f64();
        while self.session.in_flight() > 0 {
            self.drain()?;
        }
        self.judge()?;
        Ok(rate)
    }

    fn fill(&mut self, window: usize) -> Result<()> {
        let (workload, values, value, version) =
            (&mut self.workload, &self.values, &mut self.value, &mut self.version);
        let asked = &mut self.asked;
        self.session.start(|client, nic| {
            if client.in_flight() >= window {
                return Ok(false);
            }
            let operation = workload.next_operation();
            match operation {
                Operation::Read(record) | Operation::Scan { first: record, .. } => {
                    let slot = client.get(&record::key(record), nic)?;
                    asked[slot.index()] = record;
                }
                Operation::Update(record)
                | Operation::Insert(record)
                | Operation::ReadModifyWrite(record) => {
                    *version += 1;
                    let len = values.fill(record, *version, value);
                    client.put(&record::key(record), &value[..len], nic)?;
                }
            }
            Ok(true)
        })
    }

    /// Operations that ended, and their round trips.
    fn drain(&mut self) -> Result<(u64, u64)> {
        let (mut ended, mut trips) = (0, 0);
        let (values, asked, wrong) = (&self.values, &self.asked, &mut self.wrong);
        self.session.poll(|finished| {
            ended += 1;
            trips += u64::from(finished.round_trips);
            let right = match finished.outcome {
                Outcome::Value(value) => values.check(asked[finished.slot.index()], value).is_some(),
                Outcome::Done => true,
                _ => false,
            };
            *wrong += u64::from(!right);
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
