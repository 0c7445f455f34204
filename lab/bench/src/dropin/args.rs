//! Arguments of `remora bench dropin`.

use clap::Parser;
use remora_options::number::{natural, whole};
use remora_options::output::REPORT;
use std::path::PathBuf;

use crate::PortName;

/// Arguments of `remora bench dropin`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench dropin\n  remora bench dropin --rounds 9 --json > dropin.jsonl\n  remora bench dropin --port shm --only lat\n  remora bench dropin --libraries /usr/local/lib/remora\n  remora bench dropin --only veth\n\nCases: PORT/ib_read_lat/64, PORT/ib_send_lat/64, PORT/ib_write_bw/65536, PORT/ib_read_bw/65536,\nPORT/ib_write_bw/64/batch-16; veth/ucx/64, veth/libfabric/64, which need root. Over shm both programs have one address and a link.\nThe latency is perftest's typical one: the round trip of a READ, and half the round trip of a SEND. UCX and libfabric\nreport round trips. Build the libraries first: scripts/dropin --release. The JSON output contains every round."
)]
pub(crate) struct Args {
    /// Measure this port only: udp, or shm (through links between programs with one address).
    #[arg(long)]
    pub(super) port: Option<PortName>,
    /// Number of interleaved rounds; at least 5 for results to quote.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    pub(super) rounds: u32,
    /// Measure only cases whose path contains this text.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Folder of the libraries [default: REMORA_LIBRARY_PATH, or the output folder of `scripts/dropin`].
    #[arg(long, value_name = "FOLDER")]
    pub(super) libraries: Option<PathBuf>,
    /// Run 1/N of the messages of each round, for a quick look and not for results to quote.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=1000))]
    pub(super) part: u32,
    /// Folder for the plots.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    pub(super) report: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// CPU cores of the two sides [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    pub(super) cores: Vec<usize>,
}
