//! The options that select the servers of a client command, and sessions with these servers.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use remora_grants::{Certificate, Credential, Fingerprint, Pin, Token};
use remora_store::kv::ClientConfig;

use crate::advice::start_kv;
use crate::designs;
use crate::transport::TransportName;
use remora_options::device::PortArgs;
use remora_service::kv::rma::{RmaServerAddress, RmaSession};
use remora_service::kv::{Design, KvDesign, Session};

/// Options that select the servers of a client.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("port", |port| port.default_value_if("transport", "rma", "udp")))]
pub struct Target {
    /// Address of the server: its --listen (host:port). With --transport rma, several replicas separated by
    /// commas.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub connect: String,
    /// Design of the server's table: its --design.
    #[arg(long, default_value = "farm", value_parser = designs::kv())]
    pub design: Design,
    /// Transport of the operations: the server's --transport.
    #[arg(long, default_value = "rc")]
    pub transport: TransportName,
    #[command(flatten)]
    rma: RmaArgs,
    #[command(flatten)]
    /// The port of the client's NIC.
    pub port: PortArgs,
}

/// Options of a client of 1RMA servers.
#[derive(Args, Clone, Debug)]
struct RmaArgs {
    /// With --transport rma: SHA-256 fingerprint of the servers' certificate, as the server printed it.
    /// Give one for all servers, or one for each, separated by commas.
    #[arg(long, value_delimiter = ',')]
    fingerprint: Vec<Fingerprint>,
    /// Token of the servers. It is visible to other users of this host in the process list; --token-file is
    /// not.
    #[arg(long, requires = "fingerprint", conflicts_with_all = ["token_file", "certificate"])]
    token: Option<Token>,
    /// File with the token of the servers; no other user may have read access.
    #[arg(long, value_name = "FILE", requires = "fingerprint", conflicts_with = "certificate")]
    token_file: Option<PathBuf>,
    /// PEM file with the certificate and private key of this client, created if it does not exist. The
    /// servers must admit its fingerprint.
    #[arg(long, value_name = "FILE", requires = "fingerprint")]
    certificate: Option<PathBuf>,
}

impl RmaArgs {
    fn credential(&self) -> Result<Credential> {
        let RmaArgs { token, token_file, certificate, .. } = self;
        Ok(match (token, token_file, certificate) {
            (Some(token), _, _) => Credential::Token(token.clone()),
            (_, Some(path), _) => Credential::Token(Token::of_file(path)?),
            (_, _, Some(path)) => Credential::Certificate(Certificate::at(path)?),
            _ => {
                bail!("--transport rma needs --token (printed by the server), --token-file or --certificate")
            }
        })
    }
}

/// Maximum length of a key or of a value, in bytes.
pub const LONGEST: u32 = 1 << 20;

/// Returns the client configuration for one operation at a time and keys of at most `max_key` bytes.
///
/// # Errors
/// Fails if `max_key` exceeds [`LONGEST`].
pub fn config(max_key: usize) -> Result<ClientConfig> {
    let max_key = u32::try_from(max_key.max(16))
        .ok()
        .filter(|len| *len <= LONGEST)
        .context("the key is longer than 1 MiB")?;
    Ok(ClientConfig { window: 1, max_key, max_value: LONGEST, ..ClientConfig::default() })
}

/// Returns the client configuration for commands that list keys.
pub fn listing_config() -> ClientConfig {
    ClientConfig {
        window: remora_store::kv::prism::Scan::WINDOW,
        max_key: LONGEST,
        max_value: LONGEST,
        ..ClientConfig::default()
    }
}

impl Target {
    /// Returns the name of the design and transport, as benchmark rows contain it.
    pub fn system(&self) -> String {
        match self.transport {
            TransportName::Rc => self.design.name().to_owned(),
            other => format!("{}-{}", self.design.name(), other.name()),
        }
    }

    /// Opens a session over queue pairs.
    ///
    /// # Errors
    /// Fails if the options do not fit, the NIC cannot be opened, or the server does not answer or refuses.
    pub fn session<D: KvDesign>(&self, config: ClientConfig) -> Result<Session<D>> {
        ensure!(
            self.rma.fingerprint.is_empty(),
            "--fingerprint needs --transport rma: add it, or leave --fingerprint out"
        );
        let irn = self.transport == TransportName::Irn;
        Session::connect_by(&self.port.open()?, &self.connect, config, irn).map_err(start_kv)
    }

    /// Opens a session over 1RMA.
    ///
    /// # Errors
    /// Fails if the options do not fit, the NIC cannot be opened, or the servers do not answer or refuse.
    pub fn encrypted(&self, config: ClientConfig) -> Result<RmaSession> {
        ensure!(self.design == Design::Farm, "--transport rma supports only design farm: leave --design out");
        crate::rma::refuse_shm(&self.port)?;
        let servers = self.servers()?;
        RmaSession::connect(&self.port.open()?, &servers, config).map_err(start_kv)
    }

    fn servers(&self) -> Result<Vec<RmaServerAddress>> {
        let credential = self.rma.credential();
        let fingerprints = &self.rma.fingerprint;
        let addresses: Vec<&str> = self.connect.split(',').collect();
        ensure!(!fingerprints.is_empty(), "--transport rma needs --fingerprint, which the server printed");
        ensure!(
            fingerprints.len() == 1 || fingerprints.len() == addresses.len(),
            "{} fingerprints for {} servers: give one for all, or one each",
            fingerprints.len(),
            addresses.len()
        );
        let credential = credential?;
        let server = |(number, text): (usize, &&str)| -> Result<RmaServerAddress> {
            let socket_address: Option<SocketAddr> =
                text.to_socket_addrs().ok().and_then(|mut all| all.next());
            let address = socket_address
                .with_context(|| format!("{text} is not a host and TCP port such as 10.0.0.1:7471"))?;
            let fingerprint = *fingerprints.get(number).unwrap_or(&fingerprints[0]);
            Ok(RmaServerAddress { pin: Pin { address, fingerprint }, credential: credential.clone() })
        };
        addresses.iter().enumerate().map(server).collect()
    }
}

/// Calls a function with a session that fits the target's transport and design, followed by further
/// arguments.
macro_rules! with_session {
    ($target:expr, $config:expr, $function:ident($($argument:expr),*)) => {
        match ($target.transport, $target.design) {
            ($crate::transport::TransportName::Rma, _) => {
                $function(&mut $target.encrypted($config)?, $($argument),*)
            }
            (_, remora_service::kv::Design::Pilaf) => {
                $function(&mut $target.session::<remora_service::kv::PilafDesign>($config)?, $($argument),*)
            }
            (_, remora_service::kv::Design::Farm) => {
                $function(&mut $target.session::<remora_service::kv::FarmDesign>($config)?, $($argument),*)
            }
            (_, remora_service::kv::Design::TwoSided) => {
                $function(&mut $target.session::<remora_service::kv::TwoSidedDesign>($config)?, $($argument),*)
            }
            (_, remora_service::kv::Design::Prism) => {
                $function(&mut $target.session::<remora_service::kv::PrismDesign>($config)?, $($argument),*)
            }
            (_, remora_service::kv::Design::Strom) => {
                $function(&mut $target.session::<remora_service::kv::StromDesign>($config)?, $($argument),*)
            }
        }
    };
}

pub(super) use with_session;
