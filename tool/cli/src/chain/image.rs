//! `remora chain asm` and `remora chain disasm`: the bytes of a program, as a listing and as JSON.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use remora_chain::{Label, Names, Numbers, Program, Queue, QueueNumbers, Section, Work, layout, link};
use serde::{Deserialize, Serialize};

/// The bytes of a program with the names of their places, stored as JSON.
#[derive(Serialize, Deserialize)]
struct Image {
    sections: Vec<SectionImage>,
    queues: Vec<QueueImage>,
}

#[derive(Serialize, Deserialize)]
struct SectionImage {
    name: String,
    address: u64,
    bytes: String,
    labels: Vec<(String, u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct QueueImage {
    name: String,
    fetching: String,
    enabled: u64,
    ring: u32,
    address: u64,
    qp: u32,
    send_cq: u32,
    receive_cq: u32,
    slots: Vec<String>,
    labels: Vec<(String, u64)>,
}

/// Parses hexadecimal digits. White space is ignored.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    digits.len().is_multiple_of(2).then(|| pairs.collect())?
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs `remora chain asm`.
pub(crate) fn assemble(program: &Program, json: bool) -> Result<()> {
    let numbers = layout(program);
    let bytes = link(program, &numbers);
    let mut out = std::io::stdout().lock();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string(&image(program, &numbers, &bytes))?)?);
    }
    let names = Names::new(program, &numbers);
    for (index, (queue, slots)) in program.queues.iter().zip(&bytes.queues).enumerate() {
        let kind = fetching(queue);
        writeln!(out, "queue {} {kind}, {} slots of {}", queue.name, queue.posted(), queue.ring_slots())?;
        for work in &queue.works {
            let first = work.slot as usize;
            let text = remora_chain::disassemble(&slots[first], &slots[first + 1..], &names);
            writeln!(out, "{:>5}  {}  {text}", work.slot, names.work(index, work.slot))?;
            for slot in &slots[first..first + work.slots() as usize] {
                let words: Vec<_> = slot.chunks(8).map(digits).collect();
                writeln!(out, "         {}\n         {}", words[..4].join(" "), words[4..].join(" "))?;
            }
        }
    }
    Ok(())
}

/// Returns the keyword of the language for how a queue is fetched.
pub(crate) fn fetching(queue: &Queue) -> &'static str {
    match queue.fetching {
        remora_nic::Fetching::Posted => "posted",
        remora_nic::Fetching::Enabled => "managed",
        remora_nic::Fetching::Recycled => "recycled",
    }
}

fn image(program: &Program, numbers: &Numbers, bytes: &remora_chain::Image) -> Image {
    let section = |index: usize| {
        let section = &program.sections[index];
        let labels = section.labels.iter().map(|label| (label.name.clone(), label.offset, label.len));
        SectionImage {
            name: section.name.clone(),
            address: numbers.sections[index],
            bytes: digits(&bytes.sections[index]),
            labels: labels.collect(),
        }
    };
    let queue = |index: usize| {
        let queue = &program.queues[index];
        let numbers = &numbers.queues[index];
        let labels = queue.works.iter().filter_map(|work| Some((work.label.clone()?, work.slot)));
        QueueImage {
            name: queue.name.clone(),
            fetching: fetching(queue).into(),
            enabled: queue.enabled,
            ring: queue.ring_slots(),
            address: numbers.code,
            qp: numbers.qp,
            send_cq: numbers.send_cq,
            receive_cq: numbers.receive_cq,
            slots: bytes.queues[index].iter().map(|slot| digits(slot)).collect(),
            labels: labels.collect(),
        }
    };
    Image {
        sections: (0..program.sections.len()).map(section).collect(),
        queues: (0..program.queues.len()).map(queue).collect(),
    }
}

/// Runs `remora chain disasm`.
pub(crate) fn disassemble(text: &str) -> Result<()> {
    let image: Image = serde_json::from_str(text).context("not the output of `remora chain asm --json`")?;
    let (program, numbers) = names(&image)?;
    let names = Names::new(&program, &numbers);
    let mut out = std::io::stdout().lock();
    for queue in &image.queues {
        writeln!(out, "queue {} {} {}", queue.name, queue.fetching, queue.ring)?;
        let slots: Option<Vec<[u8; 64]>> =
            queue.slots.iter().map(|digits| bytes(digits)?.try_into().ok()).collect();
        let slots = slots.with_context(|| format!("a slot of {} is not 64 bytes", queue.name))?;
        let mut index = 0;
        while index < slots.len() {
            let label = queue.labels.iter().find(|(_, slot)| *slot == index as u64);
            let label = label.map_or(String::new(), |(name, _)| format!("{name}:"));
            writeln!(
                out,
                "  {label:<12}{}",
                remora_chain::disassemble(&slots[index], &slots[index + 1..], &names)
            )?;
            index += remora_nic::wqe::Wqe::parse(&slots[index]).slots().unwrap_or(1).max(1);
        }
    }
    Ok(())
}

/// Returns a program and numbers that have the names of the image, for disassembly.
fn names(image: &Image) -> Result<(Program, Numbers)> {
    let mut program = Program { sections: Vec::new(), queues: Vec::new() };
    let mut numbers = Numbers { key: 1, sections: Vec::new(), regions: Vec::new(), queues: Vec::new() };
    for section in &image.sections {
        let labels = section.labels.iter();
        let labels =
            labels.map(|(name, offset, len)| Label { name: name.clone(), offset: *offset, len: *len });
        let bytes = bytes(&section.bytes)
            .with_context(|| format!("the bytes of {} are not hexadecimal digits", section.name))?;
        let name = section.name.clone();
        program.sections.push(Section { name, bytes, labels: labels.collect(), ..Section::default() });
        numbers.sections.push(section.address);
        numbers.regions.push(None);
    }
    for queue in &image.queues {
        let mut named = Queue::new(&queue.name, remora_nic::Fetching::Posted);
        named.slots = queue.ring;
        let work = |(name, slot): &(String, u64)| Work { slot: *slot, ..Work::nop().named(name) };
        named.works = queue.labels.iter().map(work).collect();
        program.queues.push(named);
        let QueueImage { qp, send_cq, receive_cq, address, .. } = *queue;
        numbers.queues.push(QueueNumbers { qp, send_cq, receive_cq, code: address });
    }
    Ok((program, numbers))
}
