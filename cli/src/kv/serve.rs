//! `remora serve kv`: a table, its clients, and one thread that polls for them all.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use host::metrics;
use indicatif::{ProgressBar, ProgressStyle};
use store::kv::{Connection, Hello, Server, ServerConfig, Table};
use store::load::Pairs;
use store::ycsb::record::{self, Values};
use verbs::{
    Access, CompletionChannel, CompletionQueue, ConnectRequest, Context, CqOptions, EMPTY, Flags, Listener,
    MemoryRegion, Notify, Operation, Payload, ProtectionDomain, QpOptions, QueuePair, Ready, Remote, Status,
    WorkCompletion, WorkRequest,
};

use super::post::{Batched, Later, registered};
use super::{Design, DesignName, READS};
use crate::device::PortArgs;
use crate::with_design;

/// Arguments of `remora serve kv`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora serve kv\n  remora serve kv --design pilaf --port udp --address 10.0.0.1 --listen 10.0.0.1:7471\n  remora serve kv --file words.txt --metrics 127.0.0.1:9464\n\nA file holds a `key value` pair a line: the key ends at the first space or tab."
)]
pub struct ServeArgs {
    /// Design of the table.
    #[arg(long, default_value = "farm")]
    pub design: DesignName,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address for the set-up of connections.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub listen: SocketAddr,
    /// YCSB records to begin with.
    #[arg(long, default_value_t = 0)]
    pub records: u64,
    /// Bytes of their values.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1048576))]
    pub value_len: u32,
    /// File of `key value` lines to begin with.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Keys that the table is made for [default: twice what it begins with, at least 100000].
    #[arg(long)]
    pub capacity: Option<u32>,
    /// Bytes for keys and values [default: what the records take, and 256 bytes for each further key].
    #[arg(long)]
    pub memory: Option<usize>,
    /// Clients at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Longest value that may be stored, in bytes.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1048576))]
    pub max_value: u32,
    /// Address of an endpoint with counters for Prometheus and `remora top`.
    #[arg(long)]
    pub metrics: Option<SocketAddr>,
    /// Poll without ever sleeping: for figures, on a core of its own.
    #[arg(long)]
    pub spin: bool,
    /// Core to stay on.
    #[arg(long)]
    pub core: Option<usize>,
    /// End when the parent process does, after saying the address on standard output.
    #[arg(long, hide = true)]
    pub child: bool,
}

/// `remora serve kv`.
pub fn run(args: &ServeArgs) -> Result<()> {
    if let Some(core) = args.core {
        crate::bench::cores::pin(core)?;
    }
    if args.child {
        crate::bench::turns::end_with_parent()?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    with_design!(args.design, serve(args, &stop))
}

/// A client as the server knows it.
struct Client {
    pair: QueuePair<Ready>,
    connection: Connection,
    life: Life,
}

/// What is known of a client's being there. One that left or died says nothing: its NIC must be asked.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Life {
    /// Something came from it lately.
    Seen,
    /// Nothing came for a while.
    Quiet,
    /// It was asked.
    Asked,
}

/// Id of the empty WRITE that asks a client's NIC for an acknowledgement; no store's id begins with 15.
const PROBE: u64 = 15 << 44;
/// Time between two looks for clients that are gone.
const PROBE_EVERY: Duration = Duration::from_millis(500);

struct Service<T> {
    server: Server<T>,
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    clients: Vec<Client>,
    config: ServerConfig,
    /// Registered as long as the table lives.
    _regions: Vec<MemoryRegion>,
}

fn serve<D: Design>(args: &ServeArgs, stop: &AtomicBool) -> Result<()> {
    let lines = args.file.as_ref().map(count_lines).transpose()?.unwrap_or(0);
    let known = args.records + lines;
    let capacity = args.capacity.map_or((known * 2).max(100_000), u64::from);
    let capacity = u32::try_from(capacity)
        .ok()
        .filter(|keys| *keys < 1 << 31)
        .context("a table takes at most 2147483647 keys")?;
    let mut service = open::<D>(args, capacity)?;
    load_records(args, service.server.table_mut())?;
    if let Some(path) = &args.file {
        load_file(path, lines, service.server.table_mut())?;
    }
    let listener = Listener::bind(args.listen)?;
    let endpoint = args
        .metrics
        .map(|address| {
            let context = service.context.clone();
            metrics::Endpoint::start(address, move || context.metrics())
        })
        .transpose()?;
    if args.child {
        println!("{}", listener.address());
    } else {
        if let Some(endpoint) = &endpoint {
            eprintln!("metrics for Prometheus and `remora top` at {}", endpoint.address());
        }
        eprintln!(
            "serving {} keys as {} over {} at {}; end with Ctrl-C",
            service.server.table().len(),
            args.design.name(),
            args.port.port.name(),
            listener.address(),
        );
    }
    service.work(args, &listener, stop)
}

