//! Arguments of `remora demo`.

use clap::Parser;
use remora_options::device::PortName;
use remora_options::number::whole;
use remora_options::output::REPORT;
use std::path::PathBuf;

use crate::transport::TransportName;

/// Arguments of `remora demo`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora demo\n  remora demo --records 100000 --gets 10000 --value-len 64,1024\n  remora demo --port udp --json\n  remora demo --port udp --transport rc,rma\n\nThe server process and this process have a core each. Every value that is read is checked. The report page loads no external files."
)]
pub struct Args {
    /// Records in the table; fewer if their values would take more than 256 MiB.
    #[arg(long, default_value_t = 1_000_000, value_parser = whole::<u64>(1..=100_000_000))]
    pub(super) records: u64,
    /// Value length in bytes; several lengths give several tables.
    #[arg(long, default_value = "64,4096", value_delimiter = ',', value_parser = whole::<u32>(16..=65536))]
    pub(super) value_len: Vec<u32>,
    /// Number of single GETs for each line of the table, and of GETs in groups of four.
    #[arg(long, default_value_t = 50_000, value_parser = whole::<u64>(1000..=100_000_000))]
    pub(super) gets: u64,
    /// Measure only this port [default: all ports that work here].
    #[arg(long)]
    pub(super) port: Option<PortName>,
    /// Run over these transports only; irn and rma apply to design farm over port udp or xdp.
    #[arg(long, value_delimiter = ',', default_value = "rc,irn,rma")]
    pub(super) transport: Vec<TransportName>,
    /// Folder for the report page, `index.html`, with its table and plots.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    pub(super) report: PathBuf,
    /// Print one JSON object per line, and write no page.
    #[arg(long, conflicts_with = "report")]
    pub(super) json: bool,
}

/// The maximum size of all values together in bytes.
pub(super) const VALUES: u64 = 256 << 20;

impl Args {
    /// Returns the number of records with values of this length.
    pub(super) fn records_of(&self, value_len: u32) -> u64 {
        self.records.min(VALUES / u64::from(value_len))
    }
}
