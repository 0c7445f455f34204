//! The clients of one variant: connections, each with one lookup at a time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use remora_chain::offload::{BUCKET, ask, ask_list, places, wanted};
use remora_verbs::{
    CompletionKind, CompletionQueue, Context, EMPTY, RemoteMemory, Status, WorkCompletion, work,
};

use super::tables::{BUCKETS, CALLS, LIST_AT, READS};
use super::{BREAKS, Lookup};
use crate::redn::real::server::Server;
use remora_store_cli::chains::way::Way;

/// The number of connections, and so of lookups in flight.
const LANES: usize = 64;
/// `FaRM`'s neighbourhood: the number of buckets that one READ returns.
const NEIGHBOURHOOD: u64 = 6;
/// A time that exceeds the delay of an unsolicited acknowledgement.
const SETTLING: Duration = Duration::from_millis(3);
/// The maximum time of a lookup.
const LONG: Duration = Duration::from_secs(30);

/// A connection and the key of its lookup.
struct Lane {
    way: Way,
    key: u64,
    /// True if the READ in flight reads the value, and false if it still looks for the value.
    is_found: bool,
}

/// All connections of a variant.
pub(crate) struct Client {
    cq: CompletionQueue,
    lanes: Vec<Lane>,
    idle: Vec<usize>,
    there: RemoteMemory,
    lookup: Lookup,
    way: &'static str,
    next: u64,
}

impl Client {
    /// Creates a connection for each lookup in flight.
    pub(crate) fn connect(
        context: &Context,
        server: &Server,
        lookup: Lookup,
        way: &'static str,
    ) -> Result<Client> {
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(4 * LANES as u32)?;
        let lane =
            |_| Ok(Lane { way: Way::connect(&domain, &cq, server.address, way)?, key: 0, is_found: false });
        let lanes: Vec<Lane> = (0..LANES).map(lane).collect::<Result<_>>()?;
        let private_data = lanes[0].way.pair.peer_private_data();
        let there = RemoteMemory::from_bytes(private_data).context("the server's memory")?;
        Ok(Client { cq, idle: (0..LANES).collect(), lanes, there, lookup, way, next: 0 })
    }

    /// Measures the latency of single lookups in nanoseconds.
    pub(crate) fn alone(&mut self, lookups: u64) -> Result<f64> {
        let mut times = crate::histogram()?;
        for number in 0..lookups + lookups / 10 {
            let started = Instant::now();
            self.start()?;
            while self.take()? == 0 {}
            // The first tenth of the lookups warms up the caches.
            if number >= lookups / 10 {
                times.record((started.elapsed().as_nanos() as u64).max(1))?;
            }
        }
        Ok(times.value_at_quantile(0.5) as f64)
    }

    /// Measures the lookups per second with all connections in use.
    pub(crate) fn together(&mut self, lookups: u64) -> Result<f64> {
        let began = Instant::now();
        let mut asked = 0;
        let mut over = 0;
        while over < lookups {
            while asked < lookups && !self.idle.is_empty() {
                self.start()?;
                asked += 1;
            }
            over += self.take()?;
        }
        Ok(lookups as f64 / began.elapsed().as_secs_f64())
    }

    /// Waits until both ends have sent their delayed acknowledgements, after which they may pause.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < SETTLING {
            ensure!(self.cq.poll(&mut [EMPTY; 1])? == 0, "a lookup ended that was not started");
        }
        Ok(())
    }

    /// Starts the next lookup on an idle connection.
    fn start(&mut self) -> Result<()> {
        let number = self.idle.pop().context("a connection that is idle")?;
        let lane = &mut self.lanes[number];
        (lane.key, lane.is_found, self.next) = (self.lookup.key(self.next), false, self.next + 1);
        lane.way.reply.put(0, &0_u64)?;
        let key = lane.key;
        let hash = matches!(self.lookup, Lookup::Hash(_));
        let place = if hash { places(key, BUCKETS)[0] * BUCKET } else { LIST_AT };
        let first = self.there.addr + place;
        match self.way {
            READS => self.look(number, first),
            CALLS => lane.way.call(number, &[key.to_le_bytes(), u64::from(!hash).to_le_bytes()].concat()),
            BREAKS => lane.way.ask(number, &ask(first, key)),
            _ if hash => lane.way.ask(number, &ask(first, key)),
            _ => lane.way.ask(number, &ask_list(first, key)),
        }
    }

    /// Reads a neighbourhood of buckets, or a node of the list.
    fn look(&mut self, number: usize, address: u64) -> Result<()> {
        let buckets = if matches!(self.lookup, Lookup::Hash(_)) { NEIGHBOURHOOD } else { 1 };
        let way = &mut self.lanes[number].way;
        let here = [way.probe.sge(0, (buckets * BUCKET) as usize)];
        let there = self.there.at(address - self.there.addr);
        Ok(way.pair.post_send(&work::read(number as u64, &here, there))?)
    }

    /// Waits for completions and returns the number of lookups that ended.
    fn take(&mut self) -> Result<u64> {
        let mut done = [EMPTY; 16];
        let mut over = 0;
        let came = self.cq.wait(&mut done, LONG)?;
        for completion in &done[..came] {
            over += u64::from(self.ended(completion)?);
        }
        Ok(over)
    }

    /// Returns whether this completion ends the lookup.
    fn ended(&mut self, done: &WorkCompletion) -> Result<bool> {
        ensure!(done.status == Status::Success, "a lookup ended: {}", done.status.explain());
        let number = done.id as usize;
        if done.kind == CompletionKind::Read && !self.has_read(number)? {
            return Ok(false);
        }
        let lane = &self.lanes[number];
        ensure!(lane.way.reply.get::<u64>(0)? == lane.key, "the answer has the value of another key");
        self.idle.push(number);
        Ok(true)
    }

    /// Handles a completed READ. Returns true if it read the value; otherwise posts the READ of the value or
    /// of the next node.
    fn has_read(&mut self, number: usize) -> Result<bool> {
        let Lane { way, key, is_found } = &mut self.lanes[number];
        if *is_found {
            return Ok(true);
        }
        let [header, value, len, next]: [u64; 4] = way.probe.get(0)?;
        if header != wanted(*key) {
            let walks = matches!(self.lookup, Lookup::List(_)) && header != wanted(0);
            ensure!(walks, "the key is not there");
            return self.look(number, next).map(|()| false);
        }
        let here = [way.reply.sge(0, len as usize)];
        let there = self.there.at(value - self.there.addr);
        *is_found = true;
        way.pair.post_send(&work::read(number as u64, &here, there))?;
        Ok(false)
    }
}
