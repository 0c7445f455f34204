//! Arguments of `remora serve kv`.

use clap::Args;
use remora_options::device::PortArgs;
use remora_options::number::{natural, size, whole};
use remora_service::kv::{Design, Limits};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::conduct::Conduct;
use crate::designs;
use crate::rma::IdentityArgs;
use crate::transport::TransportName;

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
    pub(super) identity: IdentityArgs,
}

impl ServeArgs {
    /// Returns the limits for clients.
    pub(super) fn limits(&self) -> Limits {
        let ServeArgs { clients, max_key, max_value, .. } = *self;
        let record_len = (self.records > 0).then_some(self.value_len);
        let irn = self.transport == TransportName::Irn;
        Limits { clients, max_key, max_value, record_len, irn }
    }
}
