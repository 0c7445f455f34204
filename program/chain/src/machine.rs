//! A NIC that runs a single program, for tests and debugging.

mod client;
mod queues;

use remora_memory::{Access, Bytes, Mem, Pd, Range, Table};
use remora_nic::chain::LoopbackInit;
use remora_nic::wqe::{Bounds, MAX_INLINE, MAX_SGE, SLOT, Wqe};
use remora_nic::{Bare, Command, Nic, ReceiveQueue, ReceiveRequest, Ring, SendQueue, Status, stride};
use remora_transport::Instant;
use remora_transport::state::State;
use remora_wire::Qpn;
use remora_wire::frame::{Class, Egress, Lease, Peer, Start};
use std::sync::Arc;

use crate::link::{Image, Numbers, QueueNumbers, layout, link};
use crate::program::{Location, Program, Queue, Segment};
use crate::step::{Executed, Step, differences};
use client::Client;
use queues::{COMPLETIONS, PIECES, create_counted_cq, ring};

pub use client::Reply;
pub use queues::LoadError;

/// Access rights of a chain to its own memory: all.
const RIGHTS: Access = Access::from_bits(0xf).expect("the bits are access rights");

/// The reason why a run ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All queues are empty or waiting.
    Rest,
    /// The budget was used up before the program ended.
    Budget,
}

/// A work request that put its queue into the error state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Index of the queue.
    pub queue: usize,
    /// Slot of the work request in the queue.
    pub slot: u64,
    /// Status of the completion.
    pub status: Status,
}

struct Loaded {
    qp: Qpn,
    send: SendQueue,
    receives: ReceiveQueue,
    completions: Ring,
    client: Option<Client>,
}

/// A program loaded on a NIC of its own.
pub struct Machine {
    program: Program,
    numbers: Numbers,
    engine: Bare,
    sections: Vec<Bytes>,
    queues: Vec<Loaded>,
    steps: u64,
    shadow: Option<Vec<Vec<u8>>>,
}

impl Machine {
    /// Loads a program without starting it.
    ///
    /// # Errors
    /// [`LoadError`] if the program does not fit the NIC.
    pub fn load(program: Program) -> Result<Machine, LoadError> {
        let too_big = |_| LoadError::TooBig;
        let count = program.queues.len() as u32;
        let ranges = program.sections.len() + program.queues.len();
        let config = remora_memory::Config {
            max_regions: count as usize + 4,
            max_pds: 2,
            max_windows: 0,
            max_ranges: ranges + count as usize + 2,
            on_nic_bytes: 0,
            key_seed: 0,
        };
        let table = Arc::new(Table::new(config).map_err(|_| LoadError::TooBig)?);
        let pd = table.alloc_pd().map_err(|_| LoadError::TooBig)?;
        let limits = remora_nic::Config {
            max_qps: 2 * count + 2,
            max_cqs: 4 * count + 1,
            ..remora_nic::Config::default()
        };
        let engine = Bare::new(&table, limits);
        let mut numbers = layout(&program);
        let mut queues = Vec::new();
        for (queue, numbers) in program.queues.iter().zip(&mut numbers.queues) {
            let (loaded, actual) = create(&engine, &table, pd, queue, numbers.code)?;
            *numbers = actual;
            queues.push(loaded);
        }
        let sections: Result<Vec<_>, _> =
            program.sections.iter().map(|section| Bytes::heap(section.bytes.len().max(8))).collect();
        let sections = sections.map_err(too_big)?;
        let data = sections.iter().zip(&numbers.sections).map(|(bytes, address)| Range::at(bytes, *address));
        // The code region excludes the indices before the slots, because a chain that could write these
        // could post work requests.
        let code = queues.iter().zip(&numbers.queues).map(|(queue, numbers)| Range {
            bytes: queue.send.ring().bytes().clone(),
            offset: SLOT,
            len: queue.send.ring().slots() as usize * SLOT,
            iova: numbers.code,
        });
        let ranges: Vec<_> = data.chain(code).collect();
        numbers.key = table.register(pd, &ranges, RIGHTS).map_err(too_big)?.get();
        let mut machine = Machine { program, numbers, engine, sections, queues, steps: 0, shadow: None };
        machine.fill(&link(&machine.program, &machine.numbers));
        Ok(machine)
    }

