//! Renders a trace as an HTML page that shows the queues step by step. The page loads no other resources.

use std::path::Path;

use anyhow::Result;
use remora_chain::{Label, Location, Machine, Names, Segment, Step};
use remora_nic::wqe::SLOT;
use serde_json::{Value, json};

use super::description::{changed, place, said};
use super::image::fetching;

/// Bytes of a program's memory: one element for each section, then one for each queue.
pub(crate) type Memory = Vec<Vec<u8>>;

/// Maximum number of characters of a text that are shown.
const TEXT: usize = 48;

const FRAME: &str = include_str!("page.html");

/// Returns the memory before the first step.
pub(crate) fn before(machine: &Machine) -> Memory {
    let program = machine.program();
    let section = |index: usize| (Segment::Section(index), program.sections[index].bytes.len());
    let queue = |index: usize| (Segment::Queue(index), program.queues[index].ring_slots() as usize * SLOT);
    let segments = (0..program.sections.len()).map(section).chain((0..program.queues.len()).map(queue));
    segments
        .map(|(segment, len)| machine.read(Location { segment, offset: 0 }, len).unwrap_or_default())
        .collect()
}

/// Returns the HTML page of a trace.
pub(crate) fn page(
    file: &Path,
    first: &Memory,
    steps: &[Step],
    machine: &Machine,
    names: &Names<'_>,
) -> Result<String> {
    let mut memory = first.clone();
    let program = machine.program();
    let sections = program.sections.len();
    let queues = program.queues.iter().enumerate().map(|(index, queue)| {
        let slots: Vec<_> = queue
            .works
            .iter()
            .map(|work| {
                let text = slot(&memory[sections + index], work.slot, names);
                json!({"slot": work.slot, "label": work.label, "line": work.line, "text": text})
            })
            .collect();
        json!({"name": queue.name, "kind": fetching(queue), "ring": queue.ring_slots(), "slots": slots})
    });
    let queues: Vec<Value> = queues.collect();
    let data: Vec<Value> = (1..sections)
        .flat_map(|index| program.sections[index].labels.iter().map(move |label| (index, label)))
        .map(|(index, label)| json!({"name": label.name, "value": content(&memory[index], label)}))
        .collect();
    let steps: Vec<Value> = steps.iter().map(|step| frame(step, &mut memory, machine, names)).collect();
    let title = file.file_name().map_or("chain".into(), |name| name.to_string_lossy().into_owned());
    let all = json!({"title": title, "queues": queues, "data": data, "steps": steps});
    // `<` is escaped so that no text of the program can end the script element.
    let all = serde_json::to_string(&all)?.replace('<', "\\u003c");
    Ok(FRAME.replace("{trace}", &all))
}

fn frame(step: &Step, memory: &mut Memory, machine: &Machine, names: &Names<'_>) -> Value {
    let program = machine.program();
    let sections = program.sections.len();
    let mut rewritten = Vec::new();
    let mut words = Vec::new();
    let mut changes = Vec::new();
    for change in &step.changes {
        let offset = change.at.offset as usize;
        let number = match change.at.segment {
            Segment::Section(number) => number,
            Segment::Queue(number) => sections + number,
        };
        memory[number][offset..offset + change.after.len()].copy_from_slice(&change.after);
        changes.push(changed(change, names));
        if let Segment::Queue(queue) = change.at.segment {
            let index = change.at.offset / SLOT as u64;
            let text = slot(&memory[number], index, names);
            rewritten.push(json!({"queue": queue, "slot": index, "text": text}));
        }
    }
    for (number, section) in program.sections.iter().enumerate().skip(1) {
        for label in &section.labels {
            let range = label.offset..label.offset + label.len.max(1);
            let touched = step.changes.iter().any(|change| {
                let end = change.at.offset + change.after.len() as u64;
                change.at.segment == Segment::Section(number)
                    && change.at.offset < range.end
                    && range.start < end
            });
            if touched {
                words.push(json!({"name": label.name, "value": content(&memory[number], label)}));
            }
        }
    }
    let ring = u64::from(program.queues[step.queue].ring_slots());
    json!({
        "queue": step.queue, "slot": if step.message { Value::Null } else { json!(step.index % ring) }, "place": place(step, machine, names),
        "text": said(step, machine, names), "failed": step.failed,
        "changes": changes, "rewritten": rewritten, "data": words,
    })
}

fn slot(bytes: &[u8], index: u64, names: &Names<'_>) -> String {
    let slots: Vec<[u8; SLOT]> = bytes[index as usize * SLOT..]
        .chunks_exact(SLOT)
        .take(16)
        .filter_map(|slot| slot.try_into().ok())
        .collect();
    slots.split_first().map_or(String::new(), |(first, more)| remora_chain::disassemble(first, more, names))
}

/// Returns the content of a label: a text if it looks like one, otherwise its first word in decimal. The
/// word is a string because JavaScript's numbers have 53 bits.
fn content(section: &[u8], label: &Label) -> String {
    let all = &section[label.offset as usize..][..label.len as usize];
    let text = all.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.len() > 8 && text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return format!("\"{}\"", String::from_utf8_lossy(&text[..text.len().min(TEXT)]));
    }
    let mut word = [0; 8];
    let len = all.len().min(8);
    word[..len].copy_from_slice(&all[..len]);
    u64::from_le_bytes(word).to_string()
}
