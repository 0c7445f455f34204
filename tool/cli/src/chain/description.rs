//! Describes the steps of a chain program as text.

use remora_chain::{Change, Machine, Names, Segment, Step};
use remora_nic::wqe::{SLOT, Wqe};

/// Returns the text of the work request that was executed, or of the message that arrived.
pub(crate) fn said(step: &Step, machine: &Machine, names: &Names<'_>) -> String {
    if step.message {
        return format!("a message of {} bytes", Wqe::parse(&step.slot).length());
    }
    // The step holds only the first slot. Further slots are read from the queue.
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

/// Returns the name of a step: its work request, or the queue's message.
pub(crate) fn place(step: &Step, machine: &Machine, names: &Names<'_>) -> String {
    if step.message {
        return format!("{}.received", machine.program().queues[step.queue].name);
    }
    let slots = u64::from(machine.program().queues[step.queue].ring_slots());
    names.work(step.queue, step.index % slots)
}

/// Returns a change as text. Headers are shown as verbs, words as numbers, and anything else by its length.
pub(crate) fn changed(change: &Change, names: &Names<'_>) -> String {
    let is_header =
        matches!(change.at.segment, Segment::Queue(_)) && change.at.offset.is_multiple_of(SLOT as u64);
    let show = |bytes: &[u8]| match <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes) {
        Ok(word) if is_header => remora_chain::header_text(word),
        Ok(word) => word.to_string(),
        Err(_) => format!("{} bytes", bytes.len()),
    };
    format!("{}: {} -> {}", names.called(change.at), show(&change.before), show(&change.after))
}
