//! Lookups in a hash table and in a list: by a chain, by READs in sequence, and by a call; one at a time,
//! and many in flight.

mod client;
mod lookup;
mod tables;

use std::sync::Arc;

use anyhow::Result;

use self::client::Client;
use self::tables::{CALLS, Tables};
use super::server::Server;
use crate::testbed::Testbed;
use crate::{Args, PortName, Row, SHORTER};
pub(crate) use lookup::Lookup;
use lookup::{BREAKS, Way};
use remora_options::cores::pin;

/// The number of lookups of a round, one at a time; twice as many with all connections in use.
const LOOKUPS: u64 = 4000 / SHORTER;
/// The links between clients and server: to the NIC with its own thread, and to the NIC for calls.
pub(crate) const LINKS: usize = 2;
const METRICS: [(&str, &str); 2] = [("latency_p50", "ns"), ("rate", "1/s")];
/// The rounds of a variant, by metric.
type Rounds = [Vec<f64>; METRICS.len()];

fn case(port: PortName, lookup: Lookup, way: &str) -> String {
    format!("software/{}/{}/{way}", port.name(), lookup.name())
}

/// Returns whether `--only` selects this metric of any way of the lookup.
fn wants(args: &Args, port: PortName, lookup: Lookup, metric: &str) -> bool {
    let named = |(way, _): &Way| args.wants_case(&format!("{}/{metric}", case(port, lookup, way)));
    lookup.ways().iter().any(named)
}

/// Returns the lookups that `--only` selects.
pub(crate) fn wanted(args: &Args, port: PortName) -> Vec<Lookup> {
    let hashes = [64, 1024, 4096, 16_384, 65_536].map(Lookup::Hash);
    let lists = [1, 2, 4, 8].map(Lookup::List);
    let any = |lookup: &Lookup| METRICS.iter().any(|(metric, _)| wants(args, port, *lookup, metric));
    hashes.into_iter().chain(lists).filter(any).collect()
}

/// Measures one port and returns its rows.
pub(crate) fn run(args: &Args, testbed: &Arc<Testbed>, lookups: &[Lookup]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for lookup in lookups {
        let measured = measure(args, testbed, *lookup)?;
        for (number, (metric, unit)) in METRICS.into_iter().enumerate() {
            let chain = &measured[0][number];
            for ((way, _), rounds) in lookup.ways().iter().zip(&measured) {
                let row = Row::new("redn", case(testbed.port(), *lookup, way), metric, unit, &rounds[number]);
                rows.push(if *way == "chain" { row } else { row.against("the chain", chain) });
            }
        }
    }
    Ok(rows)
}

/// Measures the median latency of each variant one at a time, and the lookups per second with all its
/// connections.
fn measure(args: &Args, testbed: &Arc<Testbed>, lookup: Lookup) -> Result<Vec<Rounds>> {
    let server = Server::start(testbed, move |testbed| Tables::open(testbed, lookup.value_len()))?;
    pin(testbed.cores()[0])?;
    let ways = lookup.ways();
    let nics = [testbed.client(0).open()?, testbed.client(1).open()?];
    let connect = |(_, way): &Way| Client::connect(&nics[usize::from(*way == CALLS)], &server, lookup, way);
    let mut clients: Vec<Client> = ways.iter().map(connect).collect::<Result<_>>()?;
    let mut measured = vec![Rounds::default(); ways.len()];
    let asked = METRICS.map(|(metric, _)| wants(args, testbed.port(), lookup, metric));
    for _ in 0..args.rounds {
        for ((client, (_, way)), rounds) in clients.iter_mut().zip(ways).zip(&mut measured) {
            server.poll(*way == CALLS);
            if asked[0] {
                rounds[0].push(client.alone(LOOKUPS)?);
            }
            if asked[1] {
                rounds[1].push(client.together(2 * LOOKUPS)?);
            }
            client.settle()?;
        }
    }
    server.poll(false);
    Ok(measured)
}
