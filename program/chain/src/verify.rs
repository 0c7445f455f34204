//! Static verification of a program: accesses outside its memory, counts that are never reached, and changes
//! of work requests without a barrier. Also reports the fields that a client's message can change.

mod barriers;
mod clients;

use remora_nic::Fetching;
use remora_nic::wqe::{SLOT, WqeOpcode};

use crate::program::{FIELDS, Location, Program, Segment, Value, Work};

/// Severity of a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An error in the program.
    Fault,
    /// A correct program, but a fact that the author should know.
    Notice,
}

/// A result of the verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity of a finding.
    pub severity: Severity,
    /// Index of the queue.
    pub queue: usize,
    /// Index of the work request; `None` for a finding about the queue.
    pub work: Option<usize>,
    /// Line of the program text, or 0 if there is no text.
    pub line: u32,
    /// Description in one sentence.
    pub what: String,
}

/// Verifies a program and returns the findings, faults first.
pub fn verify(program: &Program) -> Vec<Finding> {
    let mut verifier = Verifier { program, writes: writes(program), findings: Vec::new() };
    for queue in 0..program.queues.len() {
        for work in 0..program.queues[queue].works.len() {
            verifier.one(queue, work);
            verifier.barrier(queue, work);
        }
        verifier.enabled(queue);
        verifier.clients(queue);
    }
    verifier.findings.sort_by_key(|finding| (finding.severity, finding.queue, finding.work));
    verifier.findings
}

/// A range of a program's memory that a work request or a message changes.
struct Written {
    place: Location,
    len: u64,
}

struct Verifier<'p> {
    program: &'p Program,
    writes: Vec<Written>,
    findings: Vec<Finding>,
}

/// Returns the writes whose target is known before the program runs.
fn writes(program: &Program) -> Vec<Written> {
    let mut all = Vec::new();
    for queue in &program.queues {
        for work in &queue.works {
            for (value, len) in targets(work) {
                if let Value::At(place) = value {
                    all.push(Written { place, len });
                }
            }
        }
        for piece in queue.receives.iter().flatten() {
            all.push(Written { place: piece.at, len: u64::from(piece.len) });
        }
    }
    all
}

/// Returns the ranges that a work request changes, when executed or when woken and executed.
fn targets(work: &Work) -> Vec<(Value, u64)> {
    match WqeOpcode(work.opcode) {
        WqeOpcode::WRITE | WqeOpcode::WRITE_IMM => vec![(work.remote, work.len + more(work))],
        WqeOpcode::READ => list(work),
        opcode if is_atomic(opcode) => vec![(work.remote, 8), (work.local, 8)],
        _ => Vec::new(),
    }
}

/// Returns the total length of the list after the first piece.
fn more(work: &Work) -> u64 {
    work.more.iter().map(|piece| u64::from(piece.len)).sum()
}

/// Returns the local pieces of a work request.
fn list(work: &Work) -> Vec<(Value, u64)> {
    let rest = work.more.iter().map(|piece| (Value::At(piece.at), u64::from(piece.len)));
    std::iter::once((work.local, work.len)).chain(rest).collect()
}

/// Returns the ranges that a work request reads.
fn sources(work: &Work) -> Vec<(Value, u64)> {
    match WqeOpcode(work.opcode) {
        WqeOpcode::WRITE | WqeOpcode::WRITE_IMM | WqeOpcode::SEND if work.inline.is_empty() => list(work),
        WqeOpcode::READ => vec![(work.remote, work.len + more(work))],
        _ => Vec::new(),
    }
}

fn is_atomic(opcode: WqeOpcode) -> bool {
    matches!(opcode, WqeOpcode::COMPARE_SWAP | WqeOpcode::FETCH_ADD) || opcode.is_calculation()
}

fn overlaps(place: Location, len: u64, other: Location, other_len: u64) -> bool {
    place.segment == other.segment
        && place.offset < other.offset + other_len
        && other.offset < place.offset + len
}

