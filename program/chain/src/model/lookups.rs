//! Hash GETs over the network: by a chain (`RedN`, Figure 9), by READs, by a call.
//!
//! Clients post into a managed queue and then ring for an ENABLE of it, as the authors' published benchmark
//! does.

use remora_nic::Fetching;
use remora_nic::cost::connectx5::ConnectX5;
use remora_nic::cost::number::{Number, Part, Unit};
use remora_nic::cost::timeline::Doorbell;
use remora_nic::wqe::WqeOpcode;

use super::paper::{CHAIN_GETS, Curve, IDEAL, ONE_SIDED, SIZES, TABLE_4, TABLE_5, TWO_SIDED};
use super::{Experiment, KEY, Run, Site, shipped};
use crate::program::{Location, Piece, Program, Value, Work, header};

/// Offsets in a work request.
pub const ID: u64 = 2;
pub const REMOTE: u64 = 32;
pub const COMPARAND: u64 = 42;
/// A bucket: 48 bits of the key, the address of the value.
const BUCKET: u64 = 14;
/// Bytes of FaRM's neighbourhood of six, by the authors' benchmark.
const NEIGHBOURHOOD: u64 = 6 * 19;
/// Requests of a measurement of throughput.
const REQUESTS: u64 = 32;

pub fn numbers(model: &ConnectX5) -> Vec<Number> {
    let mut all = Vec::new();
    let mut add = |curve: &Curve, part, of: &dyn Fn(u64) -> u64| {
        all.extend(SIZES.iter().zip(curve.ns).map(|(len, measured)| Number {
            figure: curve.figure,
            curve: curve.name,
            at: len.to_string(),
            unit: Unit::Nanoseconds,
            part,
            measured: Some(measured),
            modelled: of(*len) as f64,
        }));
    };
    let programs = ["get", "get-two-sequential", "get-two-parallel", "get"];
    for (curve, program) in CHAIN_GETS.iter().zip(programs) {
        add(curve, Part::Predicted, &|len| shipped::get(model, program, len));
    }
    add(&IDEAL, Part::Baseline, &|len| reads(model, &[len]));
    for curve in &ONE_SIDED {
        add(curve, Part::Baseline, &|len| reads(model, &[NEIGHBOURHOOD, len]));
    }
    add(&TWO_SIDED, Part::Baseline, &|len| call(model, len));
    all.extend(ideal_by_size(model));
    all.extend(TABLE_4.map(|(len, ports, measured)| Number {
        figure: "Table 4",
        curve: if ports == 1 { "one port" } else { "two ports" },
        at: len.to_string(),
        unit: Unit::PerSecond,
        part: Part::Predicted,
        measured: Some(measured),
        modelled: gets_a_second(model, len, ports),
    }));
    all.extend(TABLE_5.map(|(len, measured)| Number {
        figure: "Table 5",
        curve: "RedN, median",
        at: len.to_string(),
        unit: Unit::Nanoseconds,
        part: Part::Predicted,
        measured: Some(measured),
        modelled: shipped::get(model, "get", len) as f64,
    }));
    all
}

/// The time of one READ by its size, beyond one of the least size. Constants were read from it. Its level
/// differs from Figure 7, which also has a READ of 64 B, and which the constants follow.
fn ideal_by_size(model: &ConnectX5) -> Vec<Number> {
    let least = reads(model, &SIZES[..1]);
    let sizes = SIZES.iter().zip(IDEAL.ns).skip(1);
    let beyond = sizes.map(|(len, measured)| Number {
        figure: IDEAL.figure,
        curve: "Ideal, beyond 64 B",
        at: len.to_string(),
        unit: Unit::Nanoseconds,
        part: Part::Source,
        measured: Some(measured - IDEAL.ns[0]),
        modelled: (reads(model, &[*len]) - least) as f64,
    });
    beyond.collect()
}

/// A word of the data is the address of a place.
pub fn point(experiment: &mut Experiment, at: Location, to: Location) {
    experiment.program.let_be(at, Value::At(to));
}

/// When the last answer is seen in the client's memory.
pub fn seen(run: &Run, model: &ConnectX5, answers: &[usize]) -> u64 {
    let of = |queue: &usize| answered(run, *queue).last().copied().unwrap_or(0);
    answers.iter().map(of).max().unwrap_or(0) + model.host.ns / 2
}

/// When the answers of a queue are in the client's memory.
fn answered(run: &Run, queue: usize) -> Vec<u64> {
    let writes = run.of(queue).filter(|(work, _)| work.wqe.opcode() == WqeOpcode::WRITE);
    writes.map(|(_, times)| times.there).collect()
}

