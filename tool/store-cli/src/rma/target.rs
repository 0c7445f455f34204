//! Which server a client of `remora rma` means, and who the client is.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use remora_grants::{Certificate, Credential, Fingerprint, Pin, RmaSession, Token};
use remora_options::device::{LentArgs, PortArgs, PortName};
use remora_options::number::whole;
use remora_verbs::{Context, Mode, PortKind};

use super::credentials::Credentials;

/// The server, and what admits this client.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("port", |port| port.default_value("udp")))]
pub struct Target {
    /// Host and TCP port of the server [default: those of --credentials, else 127.0.0.1:7501].
    #[arg(long)]
    connect: Option<String>,
    /// SHA-256 of the server's certificate, as the server printed it.
    #[arg(long, required_unless_present = "credentials")]
    fingerprint: Option<Fingerprint>,
    #[command(flatten)]
    credential: CredentialArgs,
    /// Seconds for the hand-shake, and for each operation.
    #[arg(long, default_value_t = 5, value_parser = whole::<u64>(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    nic: LentArgs,
}

/// What admits this client: one of these.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
struct CredentialArgs {
    /// File that `remora rma serve --credentials` wrote: the server's address, fingerprint and token.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// The server's token. Other users of this host see it in the list of processes: --token-file keeps it.
    #[arg(long, conflicts_with_all = ["token_file", "certificate"])]
    token: Option<Token>,
    /// File with the server's token; nobody else may read it.
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    token_file: Option<PathBuf>,
    /// PEM file with this client's certificate and private key, made if it is not there. The server must
    /// admit its fingerprint.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

impl CredentialArgs {
    fn credential(&self, given: Option<&Credentials>) -> Result<Credential> {
        let CredentialArgs { token, token_file, certificate, .. } = self;
        Ok(match (token, token_file, certificate) {
            (Some(token), _, _) => Credential::Token(token.clone()),
            (_, Some(path), _) => Credential::Token(Token::of_file(path)?),
            (_, _, Some(path)) => Credential::Certificate(Certificate::at(path)?),
            _ => {
                let token = given.and_then(|given| given.token.as_deref());
                let token =
                    token.context("this server admits certificates alone: name yours by --certificate")?;
                Credential::Token(token.parse()?)
            }
        })
    }
}

/// Over `shm` both ends need a link first, which a queue pair makes.
pub fn refuse_shm(port: &PortArgs) -> Result<()> {
    ensure!(
        port.port != PortName::Shm,
        "1RMA over shm needs a connected queue pair beside it, which this command does not make: use --port udp"
    );
    Ok(())
}

/// Opens a NIC for 1RMA, or attaches to a daemon's. Its port is no shared memory here.
pub fn open(nic: &LentArgs, mode: Mode) -> Result<Context> {
    if nic.nicd.is_none() {
        refuse_shm(&nic.port)?;
    }
    let context = match &nic.nicd {
        Some(_) => nic.open()?,
        None => {
            let device = nic.port.device()?.mode(mode);
            device.open().with_context(|| format!("opening a NIC with port {}", nic.port.port.name()))?
        }
    };
    ensure!(
        context.port().kind != PortKind::Shm,
        "1RMA over shm needs a connected queue pair beside it, which this command does not make: start `remora nicd` with --port udp"
    );
    Ok(context)
}

impl Target {
    /// Gets this client's grants.
    pub fn session(&self) -> Result<RmaSession> {
        let given = self.credential.credentials.as_deref().map(Credentials::of_file).transpose()?;
        let credential = self.credential.credential(given.as_ref())?;
        let server = self.connect.as_deref().or(given.as_ref().map(|given| &*given.address));
        let server = server.unwrap_or("127.0.0.1:7501");
        let found: Option<SocketAddr> = server.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address =
            found.with_context(|| format!("{server} is no host and TCP port, as 10.0.0.1:7501 is"))?;
        let fingerprint = match (self.fingerprint, &given) {
            (Some(fingerprint), _) => fingerprint,
            (None, Some(given)) => given.fingerprint.parse()?,
            (None, None) => anyhow::bail!("--fingerprint or --credentials is needed"),
        };
        let pin = Pin { address, fingerprint };
        let context = open(&self.nic, Mode::Inline)?;
        Ok(RmaSession::open_within(&context, pin, credential, Duration::from_secs(self.timeout))?)
    }
}
