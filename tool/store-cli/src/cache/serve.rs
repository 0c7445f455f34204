//! `remora serve cache`: serves a cache over memcached's text protocol.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use remora_options::device::PortArgs;
use remora_options::ending;
use remora_options::number::{natural, size, whole};
use remora_service::cache::{Chains, Server, ServerConfig, chains};
use remora_store::cache::{Config, MIN_MEMORY};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Arguments of `remora serve cache`.
#[derive(Args, Clone, Debug)]
#[allow(clippy::duplicated_attributes, reason = "each option of the NIC is made to need the chains")]
#[command(
    mut_arg("port", of_chains),
    mut_arg("address", of_chains),
    mut_arg("interface", of_chains),
    mut_arg("capture", of_chains),
    mut_arg("capture_limit", of_chains),
    mut_arg("fault", of_chains),
    after_help = "Examples:\n  remora serve cache\n  remora serve cache --listen 127.0.0.1:11311 --memory 1g\n  remora serve cache --memory 512m --items 8m --clients 10000\n  remora serve cache --unix-socket /run/cache.sock --idle-timeout 600\n  remora serve cache --chains 127.0.0.1:11212 --port udp\n  remora serve cache --chains 127.0.0.1:11212 --nicd /run/nic.sock --keep cache\n\nSizes take k, m or g for 2^10, 2^20 and 2^30. It speaks memcached's text protocol: see docs/guides/cache.md."
)]
pub(crate) struct CacheArgs {
    /// TCP address to listen on [default: 127.0.0.1:11211, or none with --unix-socket].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Unix socket to listen on. It is created at the start and removed at the end [default: none].
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// Access mode of the Unix socket, in octal: 700 admits this user only.
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = mode, requires = "unix_socket")]
    pub unix_socket_mode: u32,
    /// Seconds without a byte in either direction after which a connection is closed; 0 means never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = natural::<u32>)]
    pub idle_timeout: u32,
    /// Let clients end the server with the command `shutdown`.
    #[arg(long)]
    pub enable_shutdown: bool,
    /// Memory for keys and values in bytes. When it is full, the least recently used items are evicted.
    #[arg(long, default_value = "64m", value_parser = size)]
    pub memory: usize,
    /// Maximum number of items. Each needs about 150 bytes besides --memory, and 128 to 256 more with
    /// --chains [default: one per 256 bytes of --memory].
    #[arg(long, value_parser = size)]
    pub items: Option<usize>,
    /// Clients that may be connected at the same time.
    #[arg(long, default_value_t = 1024, value_parser = whole::<u32>(1..=1_000_000))]
    pub clients: u32,
    /// TCP address (IP:PORT) for Remora clients (`remora cache`), whose GETs the NIC answers by chains
    /// [default: none].
    #[arg(long, value_name = "ADDRESS")]
    pub chains: Option<SocketAddr>,
    #[command(flatten)]
    pub port: PortArgs,
    /// Use the NIC, port and memory of the daemon (`remora serve nic`) that listens at this socket [default:
    /// open a NIC in this process].
    #[arg(long, value_name = "PATH", requires_all = ["keep", "chains"], conflicts_with_all = ["port", "address", "interface", "capture", "fault"])]
    pub nicd: Option<PathBuf>,
    /// Name of the tenant that keeps the chains and items in the daemon if the server is killed, until the
    /// next server starts with an empty cache.
    #[arg(long, value_name = "NAME", requires = "nicd")]
    pub keep: Option<String>,
}

/// Default listening address.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 11211);

/// Makes an option of the NIC require `--chains`, since only chains need a NIC.
fn of_chains(option: clap::Arg) -> clap::Arg {
    option.requires("chains")
}

/// Number of file descriptors besides those of clients: standard streams, listener, epoll and a reserve.
const OTHERS: u64 = 16;
/// Parses an access mode in octal, up to 777.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "give a mode in octal up to 777, such as 660".to_owned())
}

/// Runs `remora serve cache`.
pub(crate) fn run(args: &CacheArgs) -> Result<()> {
    if args.memory < MIN_MEMORY {
        bail!("--memory takes at least {}m: the longest value must fit", MIN_MEMORY >> 20);
    }
    descriptors(args.clients)?;
    let chains = args.chains.map(|address| open_chains(args, address)).transpose()?;
    let unix = args.unix_socket.clone().map(|path| (path, args.unix_socket_mode));
    let config = ServerConfig {
        listen: args.listen.or_else(|| (unix.is_none() || args.chains.is_some()).then_some(LISTEN)),
        unix,
        idle_timeout: args.idle_timeout,
        shutdown: args.enable_shutdown,
        memory: args.memory,
        items: items(args)?,
        clients: args.clients,
    };
    let mut server = Server::open(&config, ending::readable()?, chains.as_ref())?;
    eprintln!(
        "serving memcached's text protocol at {}; {} MiB, {} items, {} clients; end with Ctrl-C",
        server.listeners(),
        config.memory >> 20,
        config.items,
        config.clients
    );
    if let Some(chains) = chains {
        eprintln!("Remora clients connect at {}", chains.address());
        let tcp_address = server.listeners().tcp().context("a TCP address for clients of chains")?;
        chains.serve(server.directory().context("the cache is shown to chains")?, tcp_address)?;
    }
    Ok(server.work()?)
}

fn open_chains(args: &CacheArgs, address: SocketAddr) -> Result<Chains> {
    let nic = match args.nicd.as_deref().zip(args.keep.as_deref()) {
        Some((socket, name)) => chains::lent(socket, name)?,
        None => chains::own(args.port.device()?, args.clients)?,
    };
    Ok(Chains::open(nic, address, args.memory, items(args)?, args.clients as usize)?)
}

fn items(args: &CacheArgs) -> Result<u32> {
    let asked = args.items.map_or(Ok(Config::items_for(args.memory)), u32::try_from);
    asked.ok().filter(|items| *items < 1 << 30).context("--items takes at most 1073741823")
}

/// Raises the limit of file descriptors so that each client can have one.
fn descriptors(clients: u32) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::from(clients) + OTHERS;
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < needed) {
        let most = limit.maximum.unwrap_or(0).saturating_sub(OTHERS);
        if most == 0 {
            bail!("a server needs {} file descriptors and one per client: raise `ulimit -Hn`", OTHERS);
        }
        bail!(
            "{clients} clients need {needed} file descriptors: raise `ulimit -Hn`, or serve --clients {most}"
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("raising the limit of file descriptors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_their_letter() {
        let cases = [("1", 1), ("4096", 4096), ("64k", 65536), ("64m", 64 << 20), ("1G", 1 << 30)];
        for (text, expected) in cases {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "0m", "m", "-1", "1.5g", "1mb", "99999999999g", "ü"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
