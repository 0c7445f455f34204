//! Models of hash GETs over the network: by a chain (`RedN`, Figure 9), by READs, and by a call.
//!
//! Clients post into a managed queue and then ring the doorbell of a queue with its ENABLE, as the authors'
//! published benchmark does.

use crate::connectx5::ConnectX5;
use crate::number::{Number, Part, Unit};
use crate::timeline::Doorbell;
use remora_nic::Fetching;
use remora_nic::wqe::WqeOpcode;

use super::experiment::{Experiment, KEY, Run, Site, rate};
use super::paper::{CHAIN_GETS, Curve, IDEAL, ONE_SIDED, SIZES, TABLE_4, TABLE_5, TWO_SIDED};
use super::shipped;
use remora_chain::{Location, Piece, Program, Value, Work, header};

/// Offsets of fields in a work request.
pub(crate) const ID: u64 = 2;
pub(crate) const REMOTE: u64 = 32;
pub(crate) const COMPARAND: u64 = 42;
/// Length of a bucket: 48 bits of key and the address of the value.
const BUCKET: u64 = 14;
/// Length of FaRM's neighbourhood of six entries in the authors' benchmark, in bytes.
const NEIGHBOURHOOD: u64 = 6 * 19;
/// Number of requests in a throughput measurement.
const REQUESTS: u64 = 32;

pub(crate) fn numbers(model: &ConnectX5) -> Vec<Number> {
    let mut all = Vec::new();
    let mut add = |curve: &Curve, part, predict: &dyn Fn(u64) -> u64| {
        all.extend(SIZES.iter().zip(curve.ns).map(|(len, measured)| Number {
            figure: curve.figure,
            curve: curve.name,
            at: len.to_string(),
            unit: Unit::Nanoseconds,
            part,
            measured: Some(measured),
            modelled: predict(*len) as f64,
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

/// Returns the additional time of one READ by size, relative to the smallest size. Constants of the model
/// were read from it. Its absolute level differs from Figure 7, which also has a READ of 64 B and determines
/// the constants.
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

/// Sets a word of the data to the address of `target`.
pub(crate) fn point(experiment: &mut Experiment, location: Location, target: Location) {
    experiment.program.set_at_load(location, Value::At(target));
}

/// Returns the time at which the client sees the last answer in its memory.
pub(crate) fn seen(run: &Run, model: &ConnectX5, answers: &[usize]) -> u64 {
    let last_answer = |queue: &usize| answered(run, *queue).last().copied().unwrap_or(0);
    answers.iter().map(last_answer).max().unwrap_or(0) + model.host.ns / 2
}

/// Returns the times at which the answers of a queue are in the client's memory.
fn answered(run: &Run, queue: usize) -> Vec<u64> {
    let writes = run.of(queue).filter(|(work, _)| work.wqe.opcode() == WqeOpcode::WRITE);
    writes.map(|(_, times)| times.there).collect()
}

/// Returns the maximum number of GETs per second by chain, on one or two ports.
fn gets_a_second(model: &ConnectX5, len: u64, ports: usize) -> f64 {
    let mut experiment = Experiment::new();
    let answers: Vec<_> = (0..ports).map(|port| gets(&mut experiment, port, len)).collect();
    let run = experiment.run(model);
    answers.iter().map(|queue| rate(&answered(&run, *queue))).sum()
}

/// Length of a client's request in bytes: the key, for a comparison, and the address of a bucket.
const LOOK: u64 = 6 + 8;

/// Adds a client on a port that sends [`REQUESTS`] requests, and the server's chain. The chain is posted
/// ahead for each request, as in the authors' benchmark. It READs the bucket into id and source of the
/// answer, compares the id, and answers. Returns the queue with the answers.
fn gets(experiment: &mut Experiment, port: usize, len: u64) -> usize {
    let client = experiment.client(port, REQUESTS);
    let value = experiment.section("value", &vec![7; len as usize]);
    let target = experiment.section("answer", &vec![0; len as usize]);
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
        program.push(client, Work::send(message, LOOK));
        let woken = program.push(answer, Work::write(value, target, len).dormant());
        let read = program.push(work, Work::read(bucket, woken + ID, BUCKET).signaled());
        program.push(work, Work::wait(work, 2 * number - 1));
        let swap = Work::compare_swap(woken, asleep, awake, Program::scrap()).signaled();
        let swap = program.push(work, swap);
        program.push(main, Work::wait_received(client, number));
        program.push(main, Work::enable(work, 3 * number));
        program.push(main, Work::wait(work, 2 * number));
        program.push(main, Work::enable(answer, number));
        let pieces = [(swap + COMPARAND, 6), (read + REMOTE, 8)];
        program.queues[client]
            .receives
            .push(pieces.map(|(location, len)| Piece { at: location, len }).to_vec());
    }
    answer
}

/// Returns the time of consecutive READs, each posted after the previous one has completed.
pub(crate) fn reads(model: &ConnectX5, lens: &[u64]) -> u64 {
    let mut experiment = Experiment::new();
    let queue = experiment.queue("reads", Fetching::Enabled, Site::client().over_the_network());
    for (number, len) in (0..).zip(lens) {
        let doorbell = if number == 0 { Doorbell::Now } else { Doorbell::AfterCompletions(queue, number) };
        let ring = experiment.queue("client", Fetching::Posted, Site::client().rung(doorbell));
        experiment.program.push(ring, Work::enable(queue, number + 1));
        let source = experiment.section("there", &vec![7; *len as usize]);
        let target = experiment.section("here", &vec![0; *len as usize]);
        experiment.program.push(queue, Work::read(source, target, *len).signaled());
    }
    experiment.run(model).done(queue) + model.host.ns / 2
}

/// Returns the time of a call to a polling server without computation.
pub(crate) fn call(model: &ConnectX5, len: u64) -> u64 {
    let mut experiment = Experiment::new();
    let client = experiment.client(0, 1);
    let value = experiment.section("value", &vec![7; len as usize]);
    let target = experiment.section("to", &vec![0; len as usize]);
    let server = Site::server().rung(Doorbell::AfterMessages(client, 1));
    let ring = experiment.queue("server", Fetching::Posted, server);
    let answer = experiment.queue("answer", Fetching::Enabled, Site::server().over_the_network());
    let [message, question] =
        ["message", "question"].map(|name| experiment.section(name, &[0; LOOK as usize]));
    let program = &mut experiment.program;
    program.push(client, Work::send(message, LOOK));
    program.queues[client].receives.push(vec![Piece { at: question, len: LOOK as u32 }]);
    program.push(ring, Work::enable(answer, 1));
    program.push(answer, Work::write(value, target, len));
    seen(&experiment.run(model), model, &[answer])
}
