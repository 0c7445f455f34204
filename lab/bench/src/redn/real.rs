//! Measurements of this software in real time: the speed of one core, lookups by chain compared with READs
//! and calls, and a reader next to writers.

mod isolation;
mod lookups;
mod rates;
mod server;

use std::sync::Arc;

use anyhow::Result;

use super::super::{Args, PortName, Row};
use crate::testbed::Testbed;
use remora_options::cores::two_cores;

/// Measures all selected variants in interleaved rounds.
pub(crate) fn run(args: &Args) -> Result<Vec<Row>> {
    let cores = two_cores(&args.cores)?;
    let mut rows = rates::run(args, cores[0])?;
    for port in Testbed::ports(args.port) {
        let lookups = lookups::wanted(args, port);
        let testbed = if lookups.is_empty() {
            None
        } else {
            Testbed::open(port, cores, lookups::LINKS, args.port.is_some())?
        };
        if let Some(testbed) = testbed {
            rows.extend(lookups::run(args, &Arc::new(testbed), &lookups)?);
        }
        if port != PortName::Xdp {
            rows.extend(isolation::run(args, port, cores)?);
        }
    }
    Ok(rows)
}
