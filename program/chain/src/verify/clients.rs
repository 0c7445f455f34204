//! Verification of clients' messages, which may change operands but never targets or op-codes.

use remora_nic::wqe::{SLOT, WqeOpcode};

use super::{Severity, Verifier, overlaps, sources, targets};
use crate::program::{FIELDS, Location, Segment, Value};

/// Fields that a client must not control, with the reason.
const SACRED: [(&str, &str); 6] = [
    ("opcode", "what it does"),
    ("flags", "whether it is signaled"),
    ("local", "where it takes its bytes from, or puts them"),
    ("length", "how many bytes it moves"),
    ("keys", "by which right it moves them"),
    ("remote", "where it goes"),
];

impl Verifier<'_> {
    /// Checks the locations to which the messages of a queue are scattered.
    pub(super) fn clients(&mut self, queue: usize) {
        let pieces: Vec<_> = self.program.queues[queue].receives.iter().flatten().copied().collect();
        for piece in pieces {
            let len = u64::from(piece.len);
            let limit = self.len_of(piece.at.segment);
            if piece.at.offset + len > limit {
                let description = format!(
                    "a message goes {} bytes behind the region granted",
                    piece.at.offset + len - limit
                );
                self.find(Severity::Fault, queue, None, description);
                continue;
            }
            match piece.at.segment {
                Segment::Queue(code) => self.injected(queue, code, piece.at, len),
                Segment::Section(_) => self.given(queue, piece.at, len),
            }
        }
    }

    /// Checks a piece of a message that is scattered into work requests.
    fn injected(&mut self, queue: usize, code: usize, location: Location, len: u64) {
        for work in 0..self.program.queues[code].works.len() {
            let place = self.place(code, work);
            if !overlaps(location, len, place, SLOT as u64) {
                continue;
            }
            let (label, opcode) = {
                let work = self.work(code, work);
                let name = work.label.clone();
                (name.unwrap_or_else(|| format!("slot {}", work.slot)), WqeOpcode(work.opcode))
            };
            for (name, why) in SACRED {
                let field = FIELDS
                    .iter()
                    .find(|field| field.name == name)
                    .expect("sacred fields are fields of a work request");
                if !overlaps(location, len, place + field.offset, field.len) {
                    continue;
                }
                if let Some(region) = self.read_from(code, work).filter(|_| name == "remote") {
                    let description = format!("a client says what {label} reads, within the region {region}");
                    self.find(Severity::Notice, queue, None, description);
                    continue;
                }
                let description = format!("a client may change the {name} of {label}: {why}");
                self.find(Severity::Fault, queue, None, description);
            }
            let counts = matches!(opcode, WqeOpcode::WAIT | WqeOpcode::ENABLE);
            if counts && overlaps(location, len, place + 48, 8) {
                let description = format!("a client may change the count of {label}: how far a queue runs");
                self.find(Severity::Fault, queue, None, description);
            }
        }
    }

    /// Returns the region that a READ accesses. The region's key protects all other memory, whatever the
    /// address.
    fn read_from(&self, queue: usize, work: usize) -> Option<String> {
        let work = self.work(queue, work);
        let Value::At(Location { segment: Segment::Section(index), .. }) = work.remote else { return None };
        let section = &self.program.sections[index];
        (section.given && WqeOpcode(work.opcode) == WqeOpcode::READ).then(|| section.name.clone())
    }

    /// Reports addresses that are copied from a piece of a message in a section, because the client controls
    /// them.
    fn given(&mut self, queue: usize, location: Location, len: u64) {
        let queues = self.program.queues.iter().enumerate();
        let works =
            queues.flat_map(|(number, queue)| (0..queue.works.len()).map(move |index| (number, index)));
        let mut notices = Vec::new();
        for (number, index) in works {
            let work = self.work(number, index);
            let taken = sources(work).into_iter().any(
                |(value, bytes)| matches!(value, Value::At(source) if overlaps(source, bytes, location, len)),
            );
            if !taken {
                continue;
            }
            for (value, bytes) in targets(work) {
                let Value::At(target) = value else { continue };
                let Segment::Queue(_) = target.segment else { continue };
                let slot = Location { offset: target.offset / SLOT as u64 * SLOT as u64, ..target };
                let touched = SACRED[2..].iter().find(|(name, _)| {
                    let field = FIELDS
                        .iter()
                        .find(|field| field.name == *name)
                        .expect("sacred fields are fields of a work request");
                    overlaps(target, bytes, slot + field.offset, field.len)
                });
                if let Some((name, why)) = touched {
                    notices.push((
                        number,
                        index,
                        format!("a client says the {name} that this copies: {why}"),
                    ));
                }
            }
        }
        for (number, index, description) in notices {
            self.find(
                Severity::Notice,
                number,
                Some(index),
                format!("{description} (a message to {})", self.program.queues[queue].name),
            );
        }
    }
}
