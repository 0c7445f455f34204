//! The servers that a command is for, and sessions with them.

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

/// Which servers.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("port", |port| port.default_value_if("transport", "rma", "udp")))]
pub struct Target {
    /// Address of the server: its --listen. With --transport rma several of the same pairs, with commas.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub connect: String,
    /// Design of the server: its --design.
    #[arg(long, default_value = "farm", value_parser = designs::kv())]
    pub design: Design,
    /// What carries the operations: the server's --transport.
    #[arg(long, default_value = "rc")]
    pub transport: TransportName,
    #[command(flatten)]
    rma: RmaArgs,
    #[command(flatten)]
    /// The port of the client's NIC.
    pub port: PortArgs,
}

/// What a client of 1RMA knows of its servers.
#[derive(Args, Clone, Debug)]
struct RmaArgs {
    /// With --transport rma: SHA-256 of the servers' certificates, as they printed it; one for all, or one
    /// each, with commas.
    #[arg(long, value_delimiter = ',')]
    fingerprint: Vec<Fingerprint>,
    /// The servers' token. Other users of this host see it in the list of processes: --token-file keeps it.
    #[arg(long, requires = "fingerprint", conflicts_with_all = ["token_file", "certificate"])]
    token: Option<Token>,
    /// File with the servers' token; nobody else may read it.
    #[arg(long, value_name = "FILE", requires = "fingerprint", conflicts_with = "certificate")]
    token_file: Option<PathBuf>,
    /// PEM file with this client's certificate and private key, made if it is not there. The servers must
    /// admit its fingerprint.
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
            _ => bail!(
                "--transport rma needs --token, --token-file or --certificate: the server printed its token"
            ),
        })
    }
}

/// Bytes of a key or a value at most.
pub const LONGEST: u32 = 1 << 20;

/// For keys of this length at most.
///
/// # Errors
/// No server takes such keys.
pub fn config(max_key: usize) -> Result<ClientConfig> {
    let max_key =
        u32::try_from(max_key.max(16)).ok().filter(|len| *len <= LONGEST).context("keys end at 1 MiB")?;
    Ok(ClientConfig { window: 1, max_key, max_value: LONGEST, ..ClientConfig::default() })
}

/// For one that can list keys too.
pub fn listing_config() -> ClientConfig {
    ClientConfig {
        window: remora_store::kv::prism::Scan::WINDOW,
        max_key: LONGEST,
        max_value: LONGEST,
        ..ClientConfig::default()
    }
}

impl Target {
    /// Design and transport, as figures name them.
    pub fn system(&self) -> String {
        match self.transport {
            TransportName::Rc => self.design.name().to_owned(),
            other => format!("{}-{}", self.design.name(), other.name()),
        }
    }

    /// A session over queue pairs.
    ///
    /// # Errors
    /// The server's, or the port's.
    pub fn session<D: KvDesign>(&self, config: ClientConfig) -> Result<Session<D>> {
        ensure!(
            self.rma.fingerprint.is_empty(),
            "--fingerprint is for --transport rma: add that, or leave it out"
        );
        let irn = self.transport == TransportName::Irn;
        Session::connect_by(&self.port.open()?, &self.connect, config, irn).map_err(start_kv)
    }

    /// A session over 1RMA.
    ///
    /// # Errors
    /// The servers', or the port's.
    pub fn encrypted(&self, config: ClientConfig) -> Result<RmaSession> {
        ensure!(self.design == Design::Farm, "1RMA serves design farm: leave --design out");
        crate::rma::refuse_shm(&self.port)?;
        let servers = self.servers()?;
        RmaSession::connect(&self.port.open()?, &servers, config).map_err(start_kv)
    }

    fn servers(&self) -> Result<Vec<RmaServerAddress>> {
        let (credential, fingerprints) = (self.rma.credential(), &self.rma.fingerprint);
        let addresses: Vec<&str> = self.connect.split(',').collect();
        ensure!(
            !fingerprints.is_empty(),
            "--transport rma needs the server's --fingerprint: the server printed it"
        );
        ensure!(
            fingerprints.len() == 1 || fingerprints.len() == addresses.len(),
            "{} fingerprints for {} servers: give one for all, or one each",
            fingerprints.len(),
            addresses.len()
        );
        let credential = credential?;
        let server = |(number, text): (usize, &&str)| -> Result<RmaServerAddress> {
            let found: Option<SocketAddr> = text.to_socket_addrs().ok().and_then(|mut all| all.next());
            let address =
                found.with_context(|| format!("{text} is no host and TCP port, as 10.0.0.1:7471 is"))?;
            let fingerprint = *fingerprints.get(number).unwrap_or(&fingerprints[0]);
            Ok(RmaServerAddress { pin: Pin { address, fingerprint }, credential: credential.clone() })
        };
        addresses.iter().enumerate().map(server).collect()
    }
}

/// Calls a function with a session of the target's transport and design, and further arguments.
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
