//! The client of a rival, with parts of a workload in flight on its connection. Answers arrive in the order
//! of the requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use remora_store::ycsb::record::{self, Values};

use super::rival::Running;
use crate::typical;
use remora_store_cli::measure::parts::{Part, Parts};
use remora_store_cli::measure::runner::Plan;

/// Number of requests in flight to a rival. With 64 requests, the rival's thread would sleep between requests
/// and spend its time on wake-ups across cores, a cost of the machine rather than of the rival.
pub(crate) const RIVAL_WINDOW: usize = 1024;

/// Time without an answer after which the rival counts as dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// The connection to a rival, with parts in flight.
pub(crate) struct Flight<'a> {
    running: &'a mut Running,
    parts: &'a mut Parts,
    asked: VecDeque<Part>,
    values: Values,
    value: Vec<u8>,
    out: Vec<u8>,
    /// Maximum number of operations in flight when one client is measured alone: the GETs of a scan.
    scanning: usize,
}

impl Flight<'_> {
    /// Creates the load for a rival whose records are loaded.
    pub(crate) fn new<'a>(running: &'a mut Running, plan: &Plan, parts: &'a mut Parts) -> Flight<'a> {
        Flight {
            running,
            parts,
            asked: VecDeque::with_capacity(RIVAL_WINDOW),
            values: Values::fixed(plan.value_len),
            value: vec![0; plan.value_len as usize],
            out: Vec::new(),
            scanning: plan.window as usize,
        }
    }

    /// Adds the next part to the bytes to send. Returns false if there is none.
    fn ask(&mut self) -> bool {
        let Some(part) = self.parts.next_part() else { return false };
        let key = self.parts.key(part);
        if part.reads() {
            self.running.rival.get(key, &mut self.out);
        } else {
            let len = self.values.fill(part.record, 1, &mut self.value);
            self.running.rival.set(key, &self.value[..len], &mut self.out);
        }
        self.asked.push_back(part);
        true
    }

    /// Sends the requested parts. Returns the number of operations that ended meanwhile.
    fn send(&mut self) -> Result<u64> {
        if self.out.is_empty() {
            return Ok(0);
        }
        self.running.rival.close(&mut self.out);
        let answers = self.running.send(&self.out)?;
        self.out.clear();
        self.ended(answers)
    }

    /// Receives answers and returns the number of operations that have ended.
    fn receive(&mut self) -> Result<u64> {
        let answers = self.running.receive()?;
        self.ended(answers)
    }

    fn ended(&mut self, answers: usize) -> Result<u64> {
        let mut whole = 0;
        for _ in 0..answers {
            let Some(part) = self.asked.pop_front() else {
                bail!("the rival sent more answers than requests")
            };
            self.parts.ended(part);
            whole += u64::from(part.last);
        }
        Ok(whole)
    }

    /// Measures the latency of one operation at a time. Both processes run on core `own`; the client yields
    /// the core while it waits.
    pub(crate) fn alone(&mut self, count: u64, own: usize) -> Result<f64> {
        self.running.pin(own)?;
        self.parts.draw(count);
        let p50 = typical(count, || {
            let mut ended = 0;
            while ended == 0 {
                if self.asked.is_empty() && !self.parts.has_begun() {
                    self.ask();
                }
                while self.parts.has_begun() && self.asked.len() < self.scanning {
                    self.ask();
                }
                ended += self.send()? + self.receive()?;
                if ended == 0 {
                    std::thread::yield_now();
                }
            }
            Ok(())
        })?;
        self.drain()?;
        Ok(p50)
    }

    /// Measures the operations per second with a full window, with the rival on the core `other`.
    pub(crate) fn together(&mut self, count: u64, other: usize) -> Result<f64> {
        self.running.pin(other)?;
        self.parts.draw(count);
        let started = Instant::now();
        self.drain()?;
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// Polls until all drawn parts are answered.
    fn drain(&mut self) -> Result<()> {
        let mut heard = Instant::now();
        let mut spins = 0u32;
        while !(self.parts.is_done() && self.asked.is_empty()) {
            // The window is refilled when half of it is free, as Remora's clients do.
            if self.asked.len() * 2 <= RIVAL_WINDOW {
                while self.asked.len() < RIVAL_WINDOW && self.ask() {}
                self.send()?;
            }
            let waiting = self.asked.len();
            self.receive()?;
            spins = if self.asked.len() < waiting { 0 } else { spins.wrapping_add(1) };
            if spins == 0 {
                heard = Instant::now();
            } else if spins.is_multiple_of(1 << 16) && heard.elapsed() > PATIENCE {
                bail!("{} does not answer: does it hold all records?", self.running.rival.name());
            }
        }
        Ok(())
    }
}

/// Stores the plan's records in the rival.
pub(crate) fn load(running: &mut Running, plan: &Plan) -> Result<()> {
    let values = Values::fixed(plan.value_len);
    let mut value = vec![0; plan.value_len as usize];
    let mut out = Vec::new();
    let mut sent = 0;
    let mut answered = 0;
    while answered < plan.records {
        out.clear();
        while sent < plan.records && sent - answered < 1000 {
            let len = values.fill(sent, 0, &mut value);
            running.rival.set(&record::key(sent), &value[..len], &mut out);
            sent += 1;
        }
        answered += running.send(&out)? as u64;
        answered += running.receive()? as u64;
    }
    Ok(())
}
