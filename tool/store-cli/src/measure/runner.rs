//! A key-value server in its own process, and measurements of it by a client.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use remora_store::kv::{ClientConfig, Finished, Outcome, Refused};
use remora_store::ycsb::record::{self, Values};

use super::parts::{Part, Parts};
use super::testbed::Testbed;
use super::testbed::process::Process;
use super::typical;
use remora_options::device::PortArgs;
use remora_service::kv::{Design, Driver, KvDesign, KvSession, Session};
use remora_store::PostPrism;
use remora_store::kv::Machine;

/// Size of a key-value benchmark: its records, values and operations.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Number of records in the table.
    pub records: u64,
    /// Bytes of a value.
    pub value_len: u32,
    /// The operations of a round with a full window, those of a client until it ends, or the GETs of the
    /// demo.
    pub operations: u64,
    /// Maximum number of operations in flight when a rate is measured.
    pub window: u32,
    /// Seed of the workload.
    pub seed: u64,
    /// Maximum number of records that will be inserted.
    pub inserts: u64,
}

impl Plan {
    /// Returns the settings of the plan's clients.
    pub fn client(&self) -> ClientConfig {
        ClientConfig {
            window: self.window,
            max_key: 64,
            max_value: self.value_len,
            ..ClientConfig::default()
        }
    }
}

/// Returns the memory in bytes that YCSB records take in any of the designs, with a reserve for overwrites.
pub fn memory_for(records: u64, value_len: u32) -> usize {
    let each = (value_len as usize + record::KEY_LEN + 64).next_multiple_of(64) * 5 / 4;
    records as usize * each + (4 << 20)
}

/// A running process of `remora serve kv`.
pub struct Server {
    process: Process,
    /// Address on which the server listens.
    pub address: String,
    /// Further lines that the server printed: with 1RMA, its fingerprint and its token.
    pub more: Vec<String>,
}

impl Server {
    /// Number of lines that a 1RMA server prints: address, fingerprint and token.
    const RMA_LINES: usize = 3;

    /// Starts a server on a link with its records loaded. The server displays its own progress.
    pub fn start(design: Design, testbed: &Testbed, link: usize, plan: &Plan) -> Result<Server> {
        let most = plan.records + plan.inserts;
        let keys = (most * 2).to_string();
        let bytes = memory_for(most, plan.value_len).to_string();
        let words = ["serve", "kv", "--design", design.name(), "--capacity", &keys, "--memory", &bytes];
        Server::start_as(&words, testbed, link, plan)
    }

    /// Like `start`, with another command of this program; `words` are the command and its options.
    pub fn start_as(words: &[&str], testbed: &Testbed, link: usize, plan: &Plan) -> Result<Server> {
        let mut command = testbed.program()?;
        command.args(words).args(["--child", "--spin"]).args(testbed.server(link));
        command.args(["--records", &plan.records.to_string(), "--value-len", &plan.value_len.to_string()]);
        command.args(["--core", &testbed.cores()[1].to_string()]);
        let lines = if words.contains(&"rma") { Server::RMA_LINES } else { 1 };
        let (process, mut lines) = Process::start_ready(&mut command, lines)
            .with_context(|| format!("{} over {} did not start", words.join(" "), testbed.port().name()))?;
        lines.iter_mut().for_each(|line| *line = line.trim().to_owned());
        let more = lines.split_off(1);
        Ok(Server { process, address: lines.remove(0), more })
    }

    /// Kills the server without waiting for its end.
    ///
    /// # Errors
    /// Fails if the server has died before.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Continues the stopped server.
    pub fn go_on(&self) -> Result<()> {
        self.process.go_on()
    }

    /// Returns the CPU time in nanoseconds that all threads of the server have used.
    pub fn cpu_ns(&self) -> Result<u64> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).context("schedstat")?;
        }
        Ok(total)
    }
}

/// Results of a series of operations.
#[derive(Copy, Clone, Debug, Default)]
pub struct Figures {
    /// Mean round trips of an operation.
    pub round_trips: f64,
    /// Latency of one operation alone, measured as floors are (see [`typical`]), nanoseconds.
    pub p50: f64,
    /// 99th percentile of the latency.
    pub p99: f64,
}

/// A client that runs workloads and checks every value.
pub struct Runner<S: KvSession> {
    session: S,
    book: Book,
}

