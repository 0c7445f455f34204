//! `remora doctor`: examines what this machine can run and how to repair what it lacks, the broker of an
//! address, and the 1RMA counters of a running program.

mod broker;
mod program;

use anyhow::{Result, bail};
use clap::Parser;
use remora_options::device::OwnAddress;
use remora_options::print;
use remora_options::print_table;
use remora_verbs::doctor::{Finding, Verdict, examine};
use serde::Serialize;

/// Arguments of `remora doctor`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora doctor\n  remora doctor --address 10.0.0.1\n  sudo remora doctor --interface eth0\n  remora doctor --metrics 127.0.0.1:9464\n  remora doctor --json\n\nEnds with status 1 if something that Remora needs is missing."
)]
pub(crate) struct Args {
    /// Address for the udp port and for verbs programs [default: the loopback address for the udp port, the
    /// source address of the default route for verbs programs].
    #[arg(long)]
    address: Option<OwnAddress>,
    /// Network interface on which to open an xdp port as a test [default: list interfaces and their drivers
    /// only].
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Metrics endpoint of a running program. Its counters are read twice, one second apart, and show where
    /// 1RMA operations wait [default: no program is examined].
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Print one JSON object per finding, one on each line.
    #[arg(long)]
    json: bool,
}

/// Runs `remora doctor`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let own = args.address.unwrap_or_else(OwnAddress::loopback);
    let mut findings = examine(|port| own.at(port), args.interface.as_deref());
    // Verbs programs use this address unless they are configured otherwise.
    let shared = args.address.map_or_else(remora_broker::client::default_address, |own| own.at(0));
    broker::examine(shared, &mut findings);
    if let Some(address) = &args.metrics {
        findings.extend(program::examine(address)?);
    }
    if args.json {
        for finding in &findings {
            print::line(json_line(finding)?);
        }
    } else {
        let cells =
            |f: &Finding| [f.what.to_owned(), name(f.verdict).to_owned(), f.found.clone(), f.mend.to_owned()];
        print_table(["what", "verdict", "found", "how to mend it"], findings.iter().map(cells));
    }
    let missing = findings.iter().filter(|finding| finding.verdict == Verdict::Missing).count();
    if missing > 0 {
        bail!(
            "{missing} of {} features that Remora uses are missing; the table says how to enable them",
            findings.len()
        );
    }
    Ok(())
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Limited => "limited",
        Verdict::Missing => "missing",
    }
}

/// The JSON form of a finding. `mend` is left out if nothing needs repair.
#[derive(Serialize)]
struct Line<'a> {
    what: &'a str,
    verdict: &'a str,
    found: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    mend: &'a str,
}

fn json_line(Finding { what, verdict, found, mend }: &Finding) -> Result<String> {
    Ok(serde_json::to_string(&Line { what, verdict: name(*verdict), found, mend })?)
}
