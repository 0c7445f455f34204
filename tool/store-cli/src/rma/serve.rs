//! `remora rma serve`: exposes memory to clients of 1RMA.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use remora_grants::{Certificate, Fingerprint, GrantOptions, GrantServer, Offer, Token, key_of_file};
use remora_host::{metrics, wait_readable};
use remora_options::device::LentArgs;
use remora_options::number::{size, whole};
use remora_options::print_table;
use remora_options::{ending, print};
use remora_verbs::rma::{Rights, RmaOptions};
use remora_verbs::{Access, Context, Mode};
use serde_json::json;

use super::credentials::Credentials;
use super::rights::{right, rights_in_words};
use super::target::open;

/// Arguments of `remora rma serve`.
#[derive(clap::Args, Clone, Debug)]
#[command(
    mut_arg("port", |port| port.default_value("udp")),
    after_help = "Examples:\n  remora rma serve --credentials server.json &\n  remora rma read --credentials server.json --len 64\n  remora rma serve --address 10.0.0.1 --listen 10.0.0.1:7501 --size 64m --rights read,write --certificate server.pem --token-file token\n  remora rma serve --file table --rotate 60\n  remora rma serve --nicd /run/nic.sock\n  remora rma serve --admit 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n\nThe server prints the fingerprint of its certificate and its token; clients need both. Every client with the token has the granted\nrights. Without --certificate and --token-file both are new at each start."
)]
pub(crate) struct Args {
    #[command(flatten)]
    nic: LentArgs,
    /// TCP address (IP:PORT) on which clients request grants.
    #[arg(long, default_value = "127.0.0.1:7501")]
    listen: SocketAddr,
    /// Name of the region.
    #[arg(long, default_value = "memory")]
    name: String,
    /// Size of the region in bytes, or with suffix k, m or g (2^10, 2^20, 2^30) [default: the size of the
    /// file, or 1m].
    #[arg(long, value_parser = size)]
    size: Option<usize>,
    /// File with the initial contents of the region. It is read once and never written [default: zeros].
    #[arg(long)]
    file: Option<PathBuf>,
    /// Rights of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "read", value_parser = right())]
    rights: Vec<Rights>,
    /// File with the key of the region: 16 bytes or 32 hexadecimal digits. No other user may have read
    /// access [default: a random key].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// File to write the address, fingerprint and token to, for the --credentials option of clients. Only
    /// this user can read it [default: none].
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Address (IP:PORT) of an endpoint with counters for Prometheus and `remora top` [default: none].
    #[arg(long)]
    metrics: Option<SocketAddr>,
    /// End when the parent process ends.
    #[arg(long, hide = true)]
    child: bool,
    /// Print the address, fingerprint, token and region as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Options for the identity of a server, its clients, and the rotation of its keys.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct IdentityArgs {
    /// PEM file with the server's certificate and private key, created if it does not exist [default: a new
    /// certificate at each start].
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// File with the token, created if it does not exist [default: a new token at each start].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Fingerprint of a client certificate to admit; may be given several times. Without --token-file the
    /// server then has no token.
    #[arg(long, value_name = "FINGERPRINT")]
    admit: Vec<Fingerprint>,
    /// Change the keys at this interval in seconds, and announce each new key to connected clients
    /// [default: never].
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u32>(1..=86400 * 365))]
    pub rotate: Option<u32>,
}

impl IdentityArgs {
    /// Returns whether any of these options is given.
    pub(crate) fn is_given(&self) -> bool {
        let IdentityArgs { certificate, token_file, admit, rotate } = self;
        certificate.is_some() || token_file.is_some() || !admit.is_empty() || rotate.is_some()
    }

    /// Returns the server's certificate and the clients that it admits. It has a token unless `--admit` is
    /// given without `--token-file`.
    ///
    /// # Errors
    /// Fails if a file contains no valid certificate or token.
    pub(crate) fn options(&self) -> Result<GrantOptions> {
        let certificate = match &self.certificate {
            Some(path) => Certificate::at(path)?,
            None => Certificate::new()?,
        };
        let token = match &self.token_file {
            Some(path) => Some(Token::at(path)?),
            None if self.admit.is_empty() => Some(Token::random()?),
            None => None,
        };
        let clients = self.admit.iter().copied().collect();
        Ok(GrantOptions { token, clients, ..GrantOptions::new(certificate) })
    }
}

/// Maximum time between the announcement of a new key and the change.
const AHEAD: Duration = Duration::from_secs(1);