impl<D: KvDesign> Runner<Session<D>> {
    /// Connects to the server at `address` (`host:port`).
    pub fn connect(address: &str, port: &PortArgs, plan: &Plan) -> Result<Runner<Session<D>>> {
        Ok(Runner::over(Session::connect(&port.open()?, address, plan.client())?, plan))
    }
}

impl<S: KvSession> Runner<S> {
    /// Creates a runner for a session that was made for this plan.
    pub fn over(session: S, plan: &Plan) -> Runner<S> {
        let window = plan.window as usize;
        let book = Book {
            window,
            values: Values::fixed(plan.value_len),
            value: vec![0; plan.value_len as usize],
            version: 0,
            asked: vec![Part::NONE; window],
            wrong: 0,
            first_wrong: None,
            latencies: None,
        };
        Runner { session, book }
    }

    /// Reads the clock at the start and the end of each operation from now on.
    ///
    /// # Errors
    /// Fails if the histogram cannot be created.
    pub fn time_each(&mut self) -> Result<()> {
        let started = vec![Instant::now(); self.book.window];
        self.book.latencies = Some(Latencies { started, histogram: super::histogram()? });
        Ok(())
    }

    /// Returns the latencies in nanoseconds since [`time_each`](Runner::time_each) or the last call. `None`
    /// without `time_each`.
    pub fn take_latencies(&mut self) -> Option<Histogram<u64>> {
        let histogram = &mut self.book.latencies.as_mut()?.histogram;
        let taken = histogram.clone();
        histogram.reset();
        Some(taken)
    }

    /// Returns the maximum number of operations in flight.
    pub fn window(&self) -> u32 {
        self.book.window as u32
    }

    /// Stores these records, `window` at a time.
    ///
    /// # Errors
    /// Fails if the server refuses a record or the connection fails.
    pub fn load(&mut self, records: std::ops::Range<u64>) -> Result<()> {
        let mut parts = Parts::of_records(records);
        let (session, mut drive) = self.drive(&mut parts, Pace::Together);
        drive.finish(session)
    }

    /// Stops the server after it has acknowledged everything that this client sent. Otherwise the client's
    /// retries would run out while another server has the core.
    pub fn stop(&mut self, server: &Server) -> Result<()> {
        self.session.settle()?;
        server.process.stop()
    }

    /// Measures `count` operations one after the other; only the GETs of a scan are in flight together. The
    /// percentile comes from a second pass of half as many operations, since that pass reads the clock after
    /// each one.
    pub fn alone(&mut self, parts: &mut Parts, count: u64) -> Result<Figures> {
        parts.draw(count);
        let (session, mut drive) = self.drive(parts, Pace::Alone);
        let p50 = typical(count, || drive.one(session))?;
        drive.finish(session)?;
        let round_trips = drive.round_trips as f64 / drive.ended as f64;
        let mut histogram = super::histogram()?;
        drive.parts.draw(count / 2);
        let mut before = Instant::now();
        for _ in 0..count / 2 {
            drive.one(session)?;
            let now = Instant::now();
            histogram.saturating_record((now - before).as_nanos() as u64);
            before = now;
        }
        drive.finish(session)?;
        Ok(Figures { round_trips, p50, p99: histogram.value_at_quantile(0.99) as f64 })
    }

    /// Measures the operations per second with a full window.
    pub fn together(&mut self, parts: &mut Parts, count: u64) -> Result<f64> {
        self.paced(parts, count, Pace::Together)
    }

    /// Measures the operations per second while `window` operations are always in flight.
    pub fn closed_loop(&mut self, parts: &mut Parts, count: u64, window: u32) -> Result<f64> {
        self.paced(parts, count, Pace::Closed(window as usize))
    }

    fn paced(&mut self, parts: &mut Parts, count: u64, pace: Pace) -> Result<f64> {
        parts.draw(count);
        let (session, mut drive) = self.drive(parts, pace);
        let started = Instant::now();
        drive.finish(session)?;
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    fn drive<'a>(&'a mut self, parts: &'a mut Parts, pace: Pace) -> (&'a mut S, Drive<'a>) {
        let Runner { session, book } = self;
        (session, Drive { parts, book, pace, filling: false, ended: 0, round_trips: 0 })
    }
}

/// The client's record of its operations in flight, for checking the answers.
struct Book {
    window: usize,
    values: Values,
    value: Vec<u8>,
    version: u64,
    /// Operation in each slot of the window.
    asked: Vec<Part>,
    wrong: u64,
    first_wrong: Option<String>,
    latencies: Option<Latencies>,
}

