//! Verification of barriers. A change of a work request takes effect only if the NIC fetches the request
//! afterwards, so a WAIT and an ENABLE must follow the change. A fenced ENABLE also suffices if a READ or an
//! atomic of the same queue makes the change.

use remora_nic::Fetching;
use remora_nic::wqe::{SLOT, WqeOpcode, flag};

use super::{Verifier, targets};
use crate::program::{Segment, Value};

impl Verifier<'_> {
    /// Checks that a WAIT and an ENABLE separate a work request from another that it changes.
    pub(super) fn barrier(&mut self, queue: usize, index: usize) {
        for (value, len) in targets(self.work(queue, index)) {
            let Value::At(place) = value else { continue };
            let Segment::Queue(changed) = place.segment else { continue };
            let slots = place.offset / SLOT as u64..(place.offset + len).div_ceil(SLOT as u64);
            if let Some(description) = self.without(queue, index, changed, &slots) {
                self.fault(queue, index, description);
            }
        }
    }

    /// Returns the reason why a change of these slots may not take effect, or `None`.
    fn without(
        &self,
        queue: usize,
        index: usize,
        changed: usize,
        slots: &std::ops::Range<u64>,
    ) -> Option<String> {
        let about = &self.program.queues[changed];
        let own = self.work(queue, index).slot;
        if about.fetching == Fetching::Posted {
            return Some(format!(
                "it changes {}, which is posted: make it managed, and enable it behind a WAIT",
                about.name
            ));
        }
        // In a recycled queue, a change of slots that were already executed or fetched is for the next
        // round.
        if about.fetching == Fetching::Recycled && (changed == queue || slots.end <= about.enabled) {
            return None;
        }
        if changed == queue && slots.start <= own {
            return Some(
                "it changes a work request that was already executed, in a queue that runs once".into(),
            );
        }
        if slots.start < about.enabled {
            let name = &about.name;
            return Some(format!(
                "it changes slot {} of {name}, which is enabled from the start: it has been fetched",
                slots.start
            ));
        }
        let works = &self.program.queues[queue].works;
        let covers = |index: usize| {
            let work = &works[index];
            let count = if let Value::Number(count) = work.swap_add { count } else { 0 };
            let here = WqeOpcode(work.opcode) == WqeOpcode::ENABLE && work.remote == Value::Qp(changed);
            here && (count > slots.start || self.is_rewritten(queue, index, "count"))
        };
        if let Some(early) = (0..index).find(|before| covers(*before) && about.fetching == Fetching::Enabled)
        {
            let slot = works[early].slot;
            return Some(format!("it changes what slot {slot} has enabled before: it has been fetched"));
        }
        let Some(enable) = (index + 1..works.len()).find(|behind| covers(*behind)) else {
            return self.is_enabled_elsewhere(queue, changed).then_some(()).map_or_else(
                || {
                    Some(format!(
                        "it changes slot {} of {}, and no ENABLE stands behind it",
                        slots.start, about.name
                    ))
                },
                |()| None,
            );
        };
        // A fence waits only for READs and atomics.
        let opcode = WqeOpcode(works[index].opcode);
        let fetches = !matches!(opcode, WqeOpcode::WRITE | WqeOpcode::WRITE_IMM | WqeOpcode::SEND);
        let fenced = fetches && works[enable].flags & flag::FENCE != 0;
        let waits =
            fenced || works[index + 1..enable].iter().any(|work| WqeOpcode(work.opcode) == WqeOpcode::WAIT);
        let description = || {
            format!("no WAIT stands between it and the ENABLE in slot {}, and no fence", works[enable].slot)
        };
        (!waits).then(description)
    }

    /// Returns true if another queue, or an ENABLE that is rewritten at run time, may enable the queue.
    fn is_enabled_elsewhere(&self, queue: usize, changed: usize) -> bool {
        let mut all = self.program.queues.iter().enumerate().flat_map(|(number, other)| {
            other.works.iter().enumerate().map(move |(index, work)| (number, index, work))
        });
        all.any(|(number, index, work)| {
            WqeOpcode(work.opcode) == WqeOpcode::ENABLE
                && (number != queue && work.remote == Value::Qp(changed)
                    || self.is_rewritten(number, index, "remote"))
        })
    }
}
