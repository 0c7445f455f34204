//! Model time for what a NIC has really executed: work requests in the order in which they were taken, each
//! with what was fetched by then, are laid out on the time of modelled hardware.
//!
//! A work request begins when it has been fetched, the one before it in its queue has been issued and its
//! processing unit is free; a WAIT ends when the completion that it waits for is there; a managed queue is
//! fetched when an ENABLE has ended. Nothing else is known here: which verbs there are, how often, and what
//! waits for what, was decided by the NIC's own code.

use std::collections::BTreeMap;

use super::connectx5::{ConnectX5, HEADERS, MEASURED_LEN, MTU, UNITS};
use remora_chain::Executed;
use remora_nic::Fetching;
use remora_nic::wqe::{WqeOpcode, flag};

/// The time at which a queue's doorbell rings.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// Long before the start: the posted work requests were fetched.
    Before,
    /// At the start.
    Now,
    /// By a polling program, after a number of work requests of a queue have completed.
    AfterCompletions(usize, u64),
    /// By a polling program, after a number of messages have arrived at a queue.
    AfterMessages(usize, u64),
}

/// A port of a NIC. Ports of one host share its PCIe; hosts 0 and 1 are each other's peers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Number of the host.
    pub host: usize,
    /// Number of the port on the host.
    pub port: usize,
}

/// A queue of the model.
#[derive(Copy, Clone, Debug)]
pub struct Queue {
    /// Number of its queue pair.
    pub qp: u32,
    /// Number of the completion queue of its work requests.
    pub send_cq: u32,
    /// Number of the completion queue of its receives.
    pub receive_cq: u32,
    /// Mode of fetching WQEs.
    pub fetching: Fetching,
    /// Number of slots that are enabled at the start.
    pub enabled: u64,
    /// Time of the doorbell.
    pub doorbell: Doorbell,
    /// Port that executes the queue.
    pub at: Port,
    /// True if the queue accesses the peer's memory over the network, false for its own host's memory.
    pub crosses: bool,
}

/// The times of a work request, in nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Start on a processing unit.
    pub began: u64,
    /// Time at which the data has arrived.
    pub there: u64,
    /// Time at which the request and all earlier ones of its queue have completed.
    pub done: u64,
}

/// Lays out what was executed, in the order of each queue; times are in the order of `executed`. Completion
/// queues have the entries of `messages` from elsewhere, and when.
///
/// # Panics
/// Something waits for what was not executed: then `executed` is not whole.
pub fn play(
    model: &ConnectX5,
    queues: &[Queue],
    executed: &[Executed],
    messages: &[(u32, u64)],
) -> Vec<Times> {
    let mut player = Player::new(model, queues, executed);
    for (cq, when) in messages {
        player.completions.entry(*cq).or_default().push(*when);
    }
    let mut times = vec![Times::default(); executed.len()];
    while let Some((queue, starts)) = player.next() {
        let place = player.lines[queue].next();
        times[place] = player.execute(queue, &executed[place], starts);
    }
    assert!(player.lines.iter().all(|line| line.todo.len() == line.position), "something waits for ever");
    times
}

/// The progress of a queue.
#[derive(Default)]
struct Line {
    /// Positions of its work requests among all that were executed.
    todo: Vec<usize>,
    position: usize,
    /// Processing unit on its port.
    unit: usize,
    /// The last one has been issued.
    free: u64,
    /// The last one has completed.
    done: u64,
    /// Slots below this have been fetched, the last of them then.
    fetched: (u64, u64),
    /// Enabled slots, with the time of each ENABLE.
    enabled: Vec<(u64, u64)>,
}

impl Line {
    fn next(&self) -> usize {
        self.todo[self.position]
    }
}

/// Bytes take their turn on these.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// From a host's memory.
    Read(usize),
    /// To a host's memory.
    Write(usize),
    /// Out of a port.
    Line(Port),
}

struct Player<'m> {
    model: &'m ConnectX5,
    queues: &'m [Queue],
    executed: &'m [Executed],
    lines: Vec<Line>,
    /// Times at which the entries of each completion queue were written.
    completions: BTreeMap<u32, Vec<u64>>,
    units: BTreeMap<(Port, usize), u64>,
    atomics: BTreeMap<Port, u64>,
    ways: BTreeMap<Way, u64>,
}