/// Latencies of operations; kept only if the caller wants them.
struct Latencies {
    /// Start of the operation in each slot.
    started: Vec<Instant>,
    /// Histogram of the latencies in nanoseconds.
    histogram: Histogram<u64>,
}

impl Book {
    #[cold]
    fn note_wrong(&mut self, part: Part, finished: &Finished<'_>) {
        self.wrong += 1;
        if self.first_wrong.is_none() {
            let explanation = explain(&finished.outcome, self.value.len());
            self.first_wrong = Some(format!("{:?} of record {}: {explanation}", part.verb, part.record));
        }
    }
}

/// Returns the fault of an answer to a GET of values of `len` bytes.
fn explain(outcome: &Outcome<'_>, len: usize) -> String {
    match outcome {
        Outcome::Value(value) if value.len() != len => {
            let size = value.len();
            format!("the server's value has {size} bytes instead of {len}: give --value-len {size}")
        }
        Outcome::TooLong => format!(
            "the server's value has more than {len} bytes: give --value-len with the length of its values"
        ),
        _ => {
            let mut text = format!("{outcome:?}");
            text.truncate(100);
            text
        }
    }
}

/// The number of operations in flight, and the time at which the next ones start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Pace {
    /// A single operation at a time.
    Alone,
    /// A full window that is refilled in batches. Refilling it one by one would measure the doorbells.
    Together,
    /// A constant number of operations: the next one starts as soon as one has ended.
    Closed(usize),
}

/// Starts the parts of a workload and checks their results.
struct Drive<'a> {
    parts: &'a mut Parts,
    book: &'a mut Book,
    pace: Pace,
    /// True while the window is being refilled.
    filling: bool,
    ended: u64,
    round_trips: u64,
}

impl Drive<'_> {
    /// Runs until one more operation has ended.
    #[inline]
    fn one(&mut self, session: &mut impl KvSession) -> Result<()> {
        let before = self.ended;
        while self.ended == before {
            session.turn(self)?;
        }
        Ok(())
    }

    /// Runs until all drawn operations have ended.
    fn finish(&mut self, session: &mut impl KvSession) -> Result<()> {
        while !self.parts.is_done() || session.in_flight() > 0 {
            session.turn(self)?;
        }
        if let Some(first) = &self.book.first_wrong {
            bail!("{} operations gave a wrong answer, the first was {first}", self.book.wrong);
        }
        Ok(())
    }
}

impl Driver for Drive<'_> {
    #[inline]
    fn wants(&mut self, in_flight: usize) -> bool {
        if in_flight >= self.book.window || self.parts.is_done() {
            self.filling = false;
            return false;
        }
        match self.pace {
            Pace::Alone => in_flight == 0 || self.parts.has_begun(),
            Pace::Closed(window) => in_flight < window,
            Pace::Together => {
                self.filling |= in_flight * 2 <= self.book.window;
                self.filling
            }
        }
    }

    #[inline]
    fn start(&mut self, client: &mut impl Machine, nic: &mut impl PostPrism) -> Result<(), Refused> {
        let Some(part) = self.parts.next_part() else { return Ok(()) };
        let key = self.parts.key(part);
        let book = &mut *self.book;
        let slot = if part.reads() {
            client.get(key, nic)?
        } else {
            book.version += 1;
            let len = book.values.fill(part.record, book.version, &mut book.value);
            client.put(key, &book.value[..len], nic)?
        };
        book.asked[slot.index()] = part;
        if let Some(latencies) = &mut book.latencies {
            latencies.started[slot.index()] = Instant::now();
        }
        Ok(())
    }

    #[inline]
    fn ended(&mut self, finished: &Finished<'_>) {
        let book = &mut *self.book;
        let part = book.asked[finished.slot.index()];
        if let Some(Latencies { started, histogram }) = &mut book.latencies {
            histogram.saturating_record(started[finished.slot.index()].elapsed().as_nanos() as u64);
        }
        if finished.outcome == Outcome::Contended {
            // A hot key among updates gave no answer, which is not a wrong answer.
            self.round_trips += u64::from(finished.round_trips);
            return self.parts.again(part);
        }
        self.ended += u64::from(part.last);
        self.round_trips += u64::from(finished.round_trips);
        let right = match finished.outcome {
            Outcome::Value(value) => book.values.check(part.record, value).is_some(),
            Outcome::Done => !part.reads(),
            _ => false,
        };
        if !right {
            book.note_wrong(part, finished);
        }
        self.parts.ended(part);
    }
}
