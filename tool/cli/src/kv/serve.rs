//! `remora serve kv`: a table, its clients, and one thread that polls for them all.

mod contents;
mod kept;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use remora_store::kv::Refusal;
use remora_store::ycsb::record::{self, Values};

pub use contents::Contents;
use contents::Lines;

use super::load::{Stored, store_all};
use super::program::Loads;
use super::{Design, KvDesign, Size};
use crate::designs;
use crate::device::PortArgs;
use crate::serving::Service;
use crate::serving::conduct::{Conduct, size};
use crate::serving::program::Memory;
use crate::with_design;

/// Arguments of `remora serve kv`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora serve kv\n  remora serve kv --design pilaf --port udp --address 10.0.0.1 --listen 10.0.0.1:7471\n  remora serve kv --file words.txt --metrics 127.0.0.1:9464\n  remora serve kv --nicd /run/nic.sock --keep store\n\nA file holds a `key value` pair a line: the key ends at the first space or tab."
)]
pub struct ServeArgs {
    /// KvDesign of the table.
    #[arg(long, default_value = "farm", value_parser = designs::kv())]
    pub design: Design,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address for the set-up of connections.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub listen: SocketAddr,
    /// YCSB records to begin with.
    #[arg(long, default_value_t = 0)]
    pub records: u64,
    /// Bytes of their values.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1048576), requires = "records")]
    pub value_len: u32,
    /// File of `key value` lines to begin with; - takes standard input.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Keys that the table is made for; that of prism grows as memory allows [default: twice what it begins with, at least 100000].
    #[arg(long)]
    pub capacity: Option<u32>,
    /// Bytes for keys and values, with k, m or g for 2^10, 2^20 and 2^30 [default: what records and file take, and 256 bytes for each
    /// further key; with prism 1024, of which each size of buffers has its share].
    #[arg(long, value_parser = size)]
    pub memory: Option<usize>,
    /// Clients at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Longest key, in bytes.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1048576))]
    pub max_key: u32,
    /// Longest value that may be stored, in bytes.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1048576))]
    pub max_value: u32,
    /// Use the NIC and the memory of the daemon that listens at this socket (`remora nicd`), whose port it is then.
    #[arg(long, value_name = "PATH", requires = "keep", conflicts_with_all = ["port", "address", "interface", "capture", "fault"])]
    pub nicd: Option<PathBuf>,
    /// Tenant of the daemon: table and clients are kept under this name, whatever becomes of the server, and GETs go on. KvDesign farm.
    #[arg(long, value_name = "NAME", requires = "nicd")]
    pub keep: Option<String>,
    #[command(flatten)]
    pub conduct: Conduct,
}

/// `remora serve kv`.
pub fn run(args: &ServeArgs) -> Result<()> {
    args.conduct.begin()?;
    with_design!(args.design, serve(args))
}

fn serve<D: KvDesign>(args: &ServeArgs) -> Result<()> {
    let (len, most) = (args.value_len, args.max_value);
    ensure!(
        args.records == 0 || len <= most,
        "records of {len} bytes are longer than --max-value allows: {most}"
    );
    let file = args.file.as_deref().map(Lines::open).transpose()?;
    let mut contents = Contents::default();
    contents.add(record::KEY_LEN + len as usize, args.records);
    if let Some(file) = &file {
        file.count((args.max_key, most), &mut contents)?;
    }
    let plan = Plan { file, size: fresh_size::<D>(args, contents)? };
    let mut service = match (&args.nicd, &args.keep) {
        (Some(socket), Some(name)) => {
            ensure!(
                args.design == Design::Farm,
                "only a table of design farm can be kept: add --design farm"
            );
            kept::open::<D>(args, (socket, name), &plan)?
        }
        _ => {
            let mut service = open::<D>(args, plan.size.clone())?;
            plan.load(args, &mut service.program)?;
            service
        }
    };
    let what = format!("{} keys as {}", service.program.keys(), args.design.name());
    args.conduct.serve(&what, args.listen, &mut service)
}

/// What a server begins with.
struct Plan {
    file: Option<Lines>,
    size: Size,
}

impl Plan {
    /// Loads it.
    fn load(&self, args: &ServeArgs, program: &mut impl Loads) -> Result<()> {
        load_records(args, program)?;
        if let Some(file) = &self.file {
            load_file(args, file, program)?;
        }
        program.loaded()
    }
}

/// Bytes that YCSB records take at most in any of the designs, with room to overwrite.
pub fn memory_for(records: u64, value_len: u32) -> usize {
    let each = (value_len as usize + record::KEY_LEN + 64).next_multiple_of(64) * 5 / 4;
    records as usize * each + (4 << 20)
}

/// Opens the NIC, and makes the program with its memory.
pub(super) fn open<D: KvDesign>(args: &ServeArgs, size: Size) -> Result<Service<D::Program>> {
    let context = args.port.open()?;
    let mut memory = Memory::of(context.alloc_pd()?);
    let program = D::program(args, size, &mut memory)?;
    Service::new(context, program, memory, args.clients, D::SPEAKS)
}

/// The size of a new table: what was counted fits, whatever is asked for, and further keys by what is.
pub(super) fn fresh_size<D: KvDesign>(args: &ServeArgs, contents: Contents) -> Result<Size> {
    let known = contents.count();
    let capacity = args.capacity.map_or((known * 2).max(100_000), |keys| known.max(keys.into()));
    let keys = u32::try_from(capacity).ok().filter(|keys| *keys < 1 << 31);
    let keys = keys.context("a table takes at most 2147483647 keys")?;
    let bytes = match args.memory {
        Some(bytes) => bytes,
        None => usize::try_from(D::memory_for(args, &contents, capacity - known))?,
    };
    Ok(Size { capacity: keys, bytes, seed: fresh_seed(), again: false, contents: Rc::new(contents) })
}

/// Keys hash differently in each server, so that nobody can prepare collisions.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn bar(len: u64, what: &str) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}")?;
    Ok(ProgressBar::new(len).with_style(style).with_message(what.to_owned()))
}

fn load_records(args: &ServeArgs, program: &mut impl Loads) -> Result<()> {
    let values = Values::fixed(args.value_len);
    let mut value = vec![0; args.value_len as usize];
    let bar = bar(args.records, "loading records")?;
    for record in 0..args.records {
        let len = values.fill(record, 0, &mut value);
        program.load(&record::key(record), &value[..len]).map_err(|refusal| {
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

fn load_file(args: &ServeArgs, file: &Lines, program: &mut impl Loads) -> Result<()> {
    let bar = bar(file.len(), "loading the file")?;
    let pairs = file.pairs((args.max_key, args.max_value), |file| bar.wrap_read(file))?;
    let (loaded, bad) =
        store_all(pairs, &file.name, &bar, |pair| match program.load(pair.key, pair.value) {
            Ok(()) => Ok(Stored::Yes),
            Err(Refusal::TooLong) => Ok(Stored::No(Refusal::TooLong.to_string())),
            Err(refusal) => Err(anyhow!("{refusal}; give the table more with --capacity or --memory")),
        })?;
    if bad > 0 {
        eprintln!("{}: {bad} lines were left out, {loaded} loaded", file.name);
    }
    Ok(())
}
