//! `remora serve nic`, with alias `remora nicd`: runs the NIC daemon, which owns a NIC and its memory, lends
//! both to programs, and continues when a program ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use remora_broker::NicServer;
use remora_host::{OpenError, metrics};
use remora_verbs::KernelLoader;
use remora_verbs::nicd::{Daemon, Limits, Options};
use serde_json::json;
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

use remora_options::device::{LentArgs, PortArgs, PortName};
use remora_options::number::{natural, size, whole};
use remora_options::{ending, print};

use crate::broker;
use crate::nic::{self, Manage, print_tenants};

/// Arguments of `remora serve nic`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora serve nic\n  remora serve nic --socket /run/nic.sock --port udp --address 10.0.0.1 --memory 16g --allow-uid 1000\n  remora serve nic --port udp --address 10.0.0.1 --share\n  remora serve kv --nicd /run/nic.sock --keep store\n  remora nic tenants --socket /run/nic.sock\n  remora nic end store --socket /run/nic.sock\n\nA program that attaches with a name is a kept tenant: its queue pairs and regions keep working when it is killed or stopped. SIGUSR1\nprints the tenants."
)]
pub(crate) struct Args {
    #[command(flatten)]
    port: PortArgs,
    /// Share the address of port udp between the programs of this host, as `remora broker` does. The lent
    /// NIC takes one of the 127 QPN ranges [default address: the source address of the default route].
    #[arg(long)]
    share: bool,
    /// Socket to listen on [default: remora-nicd.sock in $XDG_RUNTIME_DIR, or in /run/user/UID].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// ID of a user that may attach, besides the daemon's own user; may be given several times.
    #[arg(long, value_name = "UID", value_parser = natural::<u32>)]
    allow_uid: Vec<u32>,
    /// Memory for regions and queues per user, in bytes or with suffix k, m or g (2^10, 2^20, 2^30).
    #[arg(long, value_parser = size, default_value = "4g")]
    memory: usize,
    /// Protection domains per user, counted over all programs and kept tenants of the user, as are the
    /// following limits.
    #[arg(long, default_value_t = Limits::default().domains, value_parser = natural::<usize>)]
    domains: usize,
    /// Memory regions per user.
    #[arg(long, default_value_t = Limits::default().regions, value_parser = natural::<usize>)]
    regions: usize,
    /// Completion queues per user.
    #[arg(long, default_value_t = Limits::default().queues, value_parser = natural::<usize>)]
    queues: usize,
    /// Completion channels per user.
    #[arg(long, default_value_t = Limits::default().channels, value_parser = natural::<usize>)]
    channels: usize,
    /// Queue pairs per user.
    #[arg(long, default_value_t = Limits::default().pairs, value_parser = whole::<usize>(1..=16384))]
    pairs: usize,
    /// Kernels (programs that run on the NIC) per user; the NIC has space for 32 in total.
    #[arg(long, default_value_t = Limits::default().kernels, value_parser = natural::<usize>)]
    kernels: usize,
    /// PRISM free lists per user; the NIC has space for 256 in total.
    #[arg(long, default_value_t = Limits::default().free_lists, value_parser = natural::<usize>)]
    free_lists: usize,
    /// 1RMA command portals per user.
    #[arg(long, default_value_t = Limits::default().rma_portals, value_parser = whole::<usize>(0..=256))]
    rma_portals: usize,
    /// 1RMA command slots per user. The NIC has 1024; users share the NIC in proportion to their
    /// slots.
    #[arg(long, default_value_t = Limits::default().rma_slots, value_parser = natural::<usize>)]
    rma_slots: usize,
    /// 1RMA command slots per user that may carry latency-class commands.
    #[arg(long, default_value_t = Limits::default().rma_latency_slots, value_parser = natural::<usize>)]
    rma_latency_slots: usize,
    /// 1RMA regions per user; the NIC has 16384 in total.
    #[arg(long, default_value_t = Limits::default().rma_regions, value_parser = natural::<usize>)]
    rma_regions: usize,
    /// Kept tenants per user, attached or not.
    #[arg(long, default_value_t = Options::default().tenants, value_parser = natural::<usize>)]
    tenants: usize,
    /// Programs of each user that may be attached at the same time.
    #[arg(long, default_value_t = Options::default().attachments, value_parser = natural::<usize>)]
    attachments: usize,
    /// Address (IP:PORT) of an endpoint with counters for Prometheus and `remora top` [default: none].
    #[arg(long)]
    metrics: Option<SocketAddr>,
    /// End when the parent process ends.
    #[arg(long, hide = true)]
    child: bool,
    /// Print the socket and port, and the tenants on SIGUSR1, as JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `remora nicd`: those of `remora serve nic`, or a command of `remora nic`.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AliasArgs {
    #[command(subcommand)]
    command: Option<Manage>,
    #[command(flatten)]
    args: Args,
}

