//! `remora serve kv`: serves a key-value table to its clients, with one polling thread.

mod file;
mod rma;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use remora_service::kv::persist::Kept;
use remora_service::kv::{self, Contents, Design, KvDesign, Limits, Loads, Size};
use remora_service::server::Service;
use remora_service::with_design;
use remora_store::kv::Refusal;
use remora_store::ycsb::record::{self, Values};

use file::Lines;

use super::load::{Stored, store_all};
use crate::conduct::Conduct;
use crate::designs;
use crate::rma::IdentityArgs;
use crate::transport::TransportName;
use remora_options::device::PortArgs;
use remora_options::number::{natural, size, whole};

/// Arguments of `remora serve kv`.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("port", |port| port.default_value_if("transport", "rma", "udp")),
    after_help = "Examples:\n  remora serve kv\n  remora serve kv --design pilaf --port udp --address 10.0.0.1 --listen 10.0.0.1:7471\n  remora serve kv --file words.txt --metrics 127.0.0.1:9464\n  remora serve kv --nicd /run/nic.sock --keep store\n  remora serve kv --port udp --transport irn\n  remora serve kv --transport rma --certificate server.pem --token-file token --rotate 60\n\n--transport rma encrypts everything: it prints a fingerprint and a token, and clients need both. Two servers with one certificate\nand one token file are replicas for clients that name both.\n\nA file holds a `key value` pair a line: the key ends at the first space or tab."
)]
pub(crate) struct ServeArgs {
    /// Design of the table.
    #[arg(long, default_value = "farm", value_parser = designs::kv())]
    pub design: Design,
    /// Transport of the operations.
    #[arg(long, default_value = "rc")]
    pub transport: TransportName,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address (IP:PORT) on which clients set up their connections.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub listen: SocketAddr,
    /// Number of YCSB records to store before clients are accepted.
    #[arg(long, default_value_t = 0, value_parser = natural::<u64>)]
    pub records: u64,
    /// Length of the value of each YCSB record in bytes.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(16..=1048576), requires = "records")]
    pub value_len: u32,
    /// File of `key value` lines to store before clients are accepted; - reads standard input.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Number of keys that the table has space for; a prism table grows as memory allows [default: twice
    /// the initial number of keys, at least 100000].
    #[arg(long, value_parser = natural::<u32>)]
    pub capacity: Option<u32>,
    /// Memory for keys and values, in bytes or with suffix k, m or g (2^10, 2^20, 2^30) [default: what the
    /// records and the file need, and for each further key 256 bytes or, with prism, 1024 divided among the
    /// buffer sizes].
    #[arg(long, value_parser = size)]
    pub memory: Option<usize>,
    /// Clients that may be connected at the same time.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=4096))]
    pub clients: u32,
    /// Maximum length of a key in bytes.
    #[arg(long, default_value_t = 1024, value_parser = whole::<u32>(1..=1048576))]
    pub max_key: u32,
    /// Maximum length of a value in bytes.
    #[arg(long, default_value_t = 1 << 20, value_parser = whole::<u32>(1..=1048576))]
    pub max_value: u32,
    /// Use the NIC, port and memory of the daemon (`remora serve nic`) that listens at this socket [default:
    /// open a NIC in this process].
    #[arg(long, value_name = "PATH", requires = "keep", conflicts_with_all = ["port", "address", "interface", "capture", "fault"])]
    pub nicd: Option<PathBuf>,
    /// Name of the tenant that keeps the table and its clients in the daemon when the server ends; clients
    /// can still GET meanwhile. Only for design farm.
    #[arg(long, value_name = "NAME", requires = "nicd")]
    pub keep: Option<String>,
    #[command(flatten)]
    pub conduct: Conduct,
    #[command(flatten, next_help_heading = "With --transport rma")]
    identity: IdentityArgs,
}

impl ServeArgs {
    /// Returns the limits for clients.
    fn limits(&self) -> Limits {
        let ServeArgs { clients, max_key, max_value, .. } = *self;
        let record_len = (self.records > 0).then_some(self.value_len);
        let irn = self.transport == TransportName::Irn;
        Limits { clients, max_key, max_value, record_len, irn }
    }
}

