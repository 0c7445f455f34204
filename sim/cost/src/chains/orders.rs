//! Models of single verbs, chains of NOPs in the three orders, and verbs on all processing units, from which
//! the model's constants were derived.

use crate::connectx5::{ConnectX5, UNITS};
use crate::number::{Number, Part, Unit};
use remora_nic::{Calculation, Fetching};

use super::experiment::{self, Experiment, Site};
use super::paper::{CHAINS, FIGURE_7, FIGURE_8, TABLE_3_NATIVE};
use remora_chain::{Location, Program, Section, Segment, Value, Work};

/// Payload of a verb in bytes.
const LEN: u64 = 64;
/// Number of queues and of work requests per queue in rate measurements, enough to keep all units busy.
const QUEUES: usize = 4 * UNITS;
const EACH: usize = 32;

pub(crate) fn numbers(model: &ConnectX5) -> Vec<Number> {
    let source = |figure, curve, point: String, unit, measured, modelled| Number {
        figure,
        curve,
        at: point,
        unit,
        part: Part::Source,
        measured: Some(measured),
        modelled,
    };
    let ns = Unit::Nanoseconds;
    let verbs = FIGURE_7.map(|(verb, measured)| {
        source("Figure 7", "64 B", verb.to_owned(), ns, measured, latency(model, verb))
    });
    let chains = FIGURE_8.iter().enumerate().flat_map(|(order, (curve, first, further))| {
        CHAINS.map(|count| {
            let measured = first + further * (count - 1) as f64;
            source("Figure 8", curve, count.to_string(), ns, measured, chain(model, order, count))
        })
    });
    let rates = TABLE_3_NATIVE.map(|(verb, measured)| {
        source("Table 3", "native", verb.to_owned(), Unit::PerSecond, measured, rate(model, verb))
    });
    verbs.into_iter().chain(chains).chain(rates).collect()
}

/// Returns a signaled verb between two locations.
fn verb(name: &str, source: Location, target: Location) -> Work {
    let one = Value::Number(1);
    match name {
        "READ" => Work::read(source, target, LEN),
        "WRITE" => Work::write(source, target, LEN),
        "CAS" => Work::compare_swap(target, Value::Number(0), one, Program::scrap()),
        "ADD" => Work::add(target, one, Program::scrap()),
        "MAX" => Work::calculate(Calculation::Max, target, one, Program::scrap()),
        _ => Work::nop(),
    }
    .signaled()
}

/// Adds two sections of [`LEN`] bytes.
fn places(program: &mut Program) -> [Location; 2] {
    let mut section = Section { name: "data".into(), ..Section::default() };
    let offsets = ["from", "to"].map(|name| section.put(name, &[0; LEN as usize]));
    program.sections.push(section);
    let segment = Segment::Section(program.sections.len() - 1);
    offsets.map(|offset| Location { segment, offset })
}

/// Returns the time of one verb, from the doorbell to the polled completion.
fn latency(model: &ConnectX5, name: &str) -> f64 {
    let mut experiment = Experiment::new();
    let local = name.ends_with("local");
    let site = if local { Site::client() } else { Site::client().over_the_network() };
    let queue = experiment.queue("client", Fetching::Posted, site);
    let [source, target] = places(&mut experiment.program);
    experiment.program.push(queue, verb(name, source, target));
    (experiment.run(model).done(queue) + model.host.ns / 2) as f64
}

/// Returns the time of a chain of NOPs on one NIC, from the doorbell to the last polled completion.
fn chain(model: &ConnectX5, order: usize, count: usize) -> f64 {
    let mut experiment = Experiment::new();
    let main = experiment.queue("main", Fetching::Posted, Site::client());
    let managed = experiment.queue("managed", Fetching::Enabled, Site::client());
    let program = &mut experiment.program;
    for number in 1..=count as u64 {
        if order == 2 {
            if number > 1 {
                program.push(main, Work::wait(managed, number - 1));
            }
            program.push(main, Work::enable(managed, number));
            program.push(managed, Work::nop().signaled());
            continue;
        }
        if order == 1 && number > 1 {
            program.push(main, Work::wait(main, number - 1));
        }
        program.push(main, Work::nop().signaled());
    }
    let run = experiment.run(model);
    (run.done(main).max(run.done(managed)) + model.host.ns / 2) as f64
}

/// Returns the rate of a verb over the network with all units of a port busy.
fn rate(model: &ConnectX5, name: &str) -> f64 {
    let mut experiment = Experiment::new();
    for _ in 0..QUEUES {
        let queue = experiment.queue("client", Fetching::Posted, Site::client().over_the_network());
        let [source, target] = places(&mut experiment.program);
        for _ in 0..EACH {
            experiment.program.push(queue, verb(name, source, target));
        }
    }
    let run = experiment.run(model);
    let mut done: Vec<u64> = run.times.iter().map(|times| times.done).collect();
    done.sort_unstable();
    // The last work requests no longer compete for units.
    experiment::rate(&done[..done.len() * 3 / 4])
}
