//! The client. It has a connection for each request in flight, because a chain serves one request at a time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use remora_chain::offload::{BUCKET, ask_two, places};
use remora_store::ycsb::Mix;
use remora_store::ycsb::record::Values;
use remora_verbs::{CompletionKind, CompletionQueue, EMPTY, Status, WorkCompletion};

use super::table::{Table, key};
use crate::chains::way::Way;
use crate::measure::parts::{Part, Parts};
use crate::measure::runner::{Figures, Plan};
use crate::measure::typical;
use remora_options::device::PortArgs;

/// The program that serves each connection.
const PROGRAM: &str = "get-two-parallel";

/// Time after which a GET counts as hung.
const LONG: Duration = Duration::from_secs(30);

/// A connection and its lookup in progress.
struct Lane {
    way: Way,
    asked: Part,
}

impl Lane {
    fn ask(&mut self, id: usize, part: Part, buckets: u64, first: u64) -> Result<()> {
        self.asked = part;
        let key = key(part.record);
        self.way.ask(id, &ask_two(places(key, buckets).map(|place| first + place * BUCKET), key))
    }

    fn check(&self, len: u32, value: &mut [u8]) -> Result<()> {
        ensure!(len as usize == value.len(), "record {} was not found", self.asked.record);
        self.way.reply.read(0, value)?;
        let right = Values::fixed(value.len() as u32).check(self.asked.record, value).is_some();
        ensure!(right, "the answer is not the value of record {}", self.asked.record);
        Ok(())
    }
}

/// All connections of the client.
pub(crate) struct Client {
    cq: CompletionQueue,
    lanes: Vec<Lane>,
    idle: Vec<usize>,
    table: Table,
    /// The address of the server's table.
    first: u64,
    parts: Parts,
    value: Vec<u8>,
    /// The number of messages sent. The client waits for the completion of each.
    sent: u64,
}

impl Client {
    /// Creates a connection for each request in flight.
    pub(crate) fn connect(address: &str, port: &PortArgs, plan: &Plan) -> Result<Client> {
        let context = port.open()?;
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(4 * plan.window)?;
        let address = address.parse().context("the server's address")?;
        let lane = |_| Ok(Lane { way: Way::connect(&domain, &cq, address, PROGRAM)?, asked: Part::NONE });
        let lanes: Vec<Lane> = (0..plan.window).map(lane).collect::<Result<_>>()?;
        let private_data = lanes[0].way.pair.peer_private_data();
        let first = private_data.try_into().context("the address of the server's table")?;
        Ok(Client {
            cq,
            idle: (0..lanes.len()).collect(),
            lanes,
            first: u64::from_le_bytes(first),
            table: Table::new(plan.records, plan.value_len),
            parts: Parts::new(Mix::C, plan.records, plan.seed),
            value: vec![0; plan.value_len as usize],
            sent: 0,
        })
    }

    /// Measures GETs one after the other, like those of the other systems.
    pub(crate) fn alone(&mut self, gets: u64) -> Result<Figures> {
        let before = self.sent;
        self.parts.draw(gets);
        let p50 = typical(gets, || self.one())?;
        // Fewer requests than asked for may have been drawn.
        while !self.parts.is_done() {
            self.one()?;
        }
        self.parts.draw(gets / 2);
        let mut times = crate::measure::histogram()?;
        for _ in 0..gets / 2 {
            let started = Instant::now();
            self.one()?;
            times.saturating_record(started.elapsed().as_nanos() as u64);
        }
        let round_trips = (self.sent - before) as f64 / (gets + gets / 2) as f64;
        Ok(Figures { round_trips, p50, p99: times.value_at_quantile(0.99) as f64 })
    }

    /// Measures the GETs per second with all connections in use.
    pub(crate) fn together(&mut self, gets: u64) -> Result<f64> {
        self.parts.draw(gets);
        let started = Instant::now();
        let mut ended = 0;
        while ended < gets {
            while !self.idle.is_empty() && self.ask()? {}
            ended += self.take()?;
        }
        Ok(gets as f64 / started.elapsed().as_secs_f64())
    }

    fn one(&mut self) -> Result<()> {
        self.ask()?;
        self.take().map(|_| ())
    }

    /// Sends the next request. Returns false if there is none.
    fn ask(&mut self) -> Result<bool> {
        let Some(part) = self.parts.next_part() else { return Ok(false) };
        let id = self.idle.pop().context("a connection that is idle")?;
        self.lanes[id].ask(id, part, self.table.buckets, self.first)?;
        self.sent += 1;
        Ok(true)
    }

    /// Polls for answers and returns the number that arrived.
    fn take(&mut self) -> Result<u64> {
        let mut done = [EMPTY; 16];
        let came = self.cq.wait(&mut done, LONG)?;
        done[..came].iter().try_for_each(|done| self.ended(done))?;
        Ok(came as u64)
    }

    fn ended(&mut self, done: &WorkCompletion) -> Result<()> {
        ensure!(done.status == Status::Success, "a GET ended: {}", done.status.explain());
        ensure!(done.kind == CompletionKind::ReceiveWriteImm, "a completion is not that of an answer");
        let id = done.id as usize;
        self.lanes[id].check(done.byte_len, &mut self.value)?;
        self.parts.ended(self.lanes[id].asked);
        self.idle.push(id);
        Ok(())
    }
}