/// Runs `remora serve kv`.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    args.conduct.begin()?;
    if args.transport == TransportName::Rma {
        return rma::run(args);
    }
    ensure!(
        !args.identity.is_given(),
        "--certificate, --token-file, --admit and --rotate need --transport rma: add it, or leave them out"
    );
    with_design!(args.design, serve(args))
}

fn serve<D: KvDesign>(args: &ServeArgs) -> Result<()> {
    let (size, file) = begins_with::<D>(args)?;
    let mut service = open::<D>(args, size, file.as_ref())?;
    let description = format!("{} keys as {}", service.program.keys(), args.design.name());
    args.conduct.serve(&description, args.listen, &mut service)
}

/// Opens the file and returns the size of the table for its initial contents.
fn begins_with<D: KvDesign>(args: &ServeArgs) -> Result<(Size, Option<Lines>)> {
    let len = args.value_len;
    let most = args.max_value;
    ensure!(args.records == 0 || len <= most, "--value-len is {len}, more than --max-value allows: {most}");
    let file = args.file.as_deref().map(Lines::open).transpose()?;
    let mut contents = Contents::default();
    contents.add(record::KEY_LEN + len as usize, args.records);
    if let Some(file) = &file {
        file.count(args.max_key, most, &mut contents)?;
    }
    Ok((Size::fresh::<D>(&args.limits(), contents, args.capacity, args.memory)?, file))
}

/// Opens the server: with its initial contents, or as its predecessor left it in a NIC daemon.
fn open<D: KvDesign>(args: &ServeArgs, size: Size, file: Option<&Lines>) -> Result<Service<D::Program>> {
    let limits = args.limits();
    let (Some(socket), Some(name)) = (&args.nicd, &args.keep) else {
        return kv::open_with::<D, _>(args.port.open()?, &limits, size, |program| load(args, file, program));
    };
    ensure!(args.design == Design::Farm, "--keep supports only --design farm");
    let kept = Kept::open(socket, name)?;
    if !kept.has_table() {
        return kept.begin::<D, _>(&limits, &size, |program| load(args, file, program));
    }
    let unheeded = [
        (args.records > 0, "--records"),
        (args.file.is_some(), "--file"),
        (args.capacity.is_some(), "--capacity"),
        (args.memory.is_some(), "--memory"),
    ];
    for (_, option) in unheeded.iter().filter(|(given, _)| *given) {
        eprintln!("{option} is ignored: the table of the previous server is used");
    }
    let (service, clients) = kept.resume::<D>(&limits)?;
    eprintln!("continues the table of the previous server, with {clients} of its clients");
    Ok(service)
}

/// Stores the initial contents.
fn load(args: &ServeArgs, file: Option<&Lines>, program: &mut impl Loads) -> Result<()> {
    load_records(args, program)?;
    if let Some(file) = file {
        load_file(args, file, program)?;
    }
    Ok(())
}

fn bar(len: u64, message: &str) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}")?;
    Ok(ProgressBar::new(len).with_style(style).with_message(message.to_owned()))
}

fn load_records(args: &ServeArgs, program: &mut impl Loads) -> Result<()> {
    let values = Values::fixed(args.value_len);
    let mut value = vec![0; args.value_len as usize];
    let bar = bar(args.records, "loading records")?;
    for record in 0..args.records {
        let len = values.fill(record, 0, &mut value);
        program.load(&record::key(record), &value[..len]).map_err(|refusal| {
            anyhow::anyhow!("cannot store record {record}: {refusal}; increase --capacity or --memory")
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
    let pairs = file.pairs(args.max_key, args.max_value, |file| bar.wrap_read(file))?;
    let (loaded, bad) =
        store_all(pairs, &file.name, &bar, |pair| match program.load(pair.key, pair.value) {
            Ok(()) => Ok(Stored::Yes),
            Err(Refusal::TooLong) => Ok(Stored::No(Refusal::TooLong.to_string())),
            Err(refusal) => Err(anyhow!("{refusal}; increase --capacity or --memory")),
        })?;
    if bad > 0 {
        eprintln!("{}: {bad} lines were left out, {loaded} loaded", file.name);
    }
    Ok(())
}
