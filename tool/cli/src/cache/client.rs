//! `remora cache get`: an item by the chain that the server's NIC runs, or by memcached's protocol where that does not do.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use remora_store::cache::{ANSWER, Directory, Item, MAX_KEY};
use remora_transport::Instant;
use remora_verbs::{
    Access, Call, CompletionKind, CompletionQueue, Context, EMPTY, Flags, MemoryRegion, QpOptions, QueuePair,
    ReceiveRequest, Status, WorkRequest, work,
};

use super::chains::PROGRAM;
use super::exercise::{self, CacheExerciseArgs};
use super::memcached::Memcached;
use crate::device::PortArgs;
use crate::print;

/// `remora cache`.
#[derive(Subcommand)]
pub enum CacheCommand {
    /// Print the value of a key.
    Get(GetArgs),
    /// Do random operations, and record them for a judge of linearizability.
    Exercise(CacheExerciseArgs),
}

/// Arguments of `remora cache get`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  remora cache get colour\n  remora cache get colour --port udp --connect 10.0.0.1:11212\n\nThe server is one that was started with --chains. Ends with status 1 if there is no such key."
)]
pub struct GetArgs {
    /// The key.
    key: String,
    /// Where the server takes Remora clients: its --chains.
    #[arg(long, default_value = "127.0.0.1:11212")]
    connect: String,
    #[command(flatten)]
    port: PortArgs,
    /// Say which way the value came.
    #[arg(long)]
    explain: bool,
}

/// How long a chain may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it is waited for without sleeping, and the time between two looks then.
const SPIN: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(200);

/// `remora cache`.
pub fn run(command: CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Get(args) => get(&args),
        CacheCommand::Exercise(args) => exercise::run(&args),
    }
}

fn get(args: &GetArgs) -> Result<()> {
    let is_key = |byte: u8| byte > b' ' && byte != 127;
    ensure!(
        (1..=MAX_KEY).contains(&args.key.len()) && args.key.bytes().all(is_key),
        "a key has 1 to {MAX_KEY} bytes, and no spaces"
    );
    let mut client = Client::connect(&args.port, &args.connect)?;
    let (value, way) = match client.ask(args.key.as_bytes()) {
        Ok(Some(value)) => (Some(value), "by the chain".to_owned()),
        Ok(None) => (client.fall_back(&args.key)?, "by TCP: the chain had nothing that fits".to_owned()),
        Err(error) => (client.fall_back(&args.key)?, format!("by TCP: {error:#}")),
    };
    if args.explain {
        eprintln!("{way}");
    }
    let Some(value) = value else { bail!("no such key: {}", args.key) };
    print::bytes(&value);
    if !value.ends_with(b"\n") {
        print::line("");
    }
    Ok(())
}

/// A client with a chain of its own.
pub struct Client {
    pair: QueuePair,
    cq: CompletionQueue,
    reply: MemoryRegion,
    directory: Directory,
    tcp: SocketAddr,
    memcached: Option<Memcached>,
    _context: Context,
}

impl Client {
    /// Connects to a server's --chains.
    pub fn connect(port: &PortArgs, address: &str) -> Result<Client> {
        let context = port.open()?;
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let reply = domain.allocate(ANSWER, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let call = Call { program: PROGRAM.to_owned(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = crate::connecting::connect(&domain, &cq, &options, address).with_context(|| {
            format!(
                "no cache takes Remora clients at {address}: `remora serve cache --chains {address}` does"
            )
        })?;
        let said = pair.peer_private_data();
        let (directory, port) =
            said.split_at_checked(Directory::LEN).context("whoever answers is no cache")?;
        let directory = Directory::from_bytes(directory).context("whoever answers is no cache")?;
        let port = port.try_into().map(u16::from_le_bytes).context("whoever answers is no cache")?;
        let mut tcp = address.to_socket_addrs()?.next().context("no address")?;
        tcp.set_port(port);
        Ok(Client { pair, cq, reply, directory, tcp, memcached: None, _context: context })
    }

    /// The value of a key, by the chain. None: it has none that fits, and there may be one.
    pub fn ask(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.begin(key)?;
        let started = Clock::now();
        loop {
            if let Some(value) = self.look(key)? {
                return Ok(value);
            }
            let spent = started.elapsed();
            ensure!(spent < PATIENCE, "the chain has not answered for {} seconds", PATIENCE.as_secs());
            match spent < SPIN {
                true => std::thread::yield_now(),
                false => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Asks the chain; one question at a time.
    pub fn begin(&mut self, key: &[u8]) -> Result<()> {
        let question = self.directory.ask(key);
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[] })?;
        let quiet = WorkRequest { flags: Flags::default(), ..work::send_inline(2, &question) };
        Ok(self.pair.post_send(&quiet)?)
    }

    /// What the chain has answered, if it has: [`ask`](Client::ask) says what that may be.
    pub fn look(&mut self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        let mut done = [EMPTY; 2];
        let came = self.cq.poll(&mut done)?;
        let mut answered = None;
        for completion in &done[..came] {
            let status = completion.status;
            ensure!(status == Status::Success, "the chain has ended: {}", status.explain());
            let is_answer = completion.kind == CompletionKind::ReceiveWriteImm;
            answered = is_answer.then_some(completion.byte_len).or(answered);
        }
        let Some(len) = answered else { return Ok(None) };
        let mut answer = vec![0; len as usize];
        self.reply.read(0, &mut answer)?;
        Ok(Some(Item::of(&answer, key, now()?).map(|item| item.value.to_vec())))
    }

    /// The value of a key, by memcached's protocol.
    pub fn fall_back(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let value = self.memcached()?.get(key);
        value.with_context(|| format!("asking the cache at {}", self.tcp))
    }

    /// Stores a value, by memcached's protocol.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let stored = self.memcached()?.set(key, value);
        stored.with_context(|| format!("telling the cache at {}", self.tcp))
    }

    fn memcached(&mut self) -> Result<&mut Memcached> {
        let connected = match self.memcached.take() {
            Some(connected) => connected,
            None => Memcached::connect(self.tcp).with_context(|| format!("connecting to {}", self.tcp))?,
        };
        Ok(self.memcached.insert(connected))
    }
}

/// Since 1970, as the server counts.
fn now() -> Result<Instant> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    Ok(Instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1)))
}