impl AliasArgs {
    /// Runs `remora nicd`.
    pub(crate) fn run(&self) -> Result<()> {
        match &self.command {
            Some(command) => nic::run(command),
            None => run(&self.args),
        }
    }
}

/// The loader of users' kernels.
#[cfg(feature = "wasm")]
const LOADER: Option<KernelLoader> = Some(remora_sandbox::load);
#[cfg(not(feature = "wasm"))]
const LOADER: Option<KernelLoader> = None;

impl Args {
    fn options(&self) -> Options {
        let limits = Limits {
            domains: self.domains,
            regions: self.regions,
            queues: self.queues,
            channels: self.channels,
            pairs: self.pairs,
            kernels: self.kernels,
            free_lists: self.free_lists,
            bytes: self.memory as u64,
            rma_portals: self.rma_portals,
            rma_slots: self.rma_slots,
            rma_latency_slots: self.rma_latency_slots,
            rma_regions: self.rma_regions,
            ..Limits::default()
        };
        let attachments = self.attachments;
        let tenants = self.tenants;
        let allow = self.allow_uid.clone();
        Options { limits, attachments, tenants, allow, loader: LOADER, ..Options::default() }
    }
}

/// A running daemon.
enum Lender {
    /// A NIC of its own.
    Alone(Arc<Daemon>),
    /// A NIC at an address that the daemon shares between programs.
    Sharing(Box<NicServer>),
}

impl Lender {
    fn open(args: &Args, socket: &Path) -> Result<Lender> {
        broker::raise_limits();
        if !args.share {
            let daemon = Daemon::open(&args.port.device()?, socket, &args.options())?;
            return Ok(Lender::Alone(Arc::new(daemon)));
        }
        ensure!(
            args.port.port == PortName::Udp && args.port.interface.is_none(),
            "--share is for port udp: add --port udp, or leave it out"
        );
        let settings =
            |device| args.port.complete(device).map_err(|error| OpenError::Port(format!("{error:#}")));
        let address = broker::address(args.port.address);
        Ok(Lender::Sharing(Box::new(NicServer::open(address, socket, &args.options(), settings)?)))
    }

    fn daemon(&self) -> &Arc<Daemon> {
        match self {
            Lender::Alone(daemon) => daemon,
            Lender::Sharing(server) => server.daemon(),
        }
    }
}

/// Runs `remora serve nic`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let socket = args.socket.clone().unwrap_or_else(LentArgs::default_socket);
    if args.child {
        ending::end_with_parent()?;
    }
    let heard = ending::signals()?.into_iter().chain([SIGUSR1]);
    let mut signals = Signals::new(heard).context("installing signal handlers")?;
    let lender = Lender::open(args, &socket)?;
    let daemon = Arc::clone(lender.daemon());
    let counted = Arc::clone(&daemon);
    let endpoint = args
        .metrics
        .map(|address| metrics::Endpoint::start(address, move || counted.metrics()))
        .transpose()?;
    let port = daemon.port();
    let metrics_address = endpoint.as_ref().map(|endpoint| endpoint.address().to_string());
    if args.json {
        print::line(json!({
            "socket": socket, "port": port.kind.to_string(),
            "address": std::net::IpAddr::from(port.endpoint.address).to_string(), "metrics": metrics_address,
        }));
    } else {
        if let Some(metrics_address) = metrics_address {
            eprintln!("metrics for Prometheus and `remora top` at {metrics_address}");
        }
        eprintln!("lending a NIC over {} at {}; end with Ctrl-C", port.kind, socket.display());
    }
    for signal in signals.forever() {
        if signal != SIGUSR1 {
            break;
        }
        print_tenants(&daemon.tenants(), args.json);
    }
    Ok(())
}