impl Verifier<'_> {
    fn find(&mut self, severity: Severity, queue: usize, work: Option<usize>, description: String) {
        let line = work.map_or(0, |work| self.program.queues[queue].works[work].line);
        self.findings.push(Finding { severity, queue, work, line, what: description });
    }

    fn fault(&mut self, queue: usize, work: usize, description: String) {
        self.find(Severity::Fault, queue, Some(work), description);
    }

    fn work(&self, queue: usize, work: usize) -> &Work {
        &self.program.queues[queue].works[work]
    }

    /// Returns the location of a work request.
    fn place(&self, queue: usize, work: usize) -> Location {
        Location { segment: Segment::Queue(queue), offset: self.work(queue, work).slot * SLOT as u64 }
    }

    /// Returns true if a field of a work request may change while the program runs.
    fn is_rewritten(&self, queue: usize, work: usize, field: &str) -> bool {
        let Some(field) = FIELDS.iter().find(|known| known.name == field) else { return false };
        let place = self.place(queue, work) + field.offset;
        self.writes.iter().any(|written| overlaps(place, field.len, written.place, written.len))
    }

    fn len_of(&self, segment: Segment) -> u64 {
        match segment {
            Segment::Section(index) => self.program.sections[index].bytes.len() as u64,
            Segment::Queue(index) => u64::from(self.program.queues[index].ring_slots()) * SLOT as u64,
        }
    }

    fn one(&mut self, queue: usize, index: usize) {
        let work = self.work(queue, index).clone();
        let opcode = WqeOpcode(work.opcode);
        let known = opcode.has_list() || is_atomic(opcode);
        match opcode {
            WqeOpcode::NOP => {}
            WqeOpcode::WAIT => self.wait(queue, index, &work),
            WqeOpcode::ENABLE => self.enable(queue, index, &work),
            _ if !known => {
                self.fault(queue, index, format!("a loopback queue does not execute op-code {}", opcode.0));
            }
            _ => self.memory(queue, index, &work),
        }
    }

    /// Checks that the ranges of a work request are inside the memory of the program.
    fn memory(&mut self, queue: usize, index: usize, work: &Work) {
        let remote = "remote";
        let local = "local";
        let mut ends = vec![(remote, work.remote, work.len + more(work))];
        if WqeOpcode(work.opcode) == WqeOpcode::SEND {
            ends.clear();
        }
        if work.inline.is_empty() {
            ends.extend(list(work).into_iter().map(|(value, len)| (local, value, len)));
        }
        let atomic = is_atomic(WqeOpcode(work.opcode));
        for (field, value, len) in ends {
            if self.is_rewritten(queue, index, field) {
                continue;
            }
            let Value::At(place) = value else {
                self.fault(
                    queue,
                    index,
                    format!("its {field} address is not in the memory of the program, and no work request changes it"),
                );
                continue;
            };
            let end = place.offset.checked_add(len);
            let limit = self.len_of(place.segment);
            if end.is_none_or(|end| end > limit) {
                let description = format!(
                    "{len} bytes from {} on end behind the region granted, which has {limit}",
                    place.offset
                );
                self.fault(queue, index, description);
            } else if atomic && field == remote && !place.offset.is_multiple_of(8) {
                self.fault(queue, index, "an atomic's word begins at a multiple of 8 bytes".into());
            }
        }
    }

    fn wait(&mut self, queue: usize, index: usize, work: &Work) {
        let Value::Number(count) = work.swap_add else { return };
        if self.is_rewritten(queue, index, "count") {
            return;
        }
        match work.remote {
            Value::SendCq(other) => {
                let about = &self.program.queues[other];
                let before = if other == queue { index } else { about.works.len() };
                let most = about.signaled(before);
                if count > most && about.fetching != Fetching::Recycled {
                    let description = format!(
                        "it waits for {count} completions of {}, of which there are {most}",
                        about.name
                    );
                    self.fault(queue, index, description);
                }
            }
            Value::ReceiveCq(other) => {
                let about = &self.program.queues[other];
                let most = about.receives.len() as u64;
                if count > most && most > 0 {
                    let description =
                        format!("it waits for {count} messages to {}, which has {most} receives", about.name);
                    self.fault(queue, index, description);
                }
            }
            _ if self.is_rewritten(queue, index, "remote") => {}
            _ => self.fault(queue, index, "it does not wait for a completion queue of the program".into()),
        }
    }

    fn enable(&mut self, queue: usize, index: usize, work: &Work) {
        if self.is_rewritten(queue, index, "remote") {
            return;
        }
        let Value::Qp(other) = work.remote else {
            return self.fault(queue, index, "it does not enable a queue of the program".into());
        };
        let about = &self.program.queues[other];
        if about.fetching == Fetching::Posted {
            let description =
                format!("{} is posted: it needs no ENABLE, and a change of it comes too late", about.name);
            return self.fault(queue, index, description);
        }
        let Value::Number(count) = work.swap_add else { return };
        let posted = about.posted();
        if about.fetching == Fetching::Enabled && count > posted && !self.is_rewritten(queue, index, "count")
        {
            let description = format!("it enables {count} slots of {}, which has {posted}", about.name);
            self.fault(queue, index, description);
        }
    }

    /// Checks that every work request in a managed queue can be enabled.
    fn enabled(&mut self, queue: usize) {
        let about = &self.program.queues[queue];
        if about.fetching == Fetching::Posted || about.works.is_empty() {
            return;
        }
        let mut most = about.enabled;
        for (number, other) in self.program.queues.iter().enumerate() {
            for (index, work) in other.works.iter().enumerate() {
                let unknown =
                    self.is_rewritten(number, index, "count") || self.is_rewritten(number, index, "remote");
                match (WqeOpcode(work.opcode), work.remote, work.swap_add) {
                    (WqeOpcode::ENABLE, _, _) if unknown => most = u64::MAX,
                    (WqeOpcode::ENABLE, Value::Qp(target), Value::Number(count)) if target == queue => {
                        most = most.max(count)
                    }
                    _ => {}
                }
            }
        }
        if let Some(index) = about.works.iter().position(|work| work.slot >= most) {
            let description = format!("nothing enables {} so far", about.name);
            self.fault(queue, index, description);
        }
    }
}

#[cfg(test)]
mod tests;