/// Bytes that YCSB records take at most in any of the designs, with room to overwrite.
pub fn memory_for(records: u64, value_len: u32) -> usize {
    let each = (value_len as usize + record::KEY_LEN + 64).next_multiple_of(64) * 5 / 4;
    records as usize * each + (4 << 20)
}

/// Opens the NIC and registers the table's memory.
fn open<D: Design>(args: &ServeArgs, capacity: u32) -> Result<Service<D::Table>> {
    let context = args.port.open()?;
    let domain = context.alloc_pd()?;
    let config =
        ServerConfig { connections: args.clients, max_value: args.max_value, ..ServerConfig::default() };
    let seed = fresh_seed();
    let more = (u64::from(capacity) - args.records.min(u64::from(capacity))) as usize * 256;
    let bytes = args.memory.unwrap_or(memory_for(args.records, args.value_len) + more);
    let mut regions = Vec::new();
    let mut region = |what: &str, len: usize, access| -> Result<store::kv::Registered> {
        let region = domain.allocate(len, access).with_context(|| {
            format!("{} MiB for {what}: ask for less with --capacity or --memory", len >> 20)
        })?;
        let registered = registered(&region);
        regions.push(region);
        Ok(registered)
    };
    let readable = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let extents = region("values", bytes, readable)?;
    let index_len = D::index_len(capacity, seed);
    let index = (index_len > 0).then(|| region("the index", index_len, readable)).transpose()?;
    let local = region("messages", config.local_len(), Access::LOCAL_WRITE)?;
    let staging = region("long requests", config.staging_len(), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let server = Server::new(D::table(capacity, seed, index, extents), config, local, staging)?;
    let channel = context.create_channel()?;
    // And one for the probe of each client.
    let depth = (config.needs().completions + 1) * args.clients;
    let cq = context.create_cq_with(&CqOptions { depth, channel: Some(&channel), ..CqOptions::default() })?;
    Ok(Service { server, context, domain, cq, channel, clients: Vec::new(), config, _regions: regions })
}

/// Keys hash differently in each server, so that nobody can prepare collisions.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn bar(len: u64, what: &str) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}")?;
    Ok(ProgressBar::new(len).with_style(style).with_message(what.to_owned()))
}

fn load_records(args: &ServeArgs, table: &mut impl Table) -> Result<()> {
    let values = Values::fixed(args.value_len);
    let mut value = vec![0; args.value_len as usize];
    let bar = bar(args.records, "loading records")?;
    for record in 0..args.records {
        let len = values.fill(record, 0, &mut value);
        table.put(&record::key(record), &value[..len]).map_err(|refusal| {
            anyhow::anyhow!(
                "record {record} is refused: {refusal}; give the table more with --capacity or --memory"
            )
        })?;
        if record % 8192 == 0 {
            bar.set_position(record);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn open_file(path: &PathBuf) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(path).with_context(|| format!("opening {}", path.display()))?))
}

fn count_lines(path: &PathBuf) -> Result<u64> {
    use std::io::BufRead;
    let mut lines = 0;
    for line in open_file(path)?.split(b'\n') {
        line.with_context(|| format!("reading {}", path.display()))?;
        lines += 1;
    }
    Ok(lines)
}

fn load_file(path: &PathBuf, lines: u64, table: &mut impl Table) -> Result<()> {
    let bar = bar(lines, "loading the file")?;
    let mut pairs = Pairs::new(open_file(path)?);
    let (mut loaded, mut bad) = (0u64, 0u64);
    while let Some(pair) = pairs.next_pair().with_context(|| format!("reading {}", path.display()))? {
        match pair {
            Ok(pair) => match table.put(pair.key, pair.value) {
                Ok(()) => loaded += 1,
                Err(refusal) => bail!(
                    "{} keys are in, the next one is refused: {refusal}; give the table more with --capacity or --memory",
                    loaded
                ),
            },
            Err(line) => {
                bad += 1;
                if bad <= 10 {
                    eprintln!("{}: {line}", path.display());
                }
            }
        }
        bar.set_position(loaded);
    }
    bar.finish_and_clear();
    if bad > 0 {
        eprintln!("{}: {bad} lines were left out, {loaded} loaded", path.display());
    }
    Ok(())
}

/// Time without work after which the server sleeps.
const SPIN: Duration = Duration::from_millis(1);
/// Polls between two looks for new clients while there is work.
const LOOK_EVERY: u32 = 4096;

