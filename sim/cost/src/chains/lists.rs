//! Models of the search of a list with eight nodes over the network (`RedN`, Figure 13).
//!
//! The list is searched to its end by a chain (Figure 12), by a chain with a break (Figure 6), by READs, and
//! by a call. The shipped chain with a break is modelled too; it is a ring, while the paper's chain is
//! posted ahead for each request.
//!
//! A READ of this language has one local piece; the authors' READ has three, with three addresses. A node is
//! therefore read into a buffer first. One WRITE copies its key and the address of its value, and another
//! the address of the next node, to the work requests that use them.

use crate::connectx5::ConnectX5;
use crate::number::{Number, Part, Unit};
use remora_nic::Fetching;
use remora_nic::wqe::WqeOpcode;

use super::experiment::{Experiment, KEY, Site};
use super::lookups::{self, COMPARAND, ID, REMOTE};
use super::paper::{FIGURE_13, RANGES};
use super::shipped;
use remora_chain::{Location, Piece, Program, Segment, Value, Work, header};

/// Number of nodes of the list, and length of a value in bytes.
const NODES: u64 = 8;
const VALUE: u64 = 64;
/// Length of a node: 48 bits of key, the address of the value, two unused bytes, the address of the next
/// node.
const NODE: u64 = 24;
const NEXT: u64 = 16;

pub(crate) fn numbers(model: &ConnectX5) -> Vec<Number> {
    let ways: [fn(&ConnectX5, u64) -> u64; 4] =
        [|model, index| walk(model, index, false), |model, index| walk(model, index, true), reads, call];
    let mut all = Vec::new();
    for ((curve, measured), way) in FIGURE_13.iter().zip(ways) {
        let took: Vec<u64> = (0..NODES).map(|index| way(model, index)).collect();
        all.extend(RANGES.iter().zip(measured).map(|(range, measured)| Number {
            figure: "Figure 13",
            curve,
            at: range.to_string(),
            unit: Unit::Nanoseconds,
            part: if curve.starts_with("RedN") { Part::Predicted } else { Part::Baseline },
            measured: Some(*measured),
            // The key is equally often at each position of the range.
            modelled: mean(&took[..*range]),
        }));
    }
    let took: Vec<u64> = (0..NODES).map(|index| shipped::search(model, index, VALUE)).collect();
    all.extend(RANGES.iter().map(|range| Number {
        figure: "Figure 13",
        curve: "list-break.chain",
        at: range.to_string(),
        unit: Unit::Nanoseconds,
        part: Part::Predicted,
        measured: None,
        modelled: mean(&took[..*range]),
    }));
    all
}

fn mean(took: &[u64]) -> f64 {
    took.iter().sum::<u64>() as f64 / took.len() as f64
}

/// Queues of the server.
struct Queues {
    main: usize,
    work: usize,
    answer: usize,
}

/// Returns the time of a search by a chain for the key at node `position`.
fn walk(model: &ConnectX5, position: u64, breaks: bool) -> u64 {
    let mut experiment = Experiment::new();
    let client = experiment.client(0, 1);
    let list = list(&mut experiment, position);
    let value = experiment.section("value", &[7; VALUE as usize]);
    let target = experiment.section("answer", &[0; VALUE as usize]);
    // The message has the address of the first node, and the key once per comparison.
    let message = [&[0; 8], &KEY.to_le_bytes()[..6].repeat(NODES as usize)[..]].concat();
    let message_len = message.len() as u64;
    let message = experiment.section("message", &message);
    lookups::point(&mut experiment, message, list);
    lookups::point(&mut experiment, list + position * NODE + 6, value);
    let queues = Queues {
        main: experiment.queue("main", Fetching::Posted, Site::server()),
        work: experiment.queue("work", Fetching::Enabled, Site::server()),
        answer: experiment.queue("answer", Fetching::Enabled, Site::server().over_the_network()),
    };
    let node = experiment.section("node", &[0; NODE as usize]);
    let program = &mut experiment.program;
    program.push(client, Work::send(message, message_len));
    program.push(queues.main, Work::wait_received(client, 1));
    let mut scattered = Vec::new();
    for number in 0..NODES {
        let answer = Work::write(value, target, VALUE).dormant();
        let [read, swap] = self::node(program, &queues, number, node, answer, breaks);
        if number == 0 {
            scattered.push(Piece { at: read, len: 8 });
        }
        scattered.push(Piece { at: swap, len: 6 });
    }
    program.queues[client].receives.push(scattered);
    lookups::seen(&experiment.run(model), model, &[queues.answer])
}

