//! Arguments of `remora figures`.

use clap::{Parser, ValueEnum};
use remora_options::device::PortName;
use remora_options::number::whole;
use remora_options::output::REPORT;
use std::path::PathBuf;

/// The figures that are drawn together.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Figures {
    /// PRISM, Figures 1 and 2: its operations, and a READ through a pointer over three networks.
    Prism,
    /// RedN, Figures 7, 8, 10, 11, 13, 14 and Tables 3 to 5: chains on modelled hardware; Figure 15: a reader
    /// next to writers.
    Redn,
    /// `StRoM`, Figures 5 and 7 to 13: kernels on modelled hardware and in this software.
    Strom,
    /// Goodput as a function of loss, with and without IRN.
    Loss,
    /// Two flows that share a bottleneck.
    Congestion,
    /// 1RMA, Figures 11, 12, 14, 15, 16a and 16b: load, isolation, key rotation, convergence and jitter, all
    /// simulated.
    Rma,
    /// IRN, Figures 1 to 10 and 12, and Table 1: IRN and RoCE, with and without pause frames, on 54 simulated
    /// hosts.
    Irn,
    /// PRISM, Figure 3: throughput and latency of reads, PRISM-KV and Pilaf.
    #[value(name = "3")]
    Three,
    /// PRISM, Figure 4: throughput and latency of 50 % reads and 50 % writes.
    #[value(name = "4")]
    Four,
    /// PRISM, Figure 6: throughput and latency of replicated blocks, PRISM-RS and ABDLOCK.
    #[value(name = "6")]
    Six,
    /// PRISM, Figure 7: latency of replicated blocks as a function of key skew, with 100 clients.
    #[value(name = "7")]
    Seven,
    /// PRISM, Figure 9: throughput and latency of transactions, PRISM-TX and FaRM.
    #[value(name = "9")]
    Nine,
    /// PRISM, Figure 10: peak throughput of transactions as a function of key skew.
    #[value(name = "10")]
    Ten,
    /// RedN, Figure 16: GETs while their server is killed and restarted.
    #[value(name = "16")]
    Sixteen,
}

/// Arguments of `remora figures`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora figures\n  remora figures prism --port udp\n  remora figures loss congestion --rounds 3\n  remora figures 3 4 --rows curves.jsonl\n  remora figures strom --rows strom.jsonl\n  remora figures irn --quick\n  remora figures irn --rounds 5\n\nEach figure states if it shows model time, simulated time or real time, and its numbers are printed."
)]
pub struct Args {
    /// The figures to draw [default: all].
    pub(super) ids: Vec<Figures>,
    /// Folder for the figures; `--report report` renews those that the repository keeps.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    pub(super) report: PathBuf,
    /// Use this port only in the figures that measure something.
    #[arg(long)]
    pub(super) port: Option<PortName>,
    /// Files with the JSON output of earlier measurements: `remora bench kv --curves --json` and `remora
    /// bench block --curves --json` for Figures 3, 4, 6 and 7, `remora bench txn ycsb-t --json` for Figures 9
    /// and 10, and `remora bench strom --json` for `strom` [default: a short measurement now].
    #[arg(long, value_name = "FILE")]
    pub(super) rows: Vec<PathBuf>,
    /// Number of interleaved rounds of each measurement.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    pub(super) rounds: u32,
    /// For `irn` only: run one seed with less load, and compare the signs of the results with the expected
    /// ones.
    #[arg(long)]
    pub(super) quick: bool,
    /// Number of simultaneous simulation runs of `irn` [default: one for each core].
    #[arg(long, value_parser = whole::<usize>(1..=256))]
    pub(super) jobs: Option<usize>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
}
