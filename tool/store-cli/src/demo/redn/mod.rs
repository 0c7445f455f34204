//! The GETs of the demo with a chain (RedN, §5.2): the shipped program that checks two buckets, one instance
//! for each request in flight.

mod client;
pub mod server;
mod table;

use anyhow::Result;

use super::Measured;
use crate::measure::runner::{Plan, Server};
use crate::measure::testbed::Testbed;
use client::Client;

/// Name of the server's hidden subcommand.
pub const SERVER: &str = "__chains";

/// Measures the same GETs as the other systems do.
pub(super) fn measure(testbed: &Testbed, link: usize, plan: &Plan) -> Result<Measured> {
    let gets = plan.operations;
    let server = Server::start_as(&[SERVER], testbed, link, plan)?;
    let mut client = Client::connect(&server.address, &testbed.client(link), plan)?;
    client.alone(gets / 10)?;
    let alone = client.alone(gets)?;
    let before = server.cpu_ns()?;
    let rate = client.together(gets * 4)?;
    Ok(Measured { alone, rate, cpu: (server.cpu_ns()? - before) as f64 / (gets * 4) as f64 })
}
