//! The calls of a NIC that is recorded.
//!
//! The NIC has rings of its own. Before each call, the recorder copies what the program has posted and polled
//! into them, and records it; after the call, it copies completions and freed slots back.

use remora_memory::{Mem, Table};
use remora_nic::wqe::SLOT;
use remora_nic::{
    AsyncEvent, Command, CommandError, Fetching, HandedPart, Nic, PartNumber, Receives, Reply, Ring, Word,
};
use remora_port::{Endpoint, Ingress, IpFields, Origin, Peer, Start};
use remora_transport::{Counters, Instant};
use remora_wire::Qpn;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abridged::{self, Abridged, ReceivedFrame, abridge_requests};
use super::connections::Connections;
use super::event::{End, Event, Feature, PeerFacts};
use super::log::{Log, Stretch};
use super::queues::{Queue, Queues, Role};

/// Number of recorded bytes after which the counters are recorded.
const COUNTERS_EVERY: u64 = 64 << 10;

/// The first byte of an entry whose queue pair was destroyed.
const REMOVED: u64 = 255;

/// A received frame of the port.
#[derive(Debug)]
pub(crate) struct Arrival {
    bytes: Vec<u8>,
    start: Start,
    sealed: bool,
    source: Endpoint,
    destination: Option<Endpoint>,
    origin: Option<Origin>,
}

impl Arrival {
    /// Copies a frame.
    pub(crate) fn new(frame: &Ingress<'_>) -> Arrival {
        let Ingress { start, sealed, source, destination, origin, .. } = *frame;
        Arrival { bytes: frame.bytes.to_vec(), start, sealed, source, destination, origin }
    }

    fn frame(&self) -> Ingress<'_> {
        let Arrival { ref bytes, start, sealed, source, destination, origin } = *self;
        Ingress { bytes, start, sealed, source, destination, origin }
    }
}

/// The recorder of one NIC.
#[derive(Debug)]
pub struct Recorder {
    log: Arc<Mutex<Log>>,
    queues: Queues,
    connections: Connections,
    /// The port's answers about each peer.
    peers: RefCell<Vec<Option<PeerFacts>>>,
    counters: Counters,
    /// Length of the recording when the counters were recorded.
    counted_at: u64,
}

impl Recorder {
    /// Creates the recorder of a NIC whose regions are in `table`.
    pub(crate) fn new(log: Log, table: &Table) -> Recorder {
        let log = Arc::new(Mutex::new(log));
        let observer = Arc::clone(&log);
        table.observe(Arc::new(move |change| lock(&observer).table(change)));
        Recorder {
            log,
            queues: Queues::default(),
            connections: Connections::default(),
            peers: RefCell::default(),
            counters: Counters::default(),
            counted_at: 0,
        }
    }

    /// Records an event.
    pub(super) fn put(&self, event: &Event) {
        lock(&self.log).put(event);
    }

    /// Writes the events so far into the file.
    pub(crate) fn flush(&self) {
        lock(&self.log).flush();
    }

    /// Ends the recording because of a feature.
    pub(crate) fn end(&self, feature: Feature) {
        let mut log = lock(&self.log);
        log.put(&Event::Counters(Box::new(self.counters)));
        log.end(End::Feature(feature));
    }

