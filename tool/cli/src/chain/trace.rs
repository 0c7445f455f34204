//! `remora chain trace`: prints the effect of each work request.

use std::io::Write as _;

use anyhow::Result;
use remora_chain::{Machine, Names, Step};
use serde_json::{Value, json};

use super::description::{changed, place, said};
use super::page;
use super::run::failures;
use super::start::{Format, Start};

/// Runs a program step by step and writes the trace.
pub(crate) fn trace(start: &Start, format: Format) -> Result<()> {
    let mut machine = start.machine()?;
    let first = page::before(&machine);
    let mut steps = Vec::new();
    while (steps.len() as u64) < start.budget
        && let Some(step) = machine.step()
    {
        steps.push(step);
    }
    let names = Names::new(machine.program(), machine.numbers());
    let mut out = std::io::stdout().lock();
    match format {
        Format::Text => {
            for step in &steps {
                writeln!(out, "{}", text(step, &machine, &names))?;
            }
            failures(&machine).iter().try_for_each(|failure| writeln!(out, "failed: {failure}"))?;
            writeln!(out, "{} work requests executed", steps.len())?;
        }
        Format::Chrome => writeln!(out, "{}", chrome(&steps, &machine, &names))?,
        Format::Html => writeln!(out, "{}", page::page(&start.file, &first, &steps, &machine, &names)?)?,
    }
    Ok(())
}

fn text(step: &Step, machine: &Machine, names: &Names<'_>) -> String {
    let mut text =
        format!("{:>5}  {:<14} {}", step.number, place(step, machine, names), said(step, machine, names));
    for change in &step.changes {
        text += &format!("\n         {}", changed(change, names));
    }
    text
}

/// Returns trace events in Chrome's format. Each queue is a thread, and each step lasts one microsecond.
fn chrome(steps: &[Step], machine: &Machine, names: &Names<'_>) -> Value {
    let queues = machine.program().queues.iter().enumerate();
    let mut events: Vec<_> = queues
        .map(|(index, queue)| {
            json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": index, "args": {"name": queue.name}})
        })
        .collect();
    for step in steps {
        let changes: Vec<_> = step.changes.iter().map(|change| changed(change, names)).collect();
        events.push(json!({
            "ph": "X", "name": said(step, machine, names), "pid": 1, "tid": step.queue, "ts": step.number, "dur": 1,
            "args": {"work request": place(step, machine, names), "changes": changes},
        }));
    }
    json!({"traceEvents": events, "displayTimeUnit": "ns"})
}
