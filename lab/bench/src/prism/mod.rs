//! `remora bench prism`: Figures 1 and 2 of the paper. In model time they follow from the primitives of
//! `remora_cost`. In real time they measure this software over a port, and compare each operation with the
//! plain verb and with the operations that it replaces.
//!
//! | file | contents |
//! |---|---|
//! | `case.rs` | the measured operations, and those to compare with |
//! | `client.rs` | each operation, from request to completion |
//! | `place.rs` | the layout of the server's memory |
//! | `measured.rs` | the results over a port |
//! | `wire.rs` | round trips, counted in a capture |
//! | `model.rs` | predictions, and the numbers that the paper states |
//! | `figures.rs` | the two figures |
//! | `loads.rs`, `transactions.rs` | Figures 3, 4, 6, 7, 9 and 10, from rows of other benchmarks |

mod case;
mod client;
mod figures;
pub(crate) mod loads;
mod measured;
mod model;
pub(crate) mod place;
pub(crate) mod transactions;
mod wire;

use anyhow::Result;

use super::{Args, Report, Row, typical};
use crate::SHORTER;
use crate::testbed::Testbed;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::Command;
use case::Case;
use client::Client;
use measured::Measured;
use remora_options::cores::two_cores;
use remora_options::progress;
use wire::PRISM;

/// Number of operations in a turn, and in the warm-up before it. Together they use fewer buffers than exist.
const TRIPS: u64 = 4096 / SHORTER;
const WARM_UP: u64 = 256 / SHORTER;

/// Runs `remora bench prism`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    args.add_wanted(report, model::rows());
    let cores = two_cores(&args.cores)?;
    let mut measured = Vec::new();
    for port in Testbed::ports(args.port) {
        let Some(testbed) = Testbed::open(port, cores, 0, args.port.is_some())? else { continue };
        let over_port = measure(args, &testbed)?;
        args.add_wanted(report, rows(&over_port));
        measured.push(over_port);
    }
    args.check_found(report)?;
    figures::draw(&args.report, &measured)
}

/// Measures all cases over a port; in each round they run one after the other.
fn measure(args: &Args, testbed: &Testbed) -> Result<Measured> {
    let port = testbed.port();
    let bar = progress::bar(u64::from(args.rounds) * Case::ALL.len() as u64, "turns")?;
    bar.set_message(format!("{}: round trips on the wire", port.name()));
    let trips = wire::count(testbed)?;
    let peer = Peer::start(testbed)?;
    let mut client = Client::new(End::with_extensions(&peer, port, PRISM, None)?, &peer)?;
    let mut rounds = vec![Vec::new(); Case::ALL.len()];
    for _ in 0..args.rounds {
        for (case, rounds) in Case::ALL.into_iter().zip(&mut rounds) {
            bar.set_message(case.path(port.name()));
            rounds.push(turn(&mut client, &peer, case)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(Measured { port, rounds, trips })
}

/// Measures the median latency of a case.
fn turn(client: &mut Client, peer: &Peer, case: Case) -> Result<f64> {
    if case.is_call() {
        client.prepare()?;
    }
    peer.run(client.answering(case))?;
    (0..WARM_UP).try_for_each(|_| client.trip(case))?;
    let took = typical(TRIPS, || client.trip(case))?;
    client.give_back(peer)?;
    peer.run(Command::Sleep)?;
    Ok(took)
}

/// Returns the rows of each case, compared to the plain verb and to the replaced operations, in time and in
/// round trips.
fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in Case::ALL {
        let path = case.path(measured.port.name());
        let row = || Row::new("prism", &path, "latency_p50", "ns", measured.of(case));
        if case.beside().is_empty() {
            rows.push(row());
        }
        for other in case.beside() {
            rows.push(row().against(other.plan().name, measured.of(*other)));
        }
        let trips = Row::new("prism", &path, "round_trips", "", &[measured.trips(case)]);
        rows.push(match case.asked() {
            Some(most) => trips.at_most(most),
            None => trips,
        });
    }
    rows
}
