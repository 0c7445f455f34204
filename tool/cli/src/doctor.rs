//! `remora doctor`: what this machine can run, what is wrong with it, and how to mend that; who shares an
//! address; and what the counters of a running program say of 1RMA.

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
pub struct Args {
    /// Address that the udp port shall use, and that verbs programs share [default: the loopback interface's;
    /// programs share the one that the default route leaves from].
    #[arg(long)]
    address: Option<OwnAddress>,
    /// Network interface that the xdp port shall use: it is tried there, for a moment.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Address of a program's metrics endpoint. Its counters are read twice, a second apart: they say where
    /// the operations of 1RMA wait.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// `remora doctor`.
pub fn run(args: &Args) -> Result<()> {
    let own = args.address.unwrap_or_else(OwnAddress::loopback);
    let mut findings = examine(|port| own.at(port), args.interface.as_deref());
    // Verbs programs share this one if they are told no other.
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
            "{missing} of {} things that Remora can use are missing here; the table says how to mend them",
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

/// One JSON object; what needs no mending has no word about it.
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
