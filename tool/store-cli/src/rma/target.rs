//! The options that select the server of a 1RMA client and the client's credential.

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

/// Options that select a server and the client's credential.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("port", |port| port.default_value("udp")))]
pub(crate) struct Target {
    /// Host and TCP port of the server [default: the address in --credentials, or 127.0.0.1:7501].
    #[arg(long)]
    connect: Option<String>,
    /// SHA-256 fingerprint of the server's certificate, as the server printed it [default: the one in
    /// --credentials].
    #[arg(long, required_unless_present = "credentials")]
    fingerprint: Option<Fingerprint>,
    #[command(flatten)]
    credential: CredentialArgs,
    /// Time limit in seconds for the handshake, and for each operation.
    #[arg(long, default_value_t = 5, value_parser = whole::<u64>(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    nic: LentArgs,
}

/// Options for the credential by which the server admits the client.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
struct CredentialArgs {
    /// File with the server's address, fingerprint and token, written by `remora rma serve --credentials`.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Token of the server. It is visible to other users of this host in the process list; --token-file is
    /// not.
    #[arg(long, conflicts_with_all = ["token_file", "certificate"])]
    token: Option<Token>,
    /// File with the token of the server; no other user may have read access.
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    token_file: Option<PathBuf>,
    /// PEM file with the certificate and private key of this client, created if it does not exist. The
    /// server must admit its fingerprint.
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
                let token = token.context(
                    "this server admits clients by certificate only: give yours with --certificate",
                )?;
                Credential::Token(token.parse()?)
            }
        })
    }
}

/// Refuses shared-memory ports. Over `shm` a 1RMA operation needs a link between both ends, which only a
/// connected queue pair creates.
pub(crate) fn refuse_shm(port: &PortArgs) -> Result<()> {
    ensure!(
        port.port != PortName::Shm,
        "1RMA over shm needs a connected queue pair beside it, which this command does not make: use --port udp"
    );
    Ok(())
}

/// Opens a NIC for 1RMA or attaches to a daemon's. Its port must not be shared memory.
pub(crate) fn open(nic: &LentArgs, mode: Mode) -> Result<Context> {
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
        "1RMA over shm needs a connected queue pair beside it, which this command does not make: start `remora serve nic` with --port udp"
    );
    Ok(context)
}

impl Target {
    /// Connects to the server and requests the grants of this client.
    pub(crate) fn session(&self) -> Result<RmaSession> {
        let given = self.credential.credentials.as_deref().map(Credentials::of_file).transpose()?;
        let credential = self.credential.credential(given.as_ref())?;
        let server = self.connect.as_deref().or(given.as_ref().map(|given| &*given.address));
        let server = server.unwrap_or("127.0.0.1:7501");
        let socket_address: Option<SocketAddr> = server.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = socket_address
            .with_context(|| format!("{server} is not a host and TCP port such as 10.0.0.1:7501"))?;
        let fingerprint = match (self.fingerprint, &given) {
            (Some(fingerprint), _) => fingerprint,
            (None, Some(given)) => given.fingerprint.parse()?,
            (None, None) => anyhow::bail!("no server certificate known: give --fingerprint or --credentials"),
        };
        let pin = Pin { address, fingerprint };
        let context = open(&self.nic, Mode::Inline)?;
        Ok(RmaSession::open_within(&context, pin, credential, Duration::from_secs(self.timeout))?)
    }
}