/// GETs by one client's chain, as many as a port or a host can do.
fn gets_a_second(model: &ConnectX5, len: u64, ports: usize) -> f64 {
    let mut experiment = Experiment::new();
    let answers: Vec<_> = (0..ports).map(|port| gets(&mut experiment, port, len)).collect();
    let run = experiment.run(model);
    answers.iter().map(|queue| super::rate(&answered(&run, *queue))).sum()
}

/// Bytes of a client's request: the key, which goes into a comparison, and the address of a bucket.
const LOOK: u64 = 6 + 8;

/// A client of a port that asks [`REQUESTS`] times, and the server's chain for them. The chain is posted
/// ahead for each request, as in the authors' benchmark. It READs the bucket into the answer's id and source,
/// compares the id, and answers. Returns the queue that answers.
fn gets(experiment: &mut Experiment, port: usize, len: u64) -> usize {
    let from = experiment.client(port, REQUESTS);
    let value = experiment.section("value", &vec![7; len as usize]);
    let to = experiment.section("answer", &vec![0; len as usize]);
    let key = &KEY.to_le_bytes()[..6];
    let [bucket, message] =
        ["bucket", "message"].map(|name| experiment.section(name, &[key, &[0; 10]].concat()));
    point(experiment, bucket + 6, value);
    point(experiment, message + 6, bucket);
    let site = Site::server().on_port(port);
    let main = experiment.queue("main", Fetching::Posted, site);
    let work = experiment.queue("work", Fetching::Enabled, site);
    let answer = experiment.queue("answer", Fetching::Enabled, site.over_the_network());
    let program = &mut experiment.program;
    let [asleep, awake] = [0, WqeOpcode::WRITE.0].map(|opcode| Value::Number(header(opcode, 0, 0)));
    for number in 1..=REQUESTS {
        program.push(from, Work::send(message, LOOK));
        let woken = program.push(answer, Work::write(value, to, len).dormant());
        let read = program.push(work, Work::read(bucket, woken + ID, BUCKET).signaled());
        program.push(work, Work::wait(work, 2 * number - 1));
        let swap = Work::compare_swap(woken, asleep, awake, Program::scrap()).signaled();
        let swap = program.push(work, swap);
        program.push(main, Work::wait_received(from, number));
        program.push(main, Work::enable(work, 3 * number));
        program.push(main, Work::wait(work, 2 * number));
        program.push(main, Work::enable(answer, number));
        let pieces = [(swap + COMPARAND, 6), (read + REMOTE, 8)];
        program.queues[from].receives.push(pieces.map(|(at, len)| Piece { at, len }).to_vec());
    }
    answer
}

/// READs one after the other, each by a program that has seen the one before.
pub fn reads(model: &ConnectX5, lens: &[u64]) -> u64 {
    let mut experiment = Experiment::new();
    let queue = experiment.queue("reads", Fetching::Enabled, Site::client().over_the_network());
    for (number, len) in (0..).zip(lens) {
        let doorbell = if number == 0 { Doorbell::Now } else { Doorbell::AfterCompletions(queue, number) };
        let ring = experiment.queue("client", Fetching::Posted, Site::client().rung(doorbell));
        experiment.program.push(ring, Work::enable(queue, number + 1));
        let from = experiment.section("there", &vec![7; *len as usize]);
        let to = experiment.section("here", &vec![0; *len as usize]);
        experiment.program.push(queue, Work::read(from, to, *len).signaled());
    }
    experiment.run(model).done(queue) + model.host.ns / 2
}

/// A call of a server that polls and has nothing to compute.
pub fn call(model: &ConnectX5, len: u64) -> u64 {
    let mut experiment = Experiment::new();
    let from = experiment.client(0, 1);
    let value = experiment.section("value", &vec![7; len as usize]);
    let to = experiment.section("to", &vec![0; len as usize]);
    let server = Site::server().rung(Doorbell::AfterMessages(from, 1));
    let ring = experiment.queue("server", Fetching::Posted, server);
    let answer = experiment.queue("answer", Fetching::Enabled, Site::server().over_the_network());
    let [message, question] =
        ["message", "question"].map(|name| experiment.section(name, &[0; LOOK as usize]));
    let program = &mut experiment.program;
    program.push(from, Work::send(message, LOOK));
    program.queues[from].receives.push(vec![Piece { at: question, len: LOOK as u32 }]);
    program.push(ring, Work::enable(answer, 1));
    program.push(answer, Work::write(value, to, len));
    seen(&experiment.run(model), model, &[answer])
}