impl<T: Table> Service<T> {
    fn work(&mut self, args: &ServeArgs, listener: &Listener, stop: &AtomicBool) -> Result<()> {
        let mut done = [EMPTY; 64];
        let (mut busy, mut polls, mut probed) = (Instant::now(), 0u32, Instant::now());
        let parent = rustix::process::getppid();
        while !stop.load(Ordering::Relaxed) {
            let got = self.cq.poll(&mut done)?;
            self.handle(&done[..got]);
            polls = polls.wrapping_add(1);
            if got > 0 && polls % LOOK_EVERY != 0 {
                busy = Instant::now();
                continue;
            }
            if polls % LOOK_EVERY == 0 || (!args.spin && busy.elapsed() > SPIN) {
                self.admit(listener)?;
                if probed.elapsed() > PROBE_EVERY {
                    probed = Instant::now();
                    self.probe();
                }
                if args.child && rustix::process::getppid() != parent {
                    return Ok(());
                }
                if !args.spin && busy.elapsed() > SPIN {
                    self.sleep()?;
                }
            }
        }
        Ok(())
    }

    /// Sleeps until a completion comes, or a while: new clients are looked for in between.
    fn sleep(&mut self) -> Result<()> {
        self.cq.arm(Notify::Any)?;
        let mut done = [EMPTY; 64];
        let got = self.cq.poll(&mut done)?;
        if got == 0 {
            match self.channel.wait(Some(Duration::from_millis(20))) {
                Ok(_) | Err(verbs::PollError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.handle(&done[..got]);
        Ok(())
    }

    /// Handles completions; those of one client that follow each other are answered together.
    #[inline]
    fn handle(&mut self, done: &[WorkCompletion]) {
        for run in done.chunk_by(|one, next| one.qp_num == next.qp_num) {
            let found = self.clients.iter().position(|client| client.pair.number() == run[0].qp_num);
            let Some(at) = found else { continue };
            if let Err(why) = self.answer_run(at, run) {
                tracing::info!(qp = run[0].qp_num, why, "a client is gone");
                let client = self.clients.swap_remove(at);
                self.server.disconnect(client.connection);
            }
        }
    }

    #[inline]
    fn answer_run(&mut self, at: usize, run: &[WorkCompletion]) -> Result<(), String> {
        let Client { pair, connection, life } = &mut self.clients[at];
        *life = Life::Seen;
        let mut batch = pair.batch().map_err(|error| error.to_string())?;
        for completion in run {
            if completion.id == PROBE && completion.status == Status::Success {
                continue;
            }
            self.server
                .handle(*connection, completion, &mut Batched(&mut batch))
                .map_err(|broken| broken.to_string())?;
        }
        batch.ring();
        Ok(())
    }

    /// Asks the NICs of quiet clients whether they are there. Of those that are not, the retries run out, and the error
    /// makes room for others.
    fn probe(&mut self) {
        for client in &mut self.clients {
            client.life = match client.life {
                Life::Seen => Life::Quiet,
                Life::Asked => Life::Asked,
                Life::Quiet => {
                    let nowhere = Remote { addr: 0, rkey: verbs::Key::new(0) };
                    let empty = WorkRequest {
                        id: PROBE,
                        operation: Operation::Write(nowhere),
                        payload: Payload::Inline(&[]),
                        flags: Flags { signaled: true, ..Flags::default() },
                    };
                    // No room for it now: asked next time.
                    client.pair.post_send(&empty).map_or(Life::Quiet, |()| Life::Asked)
                }
            };
        }
    }

    /// Takes clients that wait to be connected.
    fn admit(&mut self, listener: &Listener) -> Result<()> {
        while let Some(request) = listener.accept(Some(Duration::ZERO))? {
            if let Err(error) = self.connect(request) {
                tracing::warn!("a client could not be connected: {error:#}");
            }
        }
        Ok(())
    }

    fn connect(&mut self, request: ConnectRequest) -> Result<()> {
        let mut later = Later::default();
        let granted =
            Hello::decode(request.private_data()).and_then(|hello| self.server.accept(&hello, &mut later));
        let (connection, grant) = match granted {
            Ok(granted) => granted,
            Err(error) => {
                request.reject(&error.to_string());
                return Err(error.into());
            }
        };
        match self.answer(request, &later, grant.encode().to_vec()) {
            Ok(pair) => {
                self.clients.push(Client { pair, connection, life: Life::Seen });
                Ok(())
            }
            Err(error) => {
                self.server.disconnect(connection);
                Err(error)
            }
        }
    }

    fn answer(
        &self,
        request: ConnectRequest,
        later: &Later,
        private_data: Vec<u8>,
    ) -> Result<QueuePair<Ready>> {
        let needs = self.config.needs();
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            max_send_sge: needs.sges,
            private_data,
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            ..QpOptions::default()
        };
        let mut pair = self.domain.create_qp(&self.cq, &self.cq, &options)?;
        later.post(&mut pair)?;
        Ok(request.accept(pair)?)
    }
}
