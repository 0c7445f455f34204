//! StRoM's figures in model time. Real kernels run on the NIC of a world; their steps and the frames that
//! were sent are then scheduled with the times of the paper's FPGA (`strom.rs`).
//!
//! The world's own time is ignored. Only the frames with their lengths, and the steps of a kernel, matter.

use std::sync::PoisonError;

use crate::meter::{Metered, Steps};
use crate::number::{Number, Part, Unit};
use crate::strom::{Stations, Stepped, StromFpga};
use remora_nic::kernel::{
    CRC_LEN, Consistency, Get, HyperLogLog, Kernel, KernelInit, Lookup, Object, Partition, Place, Predicate,
    Shape, Shuffle, Slot, Traversal, Walk, crc64, histogram,
};
use remora_nic::{Command, Flags, Operation, Payload, ReceiveRequest, WorkRequest};

use remora_wire::Opcode;
use remora_wire::frame::Start;

use remora_fabric::forge::transport;
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };
const OPCODE: u64 = 1;
/// Sizes in bytes: of Figures 5a and 12a; of Figures 5b, 5c, 12b, 12c and 13; of values in Figures 8 to 10.
const SMALL: [usize; 5] = [64, 128, 256, 512, 1024];
const STREAMED: [usize; 8] = [64, 256, 1024, 4096, 16_384, 65_536, 262_144, LONG];
const VALUES: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
/// Lengths of the lists of Figure 7.
const LISTS: [usize; 4] = [4, 8, 16, 32];
/// Percentages of failed reads in Figure 10.
const FAILURES: [u32; 4] = [0, 1, 10, 50];
/// Sizes of Figure 11, in bytes.
const SHUFFLED: [usize; 3] = [65_536, 262_144, LONG];
/// Number of consecutive messages of a stream.
const MESSAGES: u64 = 16;
/// Size of a long message, in bytes.
const LONG: usize = 1 << 20;
/// Offset of answers and values in the region.
const VALUE: usize = 1 << 16;

/// The frames of an operation, and the steps of a kernel for it.
struct Observed {
    asked: Vec<u64>,
    answered: Vec<u64>,
    steps: Vec<Stepped>,
    /// True if the data that the kernel received was also written to memory.
    passing: bool,
}

/// A client, and a server with one kernel.
struct Bench {
    world: World,
    client: QueuePair,
    ended: CompletionQueue,
    server: QueuePair,
    kernel: u32,
    here: Region,
    there: Region,
    steps: Steps,
    attached: bool,
}

