//! `remora replay`: executes a recording on a NIC without a port, and prints the first difference.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::exit;

use anyhow::Result;
use clap::Parser;

use remora_host::{Difference, Report};
use remora_options::print;

/// Arguments of `remora replay`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora run --record run.rec -- ib_send_bw 127.0.0.1\n  remora replay run.rec\n\nThe exit code is 0 if the replay ends in the same frames, completions and counters, 1 after a difference, and 2 if the file is no\nrecording or is damaged. Payloads and the keys of 1RMA are not in the file; docs/guides/recording.md describes recordings."
)]
pub(crate) struct Args {
    /// Recording of `remora run --record` or REMORA_RECORD.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Exit code after a difference.
const DIFFERENT: i32 = 1;
/// Exit code for a file that is no recording or is damaged.
const DAMAGED: i32 = 2;

/// Runs `remora replay`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let opened = File::open(&args.file).map_err(Into::into);
    let replayed = opened.and_then(|file| remora_host::replay(BufReader::new(file)));
    let report = replayed.unwrap_or_else(|error| {
        eprintln!("error: {}: {error}", args.file.display());
        exit(DAMAGED)
    });
    print::line(summary(&report));
    match &report.difference {
        None => print::line("no difference: the replay ended in the same frames, completions and counters"),
        Some(difference) => {
            print::line(named(difference));
            exit(DIFFERENT)
        }
    }
    Ok(())
}

/// Returns the facts of a replay: one a line.
fn summary(report: &Report) -> String {
    let Report { header, events, tally, duration_ns, counters, end, .. } = report;
    let own = env!("CARGO_PKG_VERSION");
    let mut lines = vec![format!(
        "NIC {} over {}, recorded by remora {}, replayed by remora {own}",
        header.endpoint, header.port, header.version
    )];
    lines.push("not in the file: payloads, operands of atomics, keys of 1RMA".to_owned());
    lines.push(format!(
        "replayed: {events} events in {} of its time: {} commands, {} frames received, {} frames sent, {} completions",
        seconds(*duration_ns),
        tally.commands,
        tally.received,
        tally.sent,
        tally.completions
    ));
    let counted = counters.each().filter(|(_, _, value)| *value > 0);
    let counted: Vec<String> = counted.map(|(name, _, value)| format!("{name} {value}")).collect();
    if !counted.is_empty() {
        lines.push(format!("counters: {}", counted.join(", ")));
    }
    match end {
        _ if report.difference.is_some() => {}
        Some(end) => lines.push(format!("end of the recording: {end}")),
        None => {
            lines.push("the recording has no end: the program was killed, or it still runs".to_owned());
        }
    }
    lines.join("\n")
}

/// Returns the first difference as three lines.
fn named(difference: &Difference) -> String {
    let Difference { event, time, kind, qp, expected, found } = difference;
    let qp = qp.map_or(String::new(), |qp| format!(" of queue pair {qp}"));
    format!(
        "difference at event {event}, {}: {kind}{qp}\n  recorded: {expected}\n  replayed: {found}",
        seconds(time.0)
    )
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_with_its_event_its_time_and_both_sides() {
        let difference = Difference {
            event: 12,
            time: remora_host::Instant(1_020_000_003),
            kind: "completion",
            qp: None,
            expected: "one".to_owned(),
            found: "none".to_owned(),
        };
        let text = "difference at event 12, 1.020000003 s: completion\n  recorded: one\n  replayed: none";
        assert_eq!(named(&difference), text);
    }
}