    /// Hands a part to the NIC. A ring is replaced by a copy that the recorder keeps equal.
    pub(crate) fn hand(&mut self, nic: &mut Nic, part: HandedPart) -> PartNumber {
        let HandedPart::Ring(program) = part else { return nic.hand(part) };
        let mut log = lock(&self.log);
        let copy = Ring::heap(program.slots() as u32).ok().filter(|_| log.is_open());
        let Some(ring) = copy else { return nic.hand(program) };
        let number = nic.hand(ring.clone());
        log.queues.push(Stretch::new(&program));
        log.put(&Event::Handed { number, slots: ring.slots() as u32 });
        self.queues.add(number, ring, Some(program));
        number
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The refusal of the NIC.
    pub(crate) fn execute(
        &mut self,
        nic: &mut Nic,
        now: Instant,
        mem: Mem<'_>,
        mut command: Command,
    ) -> Result<Reply, CommandError> {
        if let Some(feature) = feature_of(&command) {
            self.end(feature);
            self.give_back(nic, &mut command);
            return nic.execute(now, mem, command);
        }
        self.pull();
        lock(&self.log).begin_call();
        let result = nic.execute(now, mem, command.clone());
        self.put(&Event::Command { now, command: command.clone(), reply: result.clone() });
        self.follow(&command, result.as_ref().ok());
        if result.is_ok() {
            self.connections.follow(&command);
        }
        match command {
            Command::ResizeCq { cq, .. } => self.refill(Role::Completion(cq)),
            Command::ResizeSrq { srq, .. } => self.refill(Role::Shared(srq.get())),
            Command::DestroyQp(_) => self.remove_completions(),
            _ => {}
        }
        self.settle(nic);
        result
    }

    /// Follows a command, and forgets the memory of queues that it destroyed.
    fn follow(&mut self, command: &Command, reply: Option<&Reply>) {
        self.queues.follow(command, reply);
        let programs = self.queues.iter().filter_map(|queue| queue.program.as_ref());
        lock(&self.log).queues = programs.map(Stretch::new).collect();
    }

    /// Rings a doorbell.
    pub(crate) fn doorbell(&mut self, nic: &mut Nic, qp: Qpn) {
        self.pull();
        lock(&self.log).begin_call();
        nic.doorbell(qp);
        self.put(&Event::Doorbell { qp });
        self.settle(nic);
    }

    /// Passes frames to the NIC.
    pub(crate) fn receive(&mut self, nic: &mut Nic, now: Instant, mem: Mem<'_>, arrivals: Vec<Arrival>) {
        self.pull();
        for arrival in arrivals {
            lock(&self.log).begin_call();
            let corrupt = nic.counters().rx_icrc_encapsulated;
            nic.receive(now, mem, &arrival.frame());
            let is_corrupt = nic.counters().rx_icrc_encapsulated > corrupt;
            self.put(&Event::Received { now, frame: self.abridged(&arrival, is_corrupt) });
            self.settle(nic);
        }
    }

    /// Returns a received frame without its payload.
    fn abridged(&self, arrival: &Arrival, is_corrupt: bool) -> ReceivedFrame {
        let Arrival { ref bytes, start, source, destination, origin, .. } = *arrival;
        let irn = abridged::destination(start, bytes).is_some_and(|own| self.connections.uses_irn(own));
        let frame = Abridged::new(start, bytes, irn);
        ReceivedFrame { frame, start, source, destination, origin, is_corrupt }
    }

    /// Records a frame that the NIC sends.
    pub(super) fn sent(&self, peer: Peer, start: Start, bytes: &[u8], fields: IpFields) {
        let remote = abridged::destination(start, bytes);
        let irn = remote.is_some_and(|remote| self.connections.sends_irn(peer, remote));
        self.put(&Event::Sent { frame: Abridged::new(start, bytes, irn), fields });
    }

    /// Runs the timers of the NIC.
    pub(crate) fn expire(&mut self, nic: &mut Nic, now: Instant, drained: Instant, budget: usize) {
        self.pull();
        lock(&self.log).begin_call();
        nic.expire(now, drained, budget);
        self.put(&Event::Expired { now, drained, budget: budget as u32 });
        self.settle(nic);
    }

    /// Begins a call of transmit.
    pub(crate) fn begin_transmit(&mut self, now: Instant, budget: usize) {
        self.pull();
        let mut log = lock(&self.log);
        log.begin_call();
        log.put(&Event::Transmit { now, budget: budget as u32 });
    }

    /// Ends a call of transmit.
    pub(crate) fn end_transmit(&mut self, nic: &Nic, count: usize) {
        self.put(&Event::Transmitted { count: count as u64 });
        self.settle(nic);
    }

    /// Records a completion queue whose program is woken.
    pub(crate) fn woken(&self, cq: u32) {
        self.put(&Event::Woken { cq });
    }

    /// Records an asynchronous event.
    pub(crate) fn raised(&self, event: AsyncEvent) {
        self.put(&Event::Raised(event));
    }

    /// Records the port's answers about a peer, unless they were recorded before.
    pub(super) fn answered(&self, peer: Peer, facts: PeerFacts) {
        let place = peer.0 as usize;
        let mut peers = self.peers.borrow_mut();
        if peers.len() <= place {
            peers.resize(place + 1, None);
        }
        if peers[place].replace(facts) != Some(facts) {
            self.put(&Event::Peer { peer, facts });
        }
    }

    /// Copies what the program has posted and polled to the rings of the NIC. Work requests are copied before
    /// consumer indices: a program that posts after it polled must not find its completion queue full.
    fn pull(&mut self) {
        let rewrites = lock(&self.log).rewrites.load(Ordering::Relaxed);
        let queues = || self.queues.iter().filter_map(|queue| Some((queue, queue.program.as_ref()?)));
        for (queue, program) in queues() {
            if matches!(queue.role, Role::Send(_) | Role::Receive(_) | Role::Shared(_)) {
                self.pull_posted(queue, program, rewrites);
            }
        }
        for (queue, program) in queues() {
            let consumed = program.word(Word::Consumed);
            if matches!(queue.role, Role::Completion(_)) && consumed != queue.ring.word(Word::Consumed) {
                queue.ring.set_word(Word::Consumed, consumed);
                self.put(&Event::Polled { ring: queue.id, consumed });
            }
        }
    }

    fn pull_posted(&self, queue: &Queue, program: &Ring, rewrites: bool) {
        let before = queue.ring.word(Word::Produced);
        let produced = program.word(Word::Produced);
        let from = if rewrites { queue.ring.word(Word::Consumed) } else { before };
        if produced == before && !rewrites {
            return;
        }
        let first = from.max(produced.saturating_sub(program.slots()));
        let mut slots = Vec::new();
        for index in first..produced {
            let mut slot = [0; SLOT];
            program.load(index, &mut slot);
            queue.ring.store(index, &slot);
            slots.extend_from_slice(&slot);
        }
        queue.ring.set_word(Word::Produced, produced);
        if matches!(queue.role, Role::Send(_)) {
            abridge_requests(&mut slots);
        }
        self.put(&Event::Posted { ring: queue.id, produced, first, slots });
    }

    /// Copies what the NIC has freed and completed to the rings of the program, and records completions.
    fn settle(&mut self, nic: &Nic) {
        for queue in self.queues.iter() {
            let Some(program) = &queue.program else { continue };
            let mut words = &[Word::Consumed, Word::Error][..];
            match queue.role {
                Role::Waiting => continue,
                Role::Completion(_) => words = &words[1..],
                _ => {}
            }
            for word in words {
                let value = queue.ring.word(*word);
                if program.word(*word) != value {
                    program.set_word(*word, value);
                }
            }
        }
        let fresh = self.queues.fresh(|queue, index, slot| {
            if let Some(program) = &queue.program {
                let mut invalid = *slot;
                invalid[SLOT - 8..].fill(0);
                program.store(index, &invalid);
                program.publish(index, index + 1);
            }
        });
        self.counters = *nic.counters();
        let mut log = lock(&self.log);
        for fresh in fresh {
            let super::queues::Fresh { cq, first, slots } = fresh;
            log.put(&Event::Completions { cq, first, slots });
        }
        log.end_call();
        if log.len() - self.counted_at >= COUNTERS_EVERY {
            self.counted_at = log.len();
            log.put(&Event::Counters(Box::new(self.counters)));
        }
    }

    /// Copies the whole ring of a queue that was moved to the ring of the program.
    fn refill(&self, role: Role) {
        let Some(queue) = self.queues.iter().find(|queue| queue.role == role) else { return };
        let Some(program) = &queue.program else { return };
        let mut slot = [0; SLOT];
        for index in 0..queue.ring.slots() {
            queue.ring.load(index, &mut slot);
            program.store(index, &slot);
        }
        for word in [Word::Produced, Word::Consumed, Word::Error] {
            program.set_word(word, queue.ring.word(word));
        }
    }

    /// Invalidates completions in the rings of the program that the NIC has invalidated in its own.
    fn remove_completions(&self) {
        for queue in self.queues.iter().filter(|queue| matches!(queue.role, Role::Completion(_))) {
            let Some(program) = &queue.program else { continue };
            for index in 0..queue.ring.slots() {
                let own = queue.ring.words(index);
                let words = program.words(index);
                if own[0] == REMOVED
                    && words[0] != REMOVED
                    && words[7] == own[7]
                    && let Some(first) = program.bytes().word(program.position(index))
                {
                    first.store(REMOVED, Ordering::Release);
                }
            }
        }
    }

    /// Replaces rings in a command that is not recorded by those of the program.
    fn give_back(&mut self, nic: &mut Nic, command: &mut Command) {
        let mut own = |number: &mut PartNumber| {
            let program = self.queues.waiting(*number).and_then(|queue| queue.program.clone());
            if let Some(program) = program {
                *number = nic.hand(program);
            }
        };
        let taken = command.clone();
        match command {
            Command::CreateQp(init) | Command::CreateGsiQp(init) => {
                own(&mut init.send_ring);
                if let Receives::Own { ring, .. } = &mut init.receives {
                    own(ring);
                }
            }
            Command::CreateLoopback(init) => {
                own(&mut init.send_ring);
                own(&mut init.receive_ring);
            }
            Command::CreateFreeList(init) => own(&mut init.ring),
            Command::CreatePortal(init) => own(&mut init.ring),
            _ => {}
        }
        self.follow(&taken, None);
    }
}

impl Recorder {
    /// Records the counters and the end of the NIC, and closes the file. No effect on a recording that has
    /// ended.
    pub(crate) fn close(&mut self) {
        let mut log = lock(&self.log);
        log.put(&Event::Counters(Box::new(self.counters)));
        log.end(End::Closed);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the feature that a command begins to use, if it is one that is not recorded.
fn feature_of(command: &Command) -> Option<Feature> {
    match command {
        Command::CreateQp(init) | Command::CreateGsiQp(init) if init.fetching != Fetching::Posted => {
            Some(Feature::Chains)
        }
        Command::CreateLoopback(_) | Command::Enable { .. } => Some(Feature::Chains),
        Command::CreateFreeList(_) => Some(Feature::Prism),
        Command::ModifyQp { change, .. } if change.prism == Some(true) => Some(Feature::Prism),
        Command::ModifyQp { change, .. } if change.strom == Some(true) => Some(Feature::Strom),
        Command::DeployKernel(_)
        | Command::ReplaceKernel { .. }
        | Command::AttachKernel { .. }
        | Command::CheckReads { .. }
        | Command::InvokeKernel { .. } => Some(Feature::Strom),
        Command::CreatePortal(_) => Some(Feature::Rma),
        _ => None,
    }
}