impl Bench {
    fn new<K: Kernel + 'static>(kernel: K) -> Bench {
        let mut world = World::new(&Config::default());
        let settings = Settings { strom: true, receives: 8, ..Settings::default() };
        let [(client, ended), (server, _)] = world.pair(0, 1, &settings);
        let here = world.register(0, 2 * LONG, ALL);
        let there = world.register(1, 2 * LONG, ALL);
        let (kernel, steps) = Metered::new(kernel);
        let init = KernelInit {
            pd: world.pd(1),
            opcode: Some(OPCODE),
            code: world.hand(1, remora_nic::HandedPart::Kernels(vec![Box::new(kernel)])),
            grants: vec![there.key],
            answers: (LONG >> 13) as u32,
            longest: 1 << 13,
            limit: 1 << 16,
        };
        let kernel = world.ask(1, Command::DeployKernel(init)).expect("space for a kernel");
        world.tap();
        Bench { world, client, ended, server, kernel, here, there, steps, attached: false }
    }

    /// Attaches the kernel to the queue pair, so that it receives the data of WRITEs.
    fn attach(&mut self) {
        let qp = self.server.number;
        let kernel = self.kernel;
        self.attached = true;
        self.world.ask::<()>(1, Command::AttachKernel { qp, kernel: Some(kernel) }).expect("its own");
    }

    /// Posts a request and runs the world until nothing is left to do.
    fn ask(&mut self, operation: Operation, payload: Payload<'_>) -> Observed {
        if matches!(operation, Operation::Rpc { .. } | Operation::RpcWrite { .. }) {
            self.world.post_receive(self.client, &ReceiveRequest { id: 0, sges: &[] }).expect("space");
        }
        let request = WorkRequest { id: 0, operation, payload, flags: SIGNALED };
        self.world.post(self.client, &request).expect("space");
        assert!(self.world.settle(10_000_000), "it never comes to rest");
        let ended = self.world.drain(self.ended);
        assert!(ended.iter().all(|end| end.status == remora_nic::Status::Success), "{ended:?}");
        let start = self.world.start();
        let sent = self.world.sent();
        let below = if start == Start::Ethernet { remora_wire::ethernet::LEN } else { 0 };
        let ip = |frame: &remora_fabric::Sent| (frame.bytes.len() - below) as u64;
        // No part of an operation waits for an acknowledgement, so acknowledgements are left out.
        let matters = |frame: &&remora_fabric::Sent| {
            let packet = transport(start, &frame.bytes);
            packet.is_some_and(|packet| packet.bth.opcode != Opcode::RC_ACKNOWLEDGE)
        };
        let sent_by =
            |node| sent.iter().filter(matters).filter(move |frame| frame.from == node).map(ip).collect();
        let steps = std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner));
        Observed { asked: sent_by(0), answered: sent_by(1), steps, passing: self.attached }
    }

    fn rpc(&mut self, params: &[u8]) -> Observed {
        let target = self.here.remote(LONG);
        let place = Place { addr: target.addr, rkey: target.rkey.get(), len: 1 << 13 };
        let bytes = [&place.emit(), params].concat();
        self.ask(Operation::Rpc { opcode: OPCODE, tag: 0 }, Payload::Inline(&bytes))
    }

    fn read(&mut self, len: usize) -> Observed {
        let sges = [self.here.sge(0, len)];
        let source = self.there.remote(0);
        self.ask(Operation::Read(source), Payload::Sges(&sges))
    }

    fn write(&mut self, len: usize) -> Observed {
        let sges = [self.here.sge(0, len)];
        let target = self.there.remote(0);
        self.ask(Operation::Write(target), Payload::Sges(&sges))
    }
}

/// The occupancy of the resources on a message's path: those of requests, those of answers, and the kernel.
#[derive(Default)]
struct Path {
    there: Stations,
    back: Stations,
    kernel: u64,
}

/// Returns the time at which the server has received the last frame of a request.
fn arrives(model: &StromFpga, seen: &Observed, path: &mut Path, starts: u64) -> u64 {
    let mut arrive = |bytes: &u64| model.frame(&mut path.there, starts, *bytes);
    seen.asked.iter().map(&mut arrive).max().unwrap_or(starts)
}

/// Returns the time at which the client's program sees the last byte of an answer. The answer comes from the
/// host's memory if `of_host`, otherwise from the NIC.
fn answers(model: &StromFpga, seen: &Observed, path: &mut Path, starts: u64, of_host: bool) -> u64 {
    let stations = &mut path.back;
    let mut last = starts;
    for bytes in &seen.answered {
        let ready = if of_host { model.gather(stations, starts, *bytes) } else { starts };
        let checked = model.frame(stations, ready, *bytes);
        last = model.place(stations, checked, *bytes);
    }
    last
}

/// Returns the time at which the bytes of a READ that was posted at time 0 are visible.
fn read(model: &StromFpga, seen: &Observed, path: &mut Path) -> u64 {
    let asked = arrives(model, seen, path, model.post.ns);
    answers(model, seen, path, asked, true)
}

/// Returns the time at which the bytes of a WRITE that was posted at time 0 are visible at the server. If a
/// kernel receives them, this includes the time until the kernel has received or written them.
fn write(model: &StromFpga, seen: &Observed, path: &mut Path) -> u64 {
    let stations = &mut path.there;
    let mut last = 0;
    let mut steps = seen.steps.iter();
    for bytes in &seen.asked {
        let ready = model.gather(stations, model.post.ns, *bytes);
        let checked = model.frame(stations, ready, *bytes);
        let step = steps.by_ref().find(|step| step.taken > 0);
        if let Some(step) = step {
            path.kernel = path.kernel.max(checked) + model.step_keeps(step);
        }
        if step.is_none() || seen.passing {
            last = model.place(stations, checked, *bytes);
        }
    }
    path.kernel += steps.map(|step| model.step_keeps(step)).sum::<u64>();
    last.max(if seen.steps.is_empty() { 0 } else { path.kernel + model.post.ns })
}

