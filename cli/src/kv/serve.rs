//! `remora serve kv`: a table, its clients, and one thread that polls for them all.

mod kept;

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use store::load::Pairs;
use store::ycsb::record::{self, Values};

use super::program::Loads;
use super::{Design, DesignName, Size};
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
    /// Keys that the table is made for; that of prism grows as memory allows [default: twice what it begins with, at least 100000].
    #[arg(long)]
    pub capacity: Option<u32>,
    /// Bytes for keys and values, with k, m or g for 2^10, 2^20 and 2^30 [default: what the records take, and 256 bytes for each
    /// further key].
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
    /// Tenant of the daemon: table and clients are kept under this name, whatever becomes of the server, and GETs go on. Design farm.
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

fn serve<D: Design>(args: &ServeArgs) -> Result<()> {
    let (len, most) = (args.value_len, args.max_value);
    ensure!(
        args.records == 0 || len <= most,
        "records of {len} bytes are longer than --max-value allows: {most}"
    );
    let lines = args.file.as_ref().map(count_lines).transpose()?.unwrap_or(0);
    let known = args.records + lines;
    let capacity = args.capacity.map_or((known * 2).max(100_000), |keys| known.max(keys.into()));
    let capacity = u32::try_from(capacity)
        .ok()
        .filter(|keys| *keys < 1 << 31)
        .context("a table takes at most 2147483647 keys")?;
    let mut service = match (&args.nicd, &args.keep) {
        (Some(socket), Some(name)) => {
            ensure!(
                args.design == DesignName::Farm,
                "only a table of design farm can be kept: add --design farm"
            );
            kept::open::<D>(args, (socket, name), capacity, |program| load(args, lines, program))?
        }
        _ => {
            let mut service = open::<D>(args, capacity)?;
            load(args, lines, &mut service.program)?;
            service
        }
    };
    let what = format!("{} keys as {}", service.program.keys(), args.design.name());
    args.conduct.serve(&what, args.listen, &mut service)
}

/// Loads what there is to begin with.
fn load(args: &ServeArgs, lines: u64, program: &mut impl Loads) -> Result<()> {
    load_records(args, program)?;
    if let Some(path) = &args.file {
        load_file(path, lines, program)?;
    }
    program.loaded()
}

/// Bytes that YCSB records take at most in any of the designs, with room to overwrite.
pub fn memory_for(records: u64, value_len: u32) -> usize {
    let each = (value_len as usize + record::KEY_LEN + 64).next_multiple_of(64) * 5 / 4;
    records as usize * each + (4 << 20)
}

/// Opens the NIC, and makes the program with its memory.
pub(super) fn open<D: Design>(args: &ServeArgs, capacity: u32) -> Result<Service<D::Program>> {
    let context = args.port.open()?;
    let mut memory = Memory::of(context.alloc_pd()?);
    let program = D::program(args, fresh_size(args, capacity), &mut memory)?;
    Service::new(context, program, memory, args.clients, D::SPEAKS)
}

/// The size of a new table.
fn fresh_size(args: &ServeArgs, capacity: u32) -> Size {
    let more = (u64::from(capacity) - args.records.min(u64::from(capacity))) as usize * 256;
    let bytes = args.memory.unwrap_or(memory_for(args.records, args.value_len) + more);
    Size { capacity, bytes, seed: fresh_seed(), again: false }
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

fn load_file(path: &PathBuf, lines: u64, program: &mut impl Loads) -> Result<()> {
    let bar = bar(lines, "loading the file")?;
    let mut pairs = Pairs::new(open_file(path)?);
    let (mut loaded, mut bad) = (0u64, 0u64);
    while let Some(pair) = pairs.next_pair().with_context(|| format!("reading {}", path.display()))? {
        match pair {
            Ok(pair) => match program.load(pair.key, pair.value) {
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
