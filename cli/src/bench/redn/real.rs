//! The same in this software, in real time: what one core executes, lookups by chain beside READs and calls, and a reader beside
//! writers.

mod isolation;
mod lookups;
mod rates;
mod server;

use anyhow::Result;

use super::super::cores::two_cores;
use super::super::{Args, PortName, Row};

/// All arms that are asked for, interleaved round by round.
pub fn run(args: &Args) -> Result<Vec<Row>> {
    let cores = two_cores(&args.cores)?;
    let mut rows = rates::run(args, cores[0])?;
    for port in [PortName::Shm, PortName::Udp] {
        if args.wants(port) {
            rows.extend(lookups::run(args, port, cores)?);
            rows.extend(isolation::run(args, port, cores)?);
        }
    }
    Ok(rows)
}