fn read_ns(model: &StromFpga, seen: &Observed) -> u64 {
    read(model, seen, &mut Path::default())
}

fn write_ns(model: &StromFpga, seen: &Observed) -> u64 {
    write(model, seen, &mut Path::default())
}

/// Returns the distance in nanoseconds at which messages complete that are posted together.
fn apart(mut done: impl FnMut(&mut Path) -> u64) -> f64 {
    let mut path = Path::default();
    let ends: Vec<u64> = (0..=MESSAGES).map(|_| done(&mut path)).collect();
    (ends[MESSAGES as usize] - ends[0]) as f64 / MESSAGES as f64
}

/// Returns the time until the answer of a request to a kernel is visible.
fn rpc_ns(model: &StromFpga, seen: &Observed) -> u64 {
    let path = &mut Path::default();
    let mut now = arrives(model, seen, path, model.post.ns);
    for (index, step) in seen.steps.iter().enumerate() {
        now += model.step(step);
        // The data of a READ by the kernel goes to its next step, or directly to the client.
        if step.asked > 0 && seen.steps.get(index + 1).is_none_or(|next| next.given == 0) {
            return answers(model, seen, path, now, true);
        }
        if step.asked > 0 {
            now += model.read.ns + model.pcie.ns(u64::from(step.asked));
        }
    }
    answers(model, seen, path, now, false)
}

/// Returns a number of a figure without a measured value.
fn number(
    figure: &'static str,
    curve: &'static str,
    point: impl ToString,
    unit: Unit,
    modelled: f64,
) -> Number {
    Number { figure, curve, at: point.to_string(), unit, part: Part::Predicted, measured: None, modelled }
}

fn ns(figure: &'static str, curve: &'static str, point: impl ToString, modelled: u64) -> Number {
    number(figure, curve, point, Unit::Nanoseconds, modelled as f64)
}

/// Adds a value that the paper's text states.
fn stated(number: Number, measured: f64) -> Number {
    Number { measured: Some(measured), ..number }
}

/// Returns all predictions for the FPGA at 10 Gb/s: Figures 5 and 7 to 11.
///
/// The work of CPUs in these figures (calls over TCP, check values and partitioning in software) is not
/// modelled; it is measured elsewhere.
pub fn at_10g(model: &StromFpga) -> Vec<Number> {
    let mut streams = streams(model, ["Figure 5b", "Figure 5c"]);
    // §6.1 states this rate for large payloads.
    for peak in streams.iter_mut().filter(|number| number.at == LONG.to_string()) {
        peak.measured = (peak.unit == Unit::Bandwidth).then_some(9.4e9 / 8.0);
    }
    let parts =
        [verbs(model, "Figure 5a"), streams, lists(model), gets(model), objects(model), shuffles(model)];
    parts.into_iter().flatten().collect()
}

/// Returns all predictions for the FPGA at 100 Gb/s: Figures 12 and 13.
pub fn at_100g(model: &StromFpga) -> Vec<Number> {
    let parts = [verbs(model, "Figure 12a"), streams(model, ["Figure 12b", "Figure 12c"]), counting(model)];
    parts.into_iter().flatten().collect()
}

/// Predicts the latency of READs and WRITEs by size.
fn verbs(model: &StromFpga, figure: &'static str) -> Vec<Number> {
    let mut bench = Bench::new(Get::default());
    let mut all = Vec::new();
    for len in SMALL {
        all.push(ns(figure, "READ", len, read_ns(model, &bench.read(len))));
        all.push(ns(figure, "WRITE", len, write_ns(model, &bench.write(len))));
    }
    all
}