/// Generates the work requests for one node: READ the node, compare its key, and answer on a match. Returns
/// the locations for the node's address and the key.
fn node(
    program: &mut Program,
    queues: &Queues,
    number: u64,
    node: Location,
    answer: Work,
    breaks: bool,
) -> [Location; 2] {
    let Queues { main, work, answer: answers } = *queues;
    let [slots, ends] = if breaks { [11, 6] } else { [6, 3] };
    let first = number * slots;
    let done = number * ends;
    let next = Location { segment: Segment::Queue(work), offset: (first + slots) * 64 } + REMOTE;
    let next = if number + 1 < NODES { next } else { Program::scrap() };
    let answer = if breaks { answer.signaled() } else { answer };
    let flags = answer.flags;
    let answer = program.push(answers, answer);

    program.push(main, Work::enable(work, first + slots - u64::from(breaks)));
    let read = program.push(work, Work::read(Program::scrap(), node, NODE).signaled());
    program.push(work, Work::wait(work, done + 1));
    program.push(work, Work::write(node, answer + ID, 14));
    program.push(work, Work::write(node + NEXT, next, 8).signaled());
    program.push(work, Work::wait(work, done + 2));
    let [asleep, awake] = [0, WqeOpcode::WRITE.0].map(|opcode| header(opcode, flags, 0));
    let [expected, becomes] = [asleep, awake].map(Value::Number);
    let swap = program.push(work, Work::compare_swap(answer, expected, becomes, Program::scrap()).signaled());
    if breaks {
        program.push(work, Work::wait(work, done + 3));
        break_if(program, queues, answer, awake, [first + slots, done + 3]);
    }
    program.push(main, Work::wait(work, done + ends));
    program.push(main, Work::enable(answers, number + 1));
    if breaks {
        program.push(main, Work::wait(answers, number + 1));
    }
    [read + REMOTE, swap + COMPARAND]
}

/// Generates a break between the comparison and the answer (Figure 6), as a separate `if` of 1C + 1A + 3E.
///
/// The answer's header is copied into a comparison. If the answer is awake, a WRITE makes it unsignaled, so
/// that no later node starts. The node's work requests end before slot `end`, with `done` completions so
/// far.
fn break_if(
    program: &mut Program,
    &Queues { main, work, .. }: &Queues,
    answer: Location,
    awake: u64,
    [end, done]: [u64; 2],
) {
    let place = Location { segment: Segment::Queue(work), offset: (end - 1) * 64 };
    let quiet = program.constant(header(WqeOpcode::WRITE.0, 0, 0));
    let silence = Work::write(quiet, answer, 8).signaled().dormant();
    let flags = silence.flags;
    program.push(work, Work::write(answer, place + ID, 6).signaled());
    program.push(work, Work::wait(work, done + 1));
    let expected = Value::Number(header(0, flags, awake));
    let becomes = Value::Number(header(WqeOpcode::WRITE.0, flags, 0));
    program.push(work, Work::compare_swap(place, expected, becomes, Program::scrap()).signaled());
    program.push(main, Work::wait(work, done + 2));
    program.push(main, Work::enable(work, end));
    program.push(work, silence);
}

/// Adds the list; node `position` has the searched key.
fn list(experiment: &mut Experiment, position: u64) -> Location {
    let node = |index: u64| {
        let key = if index == position { KEY } else { index };
        [&key.to_le_bytes()[..6], &[0; NODE as usize - 6]].concat()
    };
    let list = experiment.section("list", &(0..NODES).flat_map(node).collect::<Vec<u8>>());
    for index in 0..NODES {
        lookups::point(experiment, list + index * NODE + NEXT, list + (index + 1) % NODES * NODE);
    }
    list
}

/// Returns the time of a search by one READ per node and one for the value.
fn reads(model: &ConnectX5, position: u64) -> u64 {
    let nodes = vec![NODE; position as usize + 1];
    lookups::reads(model, &[&nodes[..], &[VALUE]].concat())
}

fn call(model: &ConnectX5, _: u64) -> u64 {
    lookups::call(model, VALUE)
}