    fn fill(&mut self, image: &Image) {
        for (bytes, content) in self.sections.iter().zip(&image.sections) {
            bytes.write(0, content).expect("the buffer has the length of the section");
        }
        let all = self.queues.iter_mut().zip(&self.program.queues);
        for ((queue, definition), (slots, receives)) in all.zip(image.queues.iter().zip(&image.receives)) {
            queue.send.push_slots(slots).expect("the ring has the slots of the queue");
            for (id, sges) in receives.iter().enumerate() {
                let request = ReceiveRequest { id: id as u64, sges };
                queue.receives.post(&request).expect("the ring has space for the receives");
            }
            if definition.recycles_receives() {
                queue.receives.recycle().expect("the receives fill the ring");
            }
        }
    }

    /// Rings all doorbells once. Posted queues run; of the other queues, the initially enabled slots run.
    pub fn start(&mut self) {
        (0..self.queues.len()).for_each(|queue| self.ring(queue));
    }

    /// Rings the doorbell of one queue.
    pub fn ring(&mut self, queue: usize) {
        let loaded = &mut self.queues[queue];
        loaded.send.publish();
        self.engine.enter().doorbell(loaded.qp);
        let enabled = self.program.queues[queue].enabled;
        if enabled > 0 {
            let command = Command::Enable { qp: loaded.qp, count: enabled };
            self.engine.ask::<()>(command).expect("the queue pair exists");
        }
    }

    /// Sends a client's message to a queue, which uses the next receive. Returns false if the queue has no
    /// client, or too many messages are pending.
    pub fn send(&mut self, queue: usize, message: &[u8]) -> bool {
        let Some(client) = &mut self.queues[queue].client else { return false };
        let sent = client.push(message);
        if sent {
            self.engine.enter().doorbell(client.qp);
        }
        sent
    }

    /// Returns the next message that a queue has sent to its client. Only the newest few are kept.
    pub fn answer(&mut self, queue: usize) -> Option<Reply> {
        self.queues[queue].client.as_mut()?.answer()
    }

    /// Runs until all queues are idle or about `budget` work requests have been executed.
    pub fn run(&mut self, budget: u64) -> RunEnd {
        self.shadow = None;
        let mut engine = self.engine.enter();
        let (nic, mem) = engine.parts();
        nic.set_chain_turn(64);
        let end = nic.counters().wqes_executed + budget;
        loop {
            let before = nic.counters().wqes_executed;
            if before >= end {
                return if nic.has_work() { RunEnd::Budget } else { RunEnd::Rest };
            }
            let turn = (end - before).min(64) as usize;
            nic.set_chain_turn(turn);
            go(nic, mem);
            if nic.counters().wqes_executed == before && !nic.has_work() {
                return RunEnd::Rest;
            }
        }
    }

    /// Executes one work request and returns its effects, or `None` if all queues are idle.
    pub fn step(&mut self) -> Option<Step> {
        let before = self.shadow.take().unwrap_or_else(|| self.memory());
        let (Executed { queue, index, .. }, message, slot, failed) = self.step_quietly()?;
        let after = self.memory();
        let segments =
            (0..self.sections.len()).map(Segment::Section).chain((0..self.queues.len()).map(Segment::Queue));
        let mut changes = Vec::new();
        for ((segment, before), after) in segments.zip(&before).zip(&after) {
            if before != after {
                changes.extend(differences(Location { segment, offset: 0 }, before, after));
            }
        }
        self.shadow = Some(after);
        self.steps += 1;
        Some(Step { number: self.steps - 1, queue, message, index, slot, changes, failed })
    }