/// Predicts consecutive READs and WRITEs, in bytes and messages per second.
fn streams(model: &StromFpga, [bytes, messages]: [&'static str; 2]) -> Vec<Number> {
    let mut bench = Bench::new(Get::default());
    let mut all = Vec::new();
    for len in STREAMED {
        let reading = bench.read(len);
        let writing = bench.write(len);
        let read = apart(|path| read(model, &reading, path));
        let write = apart(|path| write(model, &writing, path));
        for (curve, apart) in [("READ", read), ("WRITE", write)] {
            all.push(number(bytes, curve, len, Unit::Bandwidth, len as f64 * 1e9 / apart));
            if len <= 4096 {
                all.push(number(messages, curve, len, Unit::PerSecond, 1e9 / apart));
            }
        }
    }
    all
}

/// Figure 7: reads the 64-byte value of a random list element. A walk by the kernel visits the elements;
/// READs need one for each element, and one for the value.
fn lists(model: &StromFpga) -> Vec<Number> {
    let mut bench = Bench::new(Traversal::default());
    let value = bench.there.remote(VALUE).addr;
    let address_of = |bench: &Bench, index: usize| bench.there.remote(64 * index).addr;
    for index in 0..LISTS[LISTS.len() - 1] {
        let mut element = [0; 64];
        element[..8].copy_from_slice(&(index as u64).to_le_bytes());
        element[8..16].copy_from_slice(&address_of(&bench, index + 1).to_le_bytes());
        element[16..24].copy_from_slice(&value.to_le_bytes());
        bench.there.store(64 * index, &element);
    }
    let read = read_ns(model, &bench.read(64));
    let walks: Vec<u64> = (0..LISTS[LISTS.len() - 1])
        .map(|index| {
            let walk = Walk {
                address: address_of(&bench, 0),
                value_size: 64,
                key_mask: 1,
                predicate: Predicate::Equal,
                key: index as u64,
                value_position: 4,
                relative: false,
                next: Some(2),
                element: 64,
                most: 64,
                shape: Shape::List,
            };
            rpc_ns(model, &bench.rpc(&walk.emit()))
        })
        .collect();
    let mut all = Vec::new();
    for len in LISTS {
        let reads = (1..=len as u64).map(|element| (element + 1) * read).sum::<u64>() / len as u64;
        all.push(ns("Figure 7", "StRoM", len, walks[..len].iter().sum::<u64>() / len as u64));
        all.push(ns("Figure 7", "READ", len, reads));
    }
    all
}

/// Figure 8: a GET by a kernel, and by two READs.
fn gets(model: &StromFpga) -> Vec<Number> {
    let mut bench = Bench::new(Get::default());
    let mut all = Vec::new();
    for len in VALUES {
        let value = bench.there.remote(VALUE).addr;
        let slot = Slot { keys: [7, 8, 9], values: [value; 3], lens: [len as u32; 3] };
        bench.there.store(0, &slot.emit());
        let lookup = Lookup { slot: bench.there.remote(0).addr, key: 9 };
        let get = rpc_ns(model, &bench.rpc(&lookup.emit()));
        let reads = read_ns(model, &bench.read(Slot::LEN)) + read_ns(model, &bench.read(len));
        let own = ns("Figure 8", "StRoM", len, get);
        // Read from the figure by RedN's authors (Table 5 of their paper).
        all.push(match len {
            64 => stated(own, 7_000.0),
            4096 => stated(own, 12_000.0),
            _ => own,
        });
        all.push(ns("Figure 8", "READ", len, reads));
        if len == 64 {
            // §6.2 states a saving of around 5 µs per lookup.
            all.push(stated(ns("Figure 8", "saved by StRoM", len, reads - get), 5_000.0));
        }
    }
    all
}

/// Figures 9 and 10: an object with its check value, and a plain READ of the same size.
fn objects(model: &StromFpga) -> Vec<Number> {
    let mut bench = Bench::new(Consistency::default());
    let mut all = Vec::new();
    for len in VALUES {
        let bytes = vec![5; len];
        bench.there.store(0, &[&bytes[..], &crc64(&bytes).to_le_bytes()].concat());
        let object = |tries| Object { address: bench.there.remote(0).addr, len: len as u32, tries }.emit();
        let [once, twice] = [object(1), object(2)];
        let checked = rpc_ns(model, &bench.rpc(&once));
        let read = read_ns(model, &bench.read(len + CRC_LEN));
        all.push(ns("Figure 9", "StRoM", len, checked));
        all.push(ns("Figure 9", "READ", len, read));
        if len == 4096 {
            // §6.3 states an overhead of 1 µs, less than 8 %.
            all.push(stated(ns("Figure 9", "more than READ", len, checked.saturating_sub(read)), 1_000.0));
            let over = number("Figure 9", "over READ", len, Unit::Ratio, checked as f64 / read as f64);
            all.push(stated(over, 1.08));
        }
        // Cost of a second read: a torn object with two tries, minus the object with one try.
        bench.there.store(0, &[6]);
        let again = rpc_ns(model, &bench.rpc(&twice)) - rpc_ns(model, &bench.rpc(&once));
        for failures in FAILURES {
            let share = |more: u64| (u64::from(failures) * more) / 100;
            if matches!(len, 64 | 4096) {
                let (own, plain) =
                    if len == 64 { ("StRoM, 64 B", "READ, 64 B") } else { ("StRoM, 4 KB", "READ, 4 KB") };
                all.push(ns("Figure 10", own, failures, checked + share(again)));
                all.push(ns("Figure 10", plain, failures, read + share(read)));
            }
        }
    }
    all
}

/// Figure 11: RPC WRITEs into 1024 partitions, and plain WRITEs of the same bytes.
fn shuffles(model: &StromFpga) -> Vec<Number> {
    let mut bench = Bench::new(Shuffle::default());
    let mut all = Vec::new();
    for len in SHUFFLED {
        let plain = write_ns(model, &bench.write(len));
        let values = len as u64 / 8;
        for first in (0..1024_u32).step_by(8) {
            let address_of = |number: u32| bench.there.remote((number as usize) * (len / 1024)).addr;
            let partitions: Vec<Partition> = (first..first + 8)
                .map(|number| Partition { address: address_of(number), values: values / 1024 })
                .collect();
            bench.rpc(&histogram(10, first, &partitions));
        }
        let bytes: Vec<u8> = (0..values).flat_map(|value| (value * 7).to_le_bytes()).collect();
        bench.here.store(0, &bytes);
        let sges = [bench.here.sge(0, len)];
        let seen = bench.ask(Operation::RpcWrite { opcode: OPCODE, tag: 1 }, Payload::Sges(&sges));
        let own = write_ns(model, &seen);
        all.push(ns("Figure 11", "StRoM", len, own));
        all.push(ns("Figure 11", "WRITE", len, plain));
        if len == LONG {
            // §6.4 says that the performance is close to equal, without a number.
            let over = own as f64 / plain as f64;
            all.push(number("Figure 11", "StRoM over a plain WRITE", len, Unit::Ratio, over));
        }
    }
    all
}

/// Figure 13b: consecutive WRITEs whose values are counted in transit, and plain ones.
fn counting(model: &StromFpga) -> Vec<Number> {
    let mut plain = Bench::new(HyperLogLog::default());
    let mut counted = Bench::new(HyperLogLog::default());
    counted.attach();
    let mut all = Vec::new();
    for len in STREAMED {
        let [plain, counted] = [&mut plain, &mut counted].map(|bench| {
            let seen = bench.write(len);
            apart(|path| write(model, &seen, path))
        });
        let rate = |apart: f64| len as f64 * 1e9 / apart;
        all.push(number("Figure 13", "StRoM", len, Unit::Bandwidth, rate(counted)));
        all.push(number("Figure 13", "WRITE", len, Unit::Bandwidth, rate(plain)));
        if len == LONG {
            // §7.2 states that there is no overhead.
            let ratio = number("Figure 13", "HLL over a plain WRITE", len, Unit::Ratio, plain / counted);
            all.push(stated(ratio, 1.0));
        }
    }
    all
}
