//! `remora chain run`: runs a program and prints its data.

use anyhow::{Context as _, Result, bail};
use remora_chain::{Location, Machine, RunEnd, Segment};
use serde_json::{Map, Value, json};

use super::start::Start;
use remora_options::print;

/// Runs a program and prints its data at the end.
pub(crate) fn run(start: &Start, show: &[String], json: bool) -> Result<()> {
    let mut machine = start.machine()?;
    let end = machine.run(start.budget);
    let data = if show.is_empty() { all(&machine) } else { some(&machine, show)? };
    let failures = failures(&machine);
    let ended = match (end, failures.is_empty()) {
        (_, false) => "failed",
        (RunEnd::Rest, true) => "rest",
        (RunEnd::Budget, true) => "budget",
    };
    if json {
        let data: Map<String, Value> =
            data.into_iter().map(|(name, words)| (name, Value::from(words))).collect();
        let object =
            json!({"end": ended, "executed": machine.executed(), "data": data, "failures": failures});
        print::line(object);
    } else {
        for (name, words) in data {
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            print::line(format_args!("{name} = {}", words.join(" ")));
        }
        let why = match ended {
            "budget" => "stopped by --budget before its end",
            "rest" => "nothing is left to do",
            _ => "a work request failed",
        };
        print::line(format_args!("{} work requests executed; {why}", machine.executed()));
    }
    if !failures.is_empty() {
        bail!("failed work requests: {}", failures.join("; "));
    }
    Ok(())
}

/// Returns the names of all data with their words, at most eight words of each.
fn all(machine: &Machine) -> Vec<(String, Vec<u64>)> {
    let sections = machine.program().sections.iter().enumerate().skip(1);
    let labels = sections.flat_map(|(index, section)| section.labels.iter().map(move |label| (index, label)));
    labels
        .map(|(index, label)| (label.name.clone(), words(machine, index, label.offset, label.len)))
        .collect()
}

fn words(machine: &Machine, section: usize, offset: u64, len: u64) -> Vec<u64> {
    let location = Location { segment: Segment::Section(section), offset };
    let bytes = machine.read(location, len.min(64) as usize).unwrap_or_default();
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

fn some(machine: &Machine, names: &[String]) -> Result<Vec<(String, Vec<u64>)>> {
    let word = |name: &String| {
        let word = machine
            .word(name)
            .with_context(|| format!("the program has no data word `{name}`: name one of its data"))?;
        Ok((name.clone(), vec![word]))
    };
    names.iter().map(word).collect()
}

/// Returns one line of text for each failed work request, with its place in the program.
pub(crate) fn failures(machine: &Machine) -> Vec<String> {
    let one = |failure: &remora_chain::Failure| {
        let queue = &machine.program().queues[failure.queue];
        let line = queue.works.iter().find(|work| work.slot == failure.slot).map_or(0, |work| work.line);
        let place = if line == 0 { String::new() } else { format!(" (line {line})") };
        format!("slot {} of {}{place}: {:?}", failure.slot, queue.name, failure.status)
    };
    machine.failures().iter().map(one).collect()
}
