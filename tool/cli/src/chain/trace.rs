//! `remora chain trace`: what each work request did.

use std::io::Write as _;

use anyhow::Result;
use remora_chain::{Change, Machine, Names, Segment, Step};
use remora_nic::wqe::{SLOT, Wqe};
use serde_json::{Value, json};

use super::run::failures;
use super::{Format, Start, page};

/// Steps through a program and writes what it did.
pub fn trace(start: &Start, format: Format) -> Result<()> {
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

/// A work request as text, by the copy that was executed.
pub fn said(step: &Step, machine: &Machine, names: &Names<'_>) -> String {
    if step.message {
        return format!("a message of {} bytes", Wqe::parse(&step.slot).len);
    }
    // What follows in further slots is not in the copy; it stands where it was posted.
    let wqe = Wqe::parse(&step.slot);
    let further = wqe.slots().unwrap_or(1).saturating_sub(1);
    let slots = u64::from(machine.program().queues[step.queue].ring_slots());
    let segment = Segment::Queue(step.queue);
    let more = (1..=further as u64).filter_map(|by| {
        let offset = (step.index + by) % slots * SLOT as u64;
        machine.read(remora_chain::Location { segment, offset }, SLOT)?.try_into().ok()
    });
    remora_chain::disassemble(&step.slot, &more.collect::<Vec<[u8; SLOT]>>(), names)
}

/// What a step is called.
pub fn place(step: &Step, machine: &Machine, names: &Names<'_>) -> String {
    if step.message {
        return format!("{}.received", machine.program().queues[step.queue].name);
    }
    let slots = u64::from(machine.program().queues[step.queue].ring_slots());
    names.work(step.queue, step.index % slots)
}

fn text(step: &Step, machine: &Machine, names: &Names<'_>) -> String {
    let mut text =
        format!("{:>5}  {:<14} {}", step.number, place(step, machine, names), said(step, machine, names));
    for change in &step.changes {
        text += &format!("\n         {}", changed(change, names));
    }
    text
}

/// A change as text: a header as such, what fills a word as a number, the rest by its length.
pub fn changed(change: &Change, names: &Names<'_>) -> String {
    let is_header =
        matches!(change.at.segment, Segment::Queue(_)) && change.at.offset.is_multiple_of(SLOT as u64);
    let show = |bytes: &[u8]| match <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes) {
        Ok(word) if is_header => remora_chain::header_text(word),
        Ok(word) => word.to_string(),
        Err(_) => format!("{} bytes", bytes.len()),
    };
    format!("{}: {} -> {}", names.called(change.at), show(&change.before), show(&change.after))
}

/// Chrome's trace events: each queue is a thread, each step lasts a microsecond.
fn chrome(steps: &[Step], machine: &Machine, names: &Names<'_>) -> Value {
    let queues = machine.program().queues.iter().enumerate();
    let mut events: Vec<_> = queues
        .map(|(at, queue)| {
            json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": at, "args": {"name": queue.name}})
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