    /// Runs like [`run`](Machine::run), and returns every executed work request as input for a hardware
    /// model.
    pub fn watch(&mut self, budget: usize) -> Vec<Executed> {
        self.shadow = None;
        let steps = std::iter::from_fn(|| self.step_quietly());
        steps.filter(|(_, message, ..)| !message).map(|(executed, ..)| executed).take(budget).collect()
    }

    /// Executes one work request. Returns the work request, true if it is a client's message, the executed
    /// copy of its slot, and true if it failed.
    fn step_quietly(&mut self) -> Option<(Executed, bool, [u8; SLOT], bool)> {
        let mut engine = self.engine.enter();
        let (nic, mem) = engine.parts();
        nic.set_chain_turn(1);
        let own = self.queues.iter().enumerate().map(|(number, queue)| (number, false, queue.qp));
        let clients = self.queues.iter().enumerate();
        let clients = clients.filter_map(|(number, queue)| Some((number, true, queue.client.as_ref()?.qp)));
        let taken = |nic: &Nic, qp: Qpn| nic.send_queue_facts(qp).map_or(0, |facts| facts.taken);
        let before: Vec<_> =
            own.chain(clients).map(|(number, client, qp)| (number, client, qp, taken(nic, qp))).collect();
        loop {
            go(nic, mem);
            let moved = before.iter().find(|(.., qp, before)| taken(nic, *qp) != *before);
            if let Some(&(number, client, qp, index)) = moved {
                let slot = nic.fetched_slot(qp, index).unwrap_or([0; SLOT]);
                let failed = nic.qp_state(qp) == Some(State::Err);
                let fetched = nic.send_queue_facts(qp).map_or(0, |facts| facts.fetched);
                let executed = Executed { queue: number, index, fetched, wqe: Wqe::parse(&slot) };
                return Some((executed, client, slot, failed));
            }
            if !nic.has_work() {
                return None;
            }
        }
    }

    /// Returns the bytes of all sections, followed by the slots of all queues.
    fn memory(&self) -> Vec<Vec<u8>> {
        let copy = |bytes: &Bytes, start: usize| {
            let mut all = vec![0; bytes.len() - start];
            bytes.read(start, &mut all).expect("the range is inside the buffer");
            all
        };
        let data = self.sections.iter().map(|bytes| copy(bytes, 0));
        data.chain(self.queues.iter().map(|queue| copy(queue.send.ring().bytes(), SLOT))).collect()
    }

    /// Returns the loaded program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the addresses and numbers of the loaded program.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Returns the number of work requests executed so far, as counted by the NIC.
    pub fn executed(&self) -> u64 {
        self.engine.enter().counters().wqes_executed
    }

    /// Reads bytes from a location, or returns `None` beyond the end.
    pub fn read(&self, place: Location, len: usize) -> Option<Vec<u8>> {
        let (bytes, base) = self.bytes(place)?;
        let mut out = vec![0; len];
        bytes.read(base + place.offset as usize, &mut out).ok()?;
        Some(out)
    }

    /// Writes bytes like a program on the CPU. Returns false if the range is out of bounds.
    pub fn write(&mut self, place: Location, content: &[u8]) -> bool {
        self.shadow = None;
        self.bytes(place)
            .is_some_and(|(bytes, base)| bytes.write(base + place.offset as usize, content).is_ok())
    }

    fn bytes(&self, place: Location) -> Option<(&Bytes, usize)> {
        match place.segment {
            Segment::Section(index) => Some((self.sections.get(index)?, 0)),
            Segment::Queue(index) => Some((self.queues.get(index)?.send.ring().bytes(), SLOT)),
        }
    }

