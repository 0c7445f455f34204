//! Figure 15: the latency of a reader's GETs, by chain and by call, while writers keep the server's worker
//! busy. All clients share one core, and the server's NIC and its worker share another.

mod generator;
mod shop;
mod way;

use std::sync::Arc;

use anyhow::Result;
use remora_cost::number::{Number, Part, Unit};

use self::generator::{Generator, Seen};
use self::shop::Shop;
use super::server::Server;
use crate::numbers;
use crate::testbed::Testbed;
use crate::{Args, PortName, Row};
use remora_options::cores::pin;
pub(crate) use way::Way;

/// The numbers of writers.
const WRITERS: [usize; 5] = [1, 2, 4, 8, 16];
/// The largest ratio of a chain's p99 with 16 writers to that with one, and the least ratio of a call's p99
/// to the chain's, both with 16 writers.
const AIMS: [f64; 2] = [3.0, 5.0];
/// The authors' points, ns: a call's mean and p99 are read from the figure; RedN's, by the text, "sit below 7
/// us".
const CALLED: [[f64; 5]; 2] =
    [[12.3e3, 14.5e3, 20.3e3, 39.4e3, 107.2e3], [25.7e3, 33.0e3, 54.7e3, 98.7e3, 230.5e3]];
const BELOW: f64 = 7e3;

const WAYS: [(Way, &str); 2] = [(Way::Chain, "chain"), (Way::Calls, "two-sided")];
const METRICS: [&str; 3] = ["latency_mean", "latency_p50", "latency_p99"];

/// The metrics of one kind of GET with a number of writers, by round, and the SETs per second.
#[derive(Default)]
struct Rounds {
    metrics: [Vec<f64>; 3],
    sets: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, seen: &Seen) {
        let gets = &seen.gets;
        let values = [gets.mean(), gets.value_at_quantile(0.5) as f64, gets.value_at_quantile(0.99) as f64];
        self.metrics.iter_mut().zip(values).for_each(|(rounds, value)| rounds.push(value));
        self.sets.push(seen.sets);
    }

    fn p99(&self) -> &[f64] {
        &self.metrics[2]
    }
}

fn case(port: PortName, writers: usize, way: &str) -> String {
    format!("software/{}/isolation/writers-{writers}/{way}", port.name())
}

/// Measures one port and adds its rows. For shared memory it also draws the figure.
pub(crate) fn run(args: &Args, port: PortName, cores: [usize; 2]) -> Result<Vec<Row>> {
    let wanted = |writers: &usize| {
        let named =
            |way: &str, metric: &str| args.wants_case(&format!("{}/{metric}", case(port, *writers, way)));
        WAYS.iter().any(|(_, way)| METRICS.iter().chain(&["sets"]).any(|metric| named(way, metric)))
    };
    let crowds: Vec<usize> = WRITERS.into_iter().filter(wanted).collect();
    if crowds.is_empty() {
        return Ok(Vec::new());
    }
    let measured = measure(args, port, cores, &crowds)?;
    if port == PortName::Shm && crowds.len() == WRITERS.len() {
        draw(args, &measured)?;
    }
    Ok(rows(port, &crowds, &measured))
}

/// Measures by number of writers and kind of GET, in interleaved rounds.
fn measure(args: &Args, port: PortName, cores: [usize; 2], crowds: &[usize]) -> Result<Vec<[Rounds; 2]>> {
    let testbed = Arc::new(Testbed::loopback(port, cores));
    let server = Server::start(&testbed, move |_| Shop::open(port))?;
    pin(cores[0])?;
    let mut generator = Generator::connect(port, &server)?;
    let mut measured: Vec<[Rounds; 2]> = crowds.iter().map(|_| Default::default()).collect();
    server.poll(true);
    for _ in 0..args.rounds {
        for (writers, rounds) in crowds.iter().zip(&mut measured) {
            for ((way, _), rounds) in WAYS.iter().zip(rounds) {
                rounds.add(&generator.round(*way, *writers)?);
            }
        }
    }
    server.poll(false);
    Ok(measured)
}

fn rows(port: PortName, crowds: &[usize], measured: &[[Rounds; 2]]) -> Vec<Row> {
    let mut rows = Vec::new();
    let alone = crowds.iter().position(|writers| *writers == 1).map(|index| &measured[index][0]);
    for (writers, both) in crowds.iter().zip(measured) {
        let most = *writers == WRITERS[WRITERS.len() - 1];
        for ((way, name), rounds) in WAYS.iter().zip(both) {
            let row = |metric, unit, rounds: &[f64]| {
                Row::new("redn", case(port, *writers, name), metric, unit, rounds)
            };
            for (metric, rounds) in METRICS.into_iter().zip(&rounds.metrics).take(2) {
                rows.push(row(metric, "ns", rounds));
            }
            let p99 = row(METRICS[2], "ns", rounds.p99());
            rows.push(match (way, alone) {
                (Way::Calls, _) => {
                    let row = p99.against("the chain", both[0].p99());
                    if most { row.at_least(AIMS[1]) } else { row }
                }
                (Way::Chain, Some(alone)) if most => {
                    p99.against("beside one writer", alone.p99()).within(AIMS[0])
                }
                _ => p99,
            });
            rows.push(row("sets", "1/s", &rounds.sets));
        }
    }
    rows
}

/// Draws the authors' figure: mean and p99 over the number of writers.
fn draw(args: &Args, measured: &[[Rounds; 2]]) -> Result<()> {
    let curves = [
        ("RedN, mean", 0, 0, [BELOW; 5]),
        ("RedN, p99", 0, 2, [BELOW; 5]),
        ("two-sided, mean", 1, 0, CALLED[0]),
        ("two-sided, p99", 1, 2, CALLED[1]),
    ];
    let points = curves.into_iter().flat_map(|(curve, way, metric, paper)| {
        WRITERS.into_iter().zip(measured).zip(paper).map(move |((writers, rounds), paper)| Number {
            figure: "Figure 15",
            curve,
            at: writers.to_string(),
            unit: Unit::Nanoseconds,
            part: Part::Baseline,
            measured: Some(paper),
            modelled: crate::median(&rounds[way].metrics[metric]),
        })
    });
    let points: Vec<Number> = points.collect();
    let drawn = [("Figure 15", "writers beside the reader", "latency of a GET, us", true)];
    numbers::draw(&args.report, "redn", "real time", &drawn, &points)
}
