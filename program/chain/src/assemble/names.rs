//! Resolution of names to locations, numbers of queues, and counts.

use remora_nic::wqe::{SLOT, WqeOpcode, flag};

use super::Mistake;
use super::read::{AS_ITS_ENDS, Draft, Name, Use};
use crate::program::{FIELDS, Location, Program, Queue, Value, Work};

/// Replaces each use of a name by its location, queue or count.
pub(super) fn resolve(draft: Draft) -> Result<Program, Mistake> {
    let Draft { mut program, names, .. } = draft;
    for name in &names {
        resolve_one(&mut program, name)?;
    }
    let works = program.queues.iter_mut().flat_map(|queue| &mut queue.works);
    works.filter(|work| work.len == AS_ITS_ENDS).for_each(|work| work.len = 8);
    Ok(program)
}

fn resolve_one(program: &mut Program, name: &Name) -> Result<(), Mistake> {
    match name.used {
        Use::Queue(queue, work) => {
            let number = about(program, name)?;
            let received = name.text.ends_with(".received");
            let work = &mut program.queues[queue].works[work];
            work.remote = match (WqeOpcode(work.opcode), received) {
                (WqeOpcode::ENABLE, false) => Value::Qp(number),
                (WqeOpcode::WAIT, false) => Value::SendCq(number),
                (WqeOpcode::WAIT, true) => Value::ReceiveCq(number),
                _ => return fault(name, "an ENABLE names a queue: remove `.received`"),
            };
        }
        Use::Count(queue, work) => {
            let count = match program.queues[queue].works[work].remote {
                Value::Qp(other) => slots_up_to(&program.queues[other], name)?,
                Value::SendCq(other) => completions_up_to(&program.queues[other], name)?,
                _ => return fault(name, "the count of received messages must be a number"),
            };
            program.queues[queue].works[work].swap_add = Value::Number(count);
        }
        Use::Enabled(queue) => {
            program.queues[queue].enabled = slots_up_to(&program.queues[queue], name)?;
        }
        _ => place_it(program, name)?,
    }
    Ok(())
}

fn fault<T>(name: &Name, description: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake { line: name.line, column: name.column, what: description.into() })
}

/// Returns the queue that a WAIT or ENABLE names.
fn about(program: &Program, name: &Name) -> Result<usize, Mistake> {
    let queue = name.text.strip_suffix(".received").unwrap_or(&name.text);
    match program.queue(queue) {
        Some(number) => Ok(number),
        None => fault(name, format!("there is no queue `{queue}`")),
    }
}

/// Returns the index of a label's work request in a queue; `all` denotes the last one.
fn position(queue: &Queue, name: &Name) -> Result<usize, Mistake> {
    let last = queue.works.len().checked_sub(1).filter(|_| name.text == "all");
    let labelled = || queue.works.iter().position(|work| work.label.as_deref() == Some(&name.text));
    match last.or_else(labelled) {
        Some(index) => Ok(index),
        None => fault(name, format!("queue `{}` has no work request `{}`", queue.name, name.text)),
    }
}

fn slots_up_to(queue: &Queue, name: &Name) -> Result<u64, Mistake> {
    let work = &queue.works[position(queue, name)?];
    Ok(work.slot + work.slots() + name.further)
}

fn completions_up_to(queue: &Queue, name: &Name) -> Result<u64, Mistake> {
    let index = position(queue, name)?;
    if name.text != "all" && queue.works[index].flags & flag::SIGNALED == 0 {
        return fault(name, format!("`{}` is not signaled: no WAIT can count it", name.text));
    }
    Ok(queue.signaled(index + 1) + name.further)
}

/// Returns the location of a name, and the length of its field or label in bytes.
fn place(program: &Program, name: &Name) -> Result<(Location, u64), Mistake> {
    let (label, field) = match name.text.split_once('.') {
        Some((label, field)) => (label, Some(field)),
        None => (name.text.as_str(), None),
    };
    let Some((place, len)) = program.find(label) else {
        return fault(name, format!("nothing is called `{label}`"));
    };
    let Some(field) = field else { return Ok((place + name.further, len)) };
    let is_code = matches!(place.segment, crate::program::Segment::Queue(_));
    let entry = FIELDS.iter().find(|known| known.name == field).filter(|_| is_code);
    let Some(entry) = entry else {
        let all: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        let description = if is_code {
            format!("a work request has no `{field}`, but: {}", all.join(" "))
        } else {
            format!("`{label}` is data, which has no fields: write `{label}+8`")
        };
        return fault(name, description);
    };
    Ok((place + entry.offset + name.further, entry.len))
}

fn place_it(program: &mut Program, name: &Name) -> Result<(), Mistake> {
    let (place, len) = place(program, name)?;
    let value = Value::At(place);
    let work = |queue: usize, work: usize, program: &mut Program, put: &dyn Fn(&mut Work)| {
        put(&mut program.queues[queue].works[work]);
    };
    // A copy from a field or word has its length by default; a longer source needs an explicit length.
    let short = |work: &mut Work| {
        if work.len == AS_ITS_ENDS && len < 8 && len > 0 {
            work.len = len;
        }
    };
    match name.used {
        Use::Word(section, offset) => program.sections[section].values.push((offset, value)),
        Use::Piece(queue, receive, piece) => {
            let piece = &mut program.queues[queue].receives[receive][piece];
            piece.at = place;
            if piece.len == u32::MAX {
                piece.len = if len > SLOT as u64 { 8 } else { len as u32 };
            }
        }
        Use::More(queue, index, piece) => work(queue, index, program, &|work| work.more[piece].at = place),
        Use::Local(queue, index) => work(queue, index, program, &|work| {
            work.local = value;
            short(work);
        }),
        Use::Remote(queue, index) => work(queue, index, program, &|work| {
            work.remote = value;
            short(work);
        }),
        Use::Compare(queue, index) => work(queue, index, program, &|work| work.compare = value),
        Use::Swap(queue, index) => work(queue, index, program, &|work| work.swap_add = value),
        Use::Queue(..) | Use::Count(..) | Use::Enabled(..) => {}
    }
    Ok(())
}
