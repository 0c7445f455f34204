//! Arguments of `remora bench rma`.

use clap::Parser;
use remora_options::number::{natural, whole};

use crate::PortName;

/// Arguments of `remora bench rma`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora bench rma\n  remora bench rma --json > rma.jsonl\n  remora bench rma --port udp --rounds 9 --only read/64\n  remora bench rma --only rekey\n  remora bench rma --only rotate --rotate 60\n  remora bench rma --only software\n\nCases: crypto, PORT/read/64, PORT/write/64, PORT/read/64/window-128, PORT/read/4096/window-32, PORT/read/64/beside-4-MiB, udp/cold, udp/incast,\nsoftware/executor, software/commands, udp/rekey, udp/tenants, udp/rotate."
)]
pub(crate) struct Args {
    /// Measure this port only: shm or udp.
    #[arg(long)]
    pub(super) port: Option<PortName>,
    /// Number of interleaved rounds; at least 5 for results to quote.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    pub(super) rounds: u32,
    /// Measure only cases whose path contains this text.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Seconds of reads while a server changes its key every second.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = whole::<u32>(1..=86_400))]
    pub(super) rotate: u32,
    /// Run 1/N of the operations of each round, for a quick look and not for results to quote.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=1000))]
    pub(super) part: u32,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// CPU cores of the two processes [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    pub(super) cores: Vec<usize>,
}