impl<'m> Player<'m> {
    fn new(model: &'m ConnectX5, queues: &'m [Queue], executed: &'m [Executed]) -> Player<'m> {
        let mut lines: Vec<Line> = Vec::new();
        for (number, queue) in queues.iter().enumerate() {
            let unit = queues[..number].iter().filter(|other| other.at == queue.at).count() % UNITS;
            lines.push(Line { unit, enabled: vec![(queue.enabled, 0)], ..Line::default() });
        }
        for (place, work) in executed.iter().enumerate() {
            lines[work.queue].todo.push(place);
        }
        let completions = BTreeMap::new();
        let units = BTreeMap::new();
        let atomics = BTreeMap::new();
        let ways = BTreeMap::new();
        Player { model, queues, executed, lines, completions, units, atomics, ways }
    }

    /// Which queue goes on first, and when.
    fn next(&self) -> Option<(usize, u64)> {
        let all = (0..self.lines.len()).filter_map(|queue| Some((self.starts(queue)?, queue)));
        all.min().map(|(starts, queue)| (queue, starts))
    }

    /// Returns the time at which the next work request of a queue can begin; for a WAIT, the time of its end.
    fn starts(&self, queue: usize) -> Option<u64> {
        let line = &self.lines[queue];
        let work = &self.executed[*line.todo.get(line.position)?];
        let unit = self.units.get(&(self.queues[queue].at, line.unit)).copied().unwrap_or(0);
        let starts = line.free.max(self.arrives(queue, work)?).max(unit);
        match work.wqe.opcode() {
            WqeOpcode::WAIT => Some(starts.max(self.completed(work.wqe.remote as u32, work.wqe.swap_add)?)),
            _ if work.wqe.flags() & flag::FENCE != 0 => Some(starts.max(line.done)),
            _ => Some(starts),
        }
    }

    /// Returns the time at which a completion queue has `count` entries.
    fn completed(&self, cq: u32, count: u64) -> Option<u64> {
        match count.checked_sub(1) {
            None => Some(0),
            Some(last) => self.completions.get(&cq)?.get(last as usize).copied(),
        }
    }

    /// Returns the time at which a work request has been fetched.
    fn arrives(&self, queue: usize, work: &Executed) -> Option<u64> {
        let line = &self.lines[queue];
        let facts = &self.queues[queue];
        if work.index < line.fetched.0 {
            return Some(line.fetched.1);
        }
        if facts.fetching == Fetching::Posted {
            // Fetched ahead, batch behind batch, as soon as the doorbell has come.
            return Some(match facts.doorbell {
                Doorbell::Before => 0,
                doorbell => self.rings(doorbell)?.max(line.fetched.1) + self.model.fetch.ns,
            });
        }
        let enabled = line.enabled.iter().find(|(count, _)| *count >= work.fetched)?.1;
        // What was enabled from the beginning is there, as what was posted before.
        let since = if enabled == 0 && facts.doorbell == Doorbell::Before {
            0
        } else {
            enabled + self.model.fetch.ns
        };
        Some(since.max(if line.position == 0 { 0 } else { line.free + self.model.fetch.ns }))
    }

    /// Returns the time at which the NIC sees a doorbell.
    fn rings(&self, doorbell: Doorbell) -> Option<u64> {
        let half = self.model.host.ns / 2;
        match doorbell {
            Doorbell::Before => Some(0),
            Doorbell::Now => Some(half),
            Doorbell::AfterCompletions(queue, count) => {
                Some(self.completed(self.queues[queue].send_cq, count)? + 2 * half)
            }
            Doorbell::AfterMessages(queue, count) => {
                Some(self.completed(self.queues[queue].receive_cq, count)? + 2 * half)
            }
        }
    }

    fn execute(&mut self, queue: usize, work: &Executed, began: u64) -> Times {
        let model = self.model;
        let facts = self.queues[queue];
        let opcode = work.wqe.opcode();
        let arrived = self.arrives(queue, work).unwrap_or(began);
        let issued = began + model.queue_ns(opcode);
        self.units.insert((facts.at, self.lines[queue].unit), began + model.unit_ns(opcode));
        let (there, done) = self.verb(&facts, work, issued);
        if opcode == WqeOpcode::ENABLE
            && let Some(target) = self.queues.iter().position(|queue| u64::from(queue.qp) == work.wqe.remote)
        {
            self.lines[target].enabled.push((work.wqe.swap_add, issued));
        }
        let line = &mut self.lines[queue];
        if work.index >= line.fetched.0 {
            line.fetched = (work.fetched, arrived);
        }
        (line.position, line.free, line.done) = (line.position + 1, issued, line.done.max(done));
        let done = line.done;
        if work.wqe.flags() & flag::SIGNALED != 0 {
            self.completions.entry(facts.send_cq).or_default().push(done);
        }
        if matches!(opcode, WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::WRITE_IMM) {
            self.completions.entry(facts.receive_cq).or_default().push(there + model.fetch.ns);
        }
        Times { began, there, done }
    }

    /// Returns the times at which the bytes of an issued verb have arrived and at which the verb has
    /// completed.
    fn verb(&mut self, queue: &Queue, work: &Executed, issued: u64) -> (u64, u64) {
        let model = self.model;
        let wqe = &work.wqe;
        let half = if queue.crosses { model.network.ns / 2 } else { 0 };
        let here = queue.at;
        let peer = Port { host: 1 - queue.at.host, ..queue.at };
        let target = if queue.crosses { peer } else { here };
        let beyond = model.beyond(wqe);
        match wqe.opcode() {
            WqeOpcode::WAIT | WqeOpcode::ENABLE => (issued, issued),
            WqeOpcode::READ => {
                let there = self.carry(issued + half + beyond, wqe.length(), target, here) + half;
                (there, there)
            }
            WqeOpcode::COMPARE_SWAP | WqeOpcode::FETCH_ADD => {
                let free = self.atomics.entry(target).or_default();
                let starts = (issued + half).max(*free);
                *free = starts + model.atomic.ns;
                (starts + beyond + half, starts + beyond + half)
            }
            opcode if opcode.has_list() => {
                let there = self.carry(issued + beyond, wqe.length(), here, target) + half;
                (there, there + half)
            }
            _ => (issued + half + beyond, issued + 2 * half + beyond),
        }
    }

    /// Bytes leave a host's memory for another's, packet by packet; a single packet is let in between the
    /// packets of a long message. Says when the last of them are there; what as many take as the measured
    /// verbs had is in those verbs' own time.
    fn carry(&mut self, starts: u64, len: u64, source: Port, target: Port) -> u64 {
        let line = (source != target).then_some(Way::Line(source));
        let ways =
            || [Some(Way::Read(source.host)), line, Some(Way::Write(target.host))].into_iter().flatten();
        let mut left = len;
        let mut last = starts;
        while left > 0 {
            let bytes = left.min(MTU);
            let mut time = starts;
            for way in ways() {
                let takes = self.takes(way, bytes);
                let packet = self.takes(way, MTU);
                let free = self.ways.entry(way).or_default();
                let waits = free.saturating_sub(time);
                time += takes + if len <= MTU { waits.min(packet) } else { waits };
                *free = time.max(*free + takes);
            }
            last = time;
            left -= bytes;
        }
        let measured: u64 = ways().map(|way| self.takes(way, len.min(MEASURED_LEN))).sum();
        starts.max(last.saturating_sub(measured)) + self.model.beyond_bytes(len)
    }

    fn takes(&self, way: Way, bytes: u64) -> u64 {
        match way {
            Way::Line(_) => self.model.line.ns(bytes + HEADERS),
            Way::Read(_) | Way::Write(_) => self.model.pcie.ns(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use remora_nic::wqe::Wqe;

    use super::*;
    use crate::connectx5::CONNECTX5;

    const QUEUE: Queue = Queue {
        qp: 1,
        send_cq: 0,
        receive_cq: 1,
        fetching: Fetching::Posted,
        enabled: 0,
        doorbell: Doorbell::Now,
        at: Port { host: 1, port: 0 },
        crosses: false,
    };
    /// Doorbell and fetch.
    const FIRST: u64 = 275 + 330;

    fn work(queue: usize, index: u64, fetched: u64, opcode: WqeOpcode, remote: u64, count: u64) -> Executed {
        let header = u64::from(opcode.0) | u64::from(flag::SIGNALED) << 8;
        let wqe = Wqe { header, remote, swap_add: count, len: 64, compare: 1, ..Wqe::default() };
        Executed { queue, index, fetched, wqe }
    }

    #[test]
    fn a_queue_issues_one_work_request_behind_the_other_and_its_batches_are_fetched_ahead() {
        let all: Vec<_> =
            (0..40).map(|index| work(0, index, (index / 16 + 1) * 16, WqeOpcode::NOP, 0, 0)).collect();
        let times = play(&CONNECTX5, &[QUEUE], &all, &[]);
        let expected: Vec<u64> = (0..40).map(|index| FIRST + 170 * index).collect();
        assert_eq!(times.iter().map(|times| times.began).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_wait_holds_its_queue_until_the_completion_and_an_enable_lets_the_other_be_fetched() {
        let managed = Queue { qp: 2, send_cq: 2, fetching: Fetching::Enabled, ..QUEUE };
        let all = [
            work(0, 0, 3, WqeOpcode::READ, 0, 0),
            work(0, 1, 3, WqeOpcode::WAIT, 0, 1),
            work(0, 2, 3, WqeOpcode::ENABLE, 2, 1),
            work(1, 0, 1, WqeOpcode::NOP, 0, 0),
        ];
        let times = play(&CONNECTX5, &[QUEUE, managed], &all, &[]);
        let read = FIRST + 170 + 540;
        assert_eq!(
            times.iter().map(|times| times.done).collect::<Vec<_>>(),
            [read, read + 20, read + 40, read + 40 + 330 + 170]
        );
    }

    #[test]
    fn an_atomic_has_the_port_to_itself_and_a_unit_serves_one_queue_at_a_time() {
        let queues: [Queue; UNITS + 1] =
            std::array::from_fn(|index| Queue { send_cq: index as u32, ..QUEUE });
        let one_per_queue = |opcode| (0..queues.len()).map(move |queue| work(queue, 0, 1, opcode, 0, 0));
        let adds = play(&CONNECTX5, &queues, &one_per_queue(WqeOpcode::FETCH_ADD).collect::<Vec<_>>(), &[]);
        let done: Vec<u64> = adds[..UNITS].iter().map(|times| times.done).collect();
        assert_eq!(done, (0..UNITS as u64).map(|index| FIRST + 170 + 360 + 119 * index).collect::<Vec<_>>());
        let nops = play(&CONNECTX5, &queues, &one_per_queue(WqeOpcode::NOP).collect::<Vec<_>>(), &[]);
        assert_eq!((nops[1].began, nops[UNITS].began), (FIRST, FIRST + 127));
    }

    #[test]
    fn long_messages_take_their_turns_and_short_ones_do_not_wait_for_all_of_them() {
        let queues = [0, 1].map(|index| Queue { send_cq: index, crosses: true, ..QUEUE });
        let ends = |len| {
            let long = |queue| {
                let work = work(queue, 0, 1, WqeOpcode::WRITE, 0, 0);
                Executed { wqe: Wqe { len: if queue == 0 { 1 << 20 } else { len }, ..work.wqe }, ..work }
            };
            play(&CONNECTX5, &queues, &[long(0), long(1)], &[])
                .into_iter()
                .map(|times| times.there)
                .collect::<Vec<_>>()
        };
        let long = ends(1 << 20);
        let megabyte = CONNECTX5.line.ns(1 << 20);
        assert!((megabyte..megabyte * 11 / 10).contains(&(long[1] - long[0])), "{long:?}");
        let short = ends(64)[1];
        assert!(short < 3_000, "{short}");
    }

    #[test]
    #[should_panic(expected = "waits for ever")]
    fn what_waits_for_nothing_is_a_mistake() {
        play(&CONNECTX5, &[QUEUE], &[work(0, 0, 1, WqeOpcode::WAIT, 7, 1)], &[]);
    }
}
