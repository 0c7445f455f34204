//! Arguments of `remora bench failure`.

use clap::Parser;
use remora_options::device::PortName;
use remora_options::number::{seconds, whole};
use remora_options::output::REPORT;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Arguments of `remora bench failure`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench failure\n  remora bench failure --port udp --records 100000 --json"
)]
pub struct Args {
    /// Port of the NICs: shm or udp.
    #[arg(long, default_value = "shm")]
    pub(super) port: PortName,
    /// Number of records in each table.
    #[arg(long, default_value_t = 100_000, value_parser = whole::<u64>(1..=10_000_000))]
    pub(super) records: u64,
    /// Length of each record's value in bytes.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(16..=65_536))]
    pub(super) value_len: u32,
    /// Seconds of load before the server is killed, and again after it has restarted.
    #[arg(long, default_value_t = 2.0, value_parser = seconds(0.0..=86_400.0))]
    pub(super) seconds: f64,
    /// Number of times that each server is killed.
    #[arg(long, default_value_t = 3, value_parser = whole::<u32>(1..=1000))]
    pub(super) rounds: u32,
    /// Folder for Figure 16.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    pub(super) report: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run as the server whose chains the daemon at this path executes.
    #[arg(long, hide = true, value_name = "PATH", requires = "listen")]
    pub(super) serve: Option<PathBuf>,
    /// The address at which that server listens.
    #[arg(long, hide = true)]
    pub(super) listen: Option<SocketAddr>,
}
