//! Arguments of `remora bench`.

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use remora_options::device::PortName;
use remora_options::number::{natural, whole};
use remora_options::output::REPORT;
use remora_store_cli::measure::{Report, Row};
use std::path::PathBuf;

/// The measurements without options of their own.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Latency, message rate and bandwidth of the verbs.
    Verbs,
    /// Goodput over links that lose frames: go-back-N, IRN, and IRN without each of its parts; simulated and
    /// over udp.
    Loss,
    /// PRISM's operations: the time on modelled hardware, and this software compared with the plain verbs.
    Prism,
    /// RedN's chains: the time on a modelled ConnectX-5, compared with the measurements of the paper.
    Redn,
    /// StRoM's kernels: the time on the paper's FPGAs, modelled; and walks, GETs, consistency checks,
    /// shuffles and counts in this software, each compared with the operations that it replaces.
    Strom,
    /// Two flows that share a bottleneck, with no congestion control, DCQCN and TIMELY; simulated.
    Congestion,
    /// The simulator: packet-hops per second on one core, and READs of a NIC pair.
    Sim,
    /// Replay a trace of arrivals through IRN's receiver; lines of `QP op-code PSN` after their number.
    IrnReceiver,
    /// Replay a trace of events through IRN's sender; lines of `QP 0`, `QP 1 cumPSN sackPSN nack` or `QP 2
    /// short`.
    IrnSender,
}

/// The measurements with options of their own.
#[derive(Subcommand)]
pub(super) enum Own {
    /// The key-value designs, compared with their lower bounds and with memcached and redis.
    Kv(crate::kv::bench::Args),
    /// Replicated blocks with 50 % writes: PRISM-RS and ABDLOCK with three replicas each, and etcd.
    Block(crate::block::bench::Args),
    /// Transactions: PRISM-TX and FaRM with YCSB-T, SmallBank and TATP.
    Txn(crate::txn::Args),
    /// GETs while their server is killed and restarted: with and without the NIC daemon, and of memcached.
    Failure(crate::kv::failure::Args),
    /// 1RMA's encrypted operations: latency and throughput compared with RC and with the cipher alone, short
    /// reads next to long ones, cold keys, incast, the software above the NIC, and key changes.
    Rma(crate::rma::Args),
    /// Unmodified programs on Remora's libraries: perftest compared with the native API, UCX and libfabric
    /// compared with TCP.
    Dropin(crate::dropin::Args),
}

impl Own {
    pub(super) fn json(&self) -> bool {
        match self {
            Own::Kv(own) => own.json,
            Own::Block(own) => own.json,
            Own::Txn(own) => own.json,
            Own::Failure(own) => own.json,
            Own::Rma(own) => own.json,
            Own::Dropin(own) => own.json,
        }
    }
}

/// Arguments of `remora bench`.
#[derive(Parser)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  remora bench verbs\n  remora bench verbs --port shm --rounds 9 --json > verbs.jsonl\n  remora bench verbs --only latency\n  sudo remora bench verbs --port xdp\n  remora bench irn-receiver arrivals.txt --out answers.txt\n  remora bench loss --json > loss.jsonl\n  remora bench congestion\n  remora bench sim --rounds 5\n  remora bench prism --port udp --json > prism.jsonl\n  remora bench redn\n  remora bench strom --only model:\n  remora bench strom --port udp --only check --json > strom.jsonl\n  remora bench block --port udp --rounds 5\n  remora bench kv --port shm\n  remora bench txn ycsb-t --port udp\n  remora bench failure\n  remora bench rma --port udp --json\n  remora bench dropin\n\nTwo processes run the measurement, each pinned to its own core. Rounds of a measurement and of its lower bound alternate, and the\nJSON output contains every round."
)]
pub struct Args {
    #[command(subcommand)]
    pub(super) own: Option<Own>,
    /// The measurement to run.
    #[arg(required = true)]
    pub(super) name: Option<Name>,
    /// The trace to replay.
    pub(super) file: Option<PathBuf>,
    /// Output file of the replay [default: standard output].
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// Maximum number of packets in flight in a replay of the sender.
    #[arg(long, default_value_t = 111, value_parser = whole::<u32>(1..=65_536))]
    pub(super) cap: u32,
    /// Number of packets: of the flow in a replay of the sender [default: endless], or of each side in
    /// `loss`.
    #[arg(long, value_parser = natural::<u64>)]
    pub(super) packets: Option<u64>,
    /// Folder for the plots of `loss`, `congestion`, `prism`, `redn` and `strom`.
    #[arg(long, default_value = REPORT, value_name = "FOLDER")]
    pub(super) report: PathBuf,
    /// Measure this port only; in `loss`, shm measures the cost of IRN without loss.
    #[arg(long)]
    pub port: Option<PortName>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// Number of interleaved rounds; at least 5 for results to quote.
    #[arg(long, default_value_t = 7, value_parser = whole::<u32>(1..=1000))]
    pub rounds: u32,
    /// Measure only cases whose path or metric contains this text.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// CPU cores of the two processes [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = natural::<usize>)]
    pub cores: Vec<usize>,
}

impl Args {
    pub(super) fn wants(&self, port: PortName) -> bool {
        self.port.is_none_or(|only| only == port)
    }

    /// Returns true if `--only` can select a case of a model. The cases of software begin with the name of a
    /// port.
    pub(super) fn wants_model(&self) -> bool {
        let only = self.only.as_deref().unwrap_or_default();
        PortName::value_variants().iter().all(|port| !only.starts_with(&format!("{}/", port.name())))
    }

    /// Returns whether `--only` selects this case.
    pub fn wants_case(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// Adds the rows that `--only` selects.
    pub(super) fn add_wanted(&self, report: &mut Report, rows: impl IntoIterator<Item = Row>) {
        let wanted = |row: &Row| self.wants_case(&format!("{}/{}", row.case, row.metric));
        rows.into_iter().filter(wanted).for_each(|row| report.add(row));
    }

    /// Checks that `--only` has selected at least one row.
    pub(super) fn check_found(&self, report: &Report) -> Result<()> {
        anyhow::ensure!(
            !report.is_empty(),
            "no case or metric contains {}: without --only all are run and named",
            self.only.as_deref().unwrap_or_default()
        );
        Ok(())
    }
}
