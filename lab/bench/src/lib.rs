//! Benchmarks and figures. Each result is compared with a lower bound or with a rival that ran in the same
//! run, in alternating rounds.
//!
//! | module | contents |
//! |---|---|
//! | [`kv`], [`block`], `txn` | the stores, compared with each other and with rivals |
//! | `verbs`, `rma`, `prism`, `redn`, `strom`, `loss`, `congestion` | the NIC's operations, and models of
//! them |
//! | `sim` | the speed of the simulator |
//! | `dropin` | unmodified verbs programs |
//! | [`figures`] | the figures of the papers |

#![cfg_attr(not(test), deny(clippy::print_stdout, reason = "a reader that leaves is no fault: `print`"))]

mod args;
mod bare;
pub mod block;
mod congestion;
mod curves;
mod dropin;
mod echo;
pub mod figures;
mod floor;
mod floor_xdp;
pub mod kv;
mod loss;
mod numbers;
pub mod options;
mod packets;
pub mod peer;
mod prism;
mod redn;
mod replay;
mod rma;
mod scale;
mod sim;
mod sockperf;
mod stack;
mod stream;
mod strom;
mod testbed;
mod txn;
mod usage;
mod verbs;

use remora_options::cores;

use anyhow::Result;
use remora_plot as plot;

use args::Own;
pub use args::{Args, Name};
pub use bare::Bare;
pub use remora_options::device::PortName;
pub use remora_store_cli::measure::{Report, Row, histogram, median, touch, typical, typical_of};
pub(crate) use scale::SHORTER;
use usage::{cpu_ns, resident_bytes};

/// Runs `remora bench`.
pub fn run(args: Args) -> Result<()> {
    if let Some(file) = &args.file {
        let replays = matches!(args.name, Some(Name::IrnReceiver | Name::IrnSender));
        anyhow::ensure!(
            replays,
            "only irn-receiver and irn-sender take a FILE: leave {} out",
            file.display()
        );
    }
    match args.name {
        Some(Name::IrnReceiver) => replay::receiver(&args),
        Some(Name::IrnSender) => replay::sender(&args),
        _ => rows(&args).map(drop),
    }
}

/// Runs a benchmark, prints its rows, and returns them for figures.
///
/// # Errors
/// The errors of the benchmark.
pub fn rows(args: &Args) -> Result<Vec<curves::Saved>> {
    // A benchmark pins this thread to one core, and the next one in this process needs two.
    let _affinity = cores::SavedAffinity::now()?;
    let mut report = Report::new(args.own.as_ref().map_or(args.json, Own::json));
    match (&args.own, args.name) {
        (Some(Own::Kv(own)), _) => own.measure(&mut report),
        (Some(Own::Block(own)), _) => own.measure(&mut report),
        (Some(Own::Txn(own)), _) => own.measure(&mut report),
        (Some(Own::Failure(own)), _) => own.measure(&mut report),
        (Some(Own::Rma(own)), _) => own.measure(&mut report),
        (Some(Own::Dropin(own)), _) => own.measure(&mut report),
        (None, Some(Name::Verbs)) => verbs::run(args, &mut report),
        (None, Some(Name::Loss)) => loss::run(args, &mut report),
        (None, Some(Name::Congestion)) => congestion::run(args, &mut report),
        (None, Some(Name::Sim)) => sim::run(args, &mut report),
        (None, Some(Name::Prism)) => prism::run(args, &mut report),
        (None, Some(Name::Redn)) => redn::run(args, &mut report),
        (None, Some(Name::Strom)) => strom::run(args, &mut report),
        (None, Some(Name::IrnReceiver | Name::IrnSender)) => anyhow::bail!("a replay has no rows"),
        (None, None) => anyhow::bail!("what is to be measured"),
    }?;
    report.finish();
    Ok(report.rows().iter().map(curves::Saved::from).collect())
}