/// Runs `remora rma serve`.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.child {
        remora_options::ending::end_with_parent()?;
    }
    let stop_signal = ending::readable()?;
    let context = open(&args.nic, Mode::Dedicated)?;
    let rights = args.rights.iter().fold(Rights::NONE, |all, one| all | *one);
    let offer = args.offer(&context, rights)?;
    let options = args.identity.options()?;
    let token = options.token.clone();
    let server = GrantServer::start(args.listen, options, vec![offer])?;
    let counted = context.clone();
    let endpoint = args
        .metrics
        .map(|address| metrics::Endpoint::start(address, move || counted.metrics()))
        .transpose()?;
    if let Some(path) = &args.credentials {
        let token = token.as_ref().map(ToString::to_string);
        let address = server.address().to_string();
        let fingerprint = server.fingerprint().to_string();
        Credentials { address, fingerprint, token }.write(path)?;
    }
    let endpoint_address = endpoint.as_ref().map(metrics::Endpoint::address);
    args.tell(&server, &context, rights, token.as_ref(), endpoint_address);
    rotate(
        args.identity.rotate,
        &stop_signal,
        |ahead| Ok(server.announce(&args.name, remora_host::random_key()?, ahead)?),
        || Ok(server.change_key(&args.name)?),
    )
}

impl Args {
    /// Returns the region with its initial contents.
    fn offer(&self, context: &Context, rights: Rights) -> Result<Offer> {
        let contents = match &self.file {
            Some(path) => std::fs::read(path).with_context(|| format!("opening {}", path.display()))?,
            None => Vec::new(),
        };
        let len = self.size.unwrap_or(if self.file.is_some() { contents.len() } else { 1 << 20 });
        ensure!(len > 0, "the file is empty, but a region is not: give its size with --size");
        ensure!(
            contents.len() <= len,
            "the file has {} bytes, more than the region: increase --size",
            contents.len()
        );
        let key = self.key_file.as_deref().map(key_of_file).transpose()?;
        let memory = context.alloc_pd()?.allocate(len, Access::LOCAL_WRITE)?;
        if !contents.is_empty() {
            memory.write(0, &contents)?;
        }
        let region = context.open_rma(&RmaOptions::default())?.expose(memory, rights, key)?;
        Ok(Offer::new(&*self.name, rights, region))
    }

    fn tell(
        &self,
        server: &GrantServer,
        context: &Context,
        rights: Rights,
        token: Option<&Token>,
        metrics: Option<SocketAddr>,
    ) {
        let (id, len) = {
            let region = server.offers()[0].region();
            (region.id(), region.memory().len())
        };
        let address = server.address().to_string();
        let fingerprint = server.fingerprint().to_string();
        let token = token.map(ToString::to_string);
        let nic = context.port().endpoint.to_string();
        let rights = rights_in_words(rights);
        if self.json {
            print::line(json!({
                "address": address, "fingerprint": fingerprint, "token": token, "nic": nic,
                "name": self.name, "region": id, "len": len, "rights": rights,
                "metrics": metrics.map(|address| address.to_string()),
            }));
            return;
        }
        let facts = [
            ("address", address.clone()),
            ("fingerprint", fingerprint),
            ("token", token.unwrap_or_else(|| "none: certificates admit".to_owned())),
            ("NIC", nic),
            ("region", self.name.clone()),
            ("RegionId", id.to_string()),
            ("bytes", len.to_string()),
            ("rights", rights),
        ];
        print_table(["attribute", "value"], facts.into_iter().map(|(name, value)| [name.to_owned(), value]));
        let port = context.port().kind;
        eprintln!("serving {len} bytes over {port} at {address}; end with Ctrl-C");
        if let Some(address) = metrics {
            eprintln!("metrics for Prometheus and `remora top` at {address}");
        }
    }
}

/// Changes the keys every `every` seconds, and announces each change before, until `stop_signal` becomes
/// readable. If `every` is `None`, only waits for `stop_signal`.
///
/// # Errors
/// Fails if `announce` or `change` fails, or waiting fails.
pub(crate) fn rotate(
    every: Option<u32>,
    stop_signal: &std::os::unix::net::UnixStream,
    announce: impl Fn(Duration) -> Result<()>,
    change: impl Fn() -> Result<()>,
) -> Result<()> {
    let Some(every) = every.map(|seconds| Duration::from_secs(seconds.into())) else {
        return Ok(wait_readable(stop_signal.as_fd(), None).map(drop)?);
    };
    let ahead = AHEAD.min(every / 2);
    let mut next = Instant::now() + every;
    let waits = |until: Instant| -> Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        Ok(wait_readable(stop_signal.as_fd(), Some(left))?)
    };
    loop {
        if waits(next - ahead)? {
            return Ok(());
        }
        announce(ahead)?;
        if waits(next)? {
            return Ok(());
        }
        change()?;
        next += every;
    }
}
