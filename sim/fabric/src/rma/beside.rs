//! Small reads during a long transfer (1RMA paper, Figure 12).
//!
//! Reads of 64 bytes arrive as a Poisson process of ten thousand per second. Meanwhile long transfers follow
//! each other without a gap. With 1RMA both pass the command executor; over a reliable connection both are
//! READs of one queue pair.

use std::collections::VecDeque;

use remora_fault::Random;
use remora_nic::{Flags, Operation, Payload, Status, WorkRequest};
use remora_transport::Instant;
use remora_wire::rma::{Class, MAX_OPERATION};

use super::client::{Client, Read};
use super::load::gap_ns;
use super::path::{CLIENT, MakeCipher, Path, REGION};
use crate::program::{ALL, Settings};

/// Size of a small read, in bytes.
const SMALL: u32 = 64;
/// Mean time between two small reads, in nanoseconds.
const APART_NS: f64 = 100_000.0;
/// Command slots of the program.
const SLOTS: u16 = 64;
/// Id of the long transfers. It must fit the 48-bit ids of a queue pair.
const LONG: u64 = 1 << 40;

/// The parameters of the experiment.
#[derive(Copy, Clone, Debug)]
pub struct Beside {
    /// Size of each long transfer in bytes; 0 for none.
    pub long: u64,
    /// Class of the long transfers. Small reads have the latency class.
    pub class: Class,
    /// Number of measured small reads.
    pub reads: usize,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Latencies of the small reads in nanoseconds, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies(pub Vec<u64>);

impl Latencies {
    fn of(mut taken: Vec<u64>) -> Latencies {
        taken.sort_unstable();
        Latencies(taken)
    }

    /// Returns the mean latency.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / self.0.len().max(1) as f64
    }

    /// Returns a quantile of the latencies; `part` is from 0 to 1.
    pub fn quantile(&self, part: f64) -> u64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((part * last as f64).round() as usize).copied().unwrap_or(0)
    }
}

/// Measures 1RMA with the paper's congestion control.
pub fn rma(beside: &Beside, make: MakeCipher<'_>) -> Latencies {
    let path = Path::simulation(beside.seed);
    let mut client = Client::new(&path, SLOTS, &path.congestion(), make);
    let mut random = Random::new(beside.seed ^ 0x12);
    let long = Read { id: LONG, server: 0, class: beside.class, size: beside.long };
    if beside.long > 0 {
        client.submit(long);
    }
    let mut next = Instant(gap_ns(&mut random, APART_NS));
    let mut begun = Vec::new();
    let mut taken = Vec::new();
    while taken.len() < beside.reads {
        let Some(ended) = client.advance(next) else {
            let small = Read { id: begun.len() as u64, server: 0, class: Class::Latency, size: SMALL.into() };
            client.submit(small);
            begun.push(client.now());
            next = next.after(gap_ns(&mut random, APART_NS));
            continue;
        };
        match ended.transfer.map(|transfer| transfer.id) {
            Some(LONG) => client.submit(long),
            Some(small) => taken.push(client.now().since(begun[small as usize])),
            None => {}
        }
    }
    Latencies::of(taken)
}

/// Measures READs of one queue pair over a reliable connection.
///
/// # Panics
/// Panics if a READ fails, which cannot happen without loss.
pub fn reliable_connection(beside: &Beside) -> Latencies {
    let mut world = Path::simulation(beside.seed).world();
    let settings = Settings { mtu: MAX_OPERATION, timeout: 16, ..Settings::default() };
    let [(pair, cq), _] = world.pair(CLIENT, 1, &settings);
    let here = world.register(CLIENT, REGION, ALL);
    let there = world.register(1, REGION, ALL);
    let post = |world: &mut crate::World, id, len: usize| {
        let list = [here.sge(0, len)];
        let request = WorkRequest {
            id,
            operation: Operation::Read(there.remote(0)),
            payload: Payload::Sges(&list),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        world.post(pair, &request)
    };
    let mut random = Random::new(beside.seed ^ 0x12);
    let mut next = Instant(gap_ns(&mut random, APART_NS));
    let mut begun = Vec::new();
    let mut taken = Vec::new();
    let mut waiting = VecDeque::new();
    if beside.long > 0 {
        post(&mut world, LONG, beside.long as usize).expect("the send queue is empty");
    }
    while taken.len() < beside.reads {
        while let Some(completion) = world.poll(cq) {
            assert_eq!(completion.status, Status::Success, "nothing is lost here");
            if completion.id == LONG {
                post(&mut world, LONG, beside.long as usize).expect("the send queue has space");
                continue;
            }
            let begun: Instant = begun[completion.id as usize];
            taken.push(world.now().since(begun));
        }
        if next <= world.now() {
            waiting.push_back(begun.len() as u64);
            begun.push(next);
            next = next.after(gap_ns(&mut random, APART_NS));
        }
        // While the send queue is full the program waits; this time belongs to the latency of the read.
        while let Some(id) = waiting.front() {
            if post(&mut world, *id, SMALL as usize).is_err() {
                break;
            }
            waiting.pop_front();
        }
        world.step_until(next);
    }
    Latencies::of(taken)
}