    /// Returns the word with this name, or `None`.
    pub fn word(&self, name: &str) -> Option<u64> {
        let (place, _) = self.program.find(name)?;
        self.read(place, 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Changes the word with this name. Returns false if there is none.
    pub fn set_word(&mut self, name: &str, value: u64) -> bool {
        let place = self.program.find(name);
        place.is_some_and(|(place, _)| self.write(place, &value.to_le_bytes()))
    }

    /// Returns the queues in the error state, each with the work request that caused the error.
    pub fn failures(&self) -> Vec<Failure> {
        let engine = self.engine.enter();
        let all = self.queues.iter().enumerate();
        let failed = |qp: Qpn| engine.qp_state(qp) == Some(State::Err);
        let refused = |index, queue: &Loaded| {
            let client = queue.client.as_ref().filter(|client| failed(client.qp))?;
            Some(Failure { queue: index, slot: 0, status: client.refused()? })
        };
        all.filter_map(|(index, queue)| {
            failure(index, queue).filter(|_| failed(queue.qp)).or_else(|| refused(index, queue))
        })
        .collect()
    }

    /// Returns for each queue the number of slots executed, fetched and enabled, and whether the queue
    /// waits.
    pub fn progress(&self) -> Vec<remora_nic::chain::SendQueueFacts> {
        let engine = self.engine.enter();
        self.queues.iter().filter_map(|queue| engine.send_queue_facts(queue.qp)).collect()
    }
}

/// Runs one turn of one queue pair that has work.
fn go(nic: &mut Nic, mem: Mem<'_>) {
    nic.transmit(Instant(0), mem, &mut NullPort, 1);
}

fn failure(index: usize, queue: &Loaded) -> Option<Failure> {
    let entry = client::first_fault(&queue.completions)?;
    // `wqe_index` is the number of consumed slots, including this one.
    let slot = (entry.wqe_index.wrapping_sub(1)) & (queue.send.ring().slots() - 1);
    Some(Failure { queue: index, slot, status: entry.completion.status })
}

fn create(
    nic: &Bare,
    table: &Table,
    pd: Pd,
    queue: &Queue,
    code: u64,
) -> Result<(Loaded, QueueNumbers), LoadError> {
    if queue.receives.iter().any(|pieces| pieces.len() > PIECES) {
        return Err(LoadError::TooManyPieces { queue: queue.name.clone() });
    }
    if queue.recycles_receives() && !queue.receives.len().is_power_of_two() {
        return Err(LoadError::NoPowerOfTwo { queue: queue.name.clone() });
    }
    let full = |_| LoadError::TooBig;
    let send = ring(queue.ring_slots())?;
    let completions = ring(COMPLETIONS)?;
    let received = ring(COMPLETIONS)?;
    let send_cq = create_counted_cq(nic, completions.clone())?;
    let receive_cq = create_counted_cq(nic, received.clone())?;
    let pieces = queue.receive_pieces();
    let receives = ring((queue.receives.len().max(1) as u64 * stride(pieces)) as u32)?;
    let client = match queue.client {
        true => Some(Client::create(nic, table, pd, receives.clone(), pieces, receive_cq, received)?),
        false => None,
    };
    let (receive_ring, receive_max_sge, inbox_cq) = match &client {
        Some(client) => (client.inbox(), client::INBOX_SGE, client.inbox_cq),
        None => (receives.clone(), pieces, receive_cq),
    };
    let init = LoopbackInit {
        pd,
        send_ring: nic.hand(send.clone()),
        receive_ring: nic.hand(receive_ring),
        receive_max_sge,
        send_cq,
        receive_cq: inbox_cq,
        fetching: queue.fetching,
    };
    let qp: Qpn = nic.ask(Command::CreateLoopback(init)).map_err(full)?;
    let numbers = QueueNumbers { qp: qp.get(), send_cq, receive_cq, code };
    let bounds = Bounds { max_sge: MAX_SGE as u32, max_inline: MAX_INLINE as u32 };
    let send = SendQueue::new(send, bounds);
    let receives = ReceiveQueue::new(receives, pieces);
    Ok((Loaded { qp, send, receives, completions, client }, numbers))
}

/// A port that sends nothing, because loopback queue pairs send no packets.
struct NullPort;

impl Egress for NullPort {
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }

    fn seals(&self, _: Peer) -> bool {
        false
    }

    fn lend(&mut self, _: Peer, _: Class, _: usize) -> Option<Lease<'_>> {
        None
    }

    fn commit(&mut self) {}

    fn flush(&mut self) {}
}
