//! Reads while `remora rma serve --rotate` changes the key of the region every second.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use remora_grants::{Credential, Pin, RmaSession};
use serde::Deserialize;

use super::{Bench, path};
use crate::testbed::process::Process;
use crate::testbed::veth::NIC;
use crate::{PortName, Row};
use remora_options::cores::pin;
use remora_options::device::LOOPBACK;

/// The path of the case.
const CASE: &str = "rotate";

/// The line that the server prints when it is ready.
#[derive(Deserialize)]
struct Served {
    address: SocketAddr,
    fingerprint: String,
    token: String,
    name: String,
}

/// The results of a reader.
#[derive(Default)]
struct Seen {
    reads: f64,
    failed: f64,
    lost: f64,
    gap: Duration,
}

/// Reads for the duration that the options request.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let case = path(PortName::Udp, CASE);
    if !bench.wants(&case) {
        return Ok(());
    }
    bench.bar.set_message(case.clone());
    let own = bench.cores[0];
    let other = bench.cores[1];
    let (_server, served) = start(other)?;
    pin(own)?;
    let time = Duration::from_secs(bench.args.rotate.into());
    let seen = read(&served, time)?;
    let row = |metric, unit, value| Row::new("rma", &case, metric, unit, &[value]);
    bench.add(row("rate", "1/s", seen.reads / time.as_secs_f64()));
    bench.add(row("reads_failed", "", seen.failed));
    bench.add(row("reads_not_recovered", "", seen.lost).at_most(0.0));
    bench.add(row("longest_gap", "ns", seen.gap.as_nanos() as f64));
    Ok(())
}

/// Starts the server on its own core.
fn start(core: usize) -> Result<(Process, Served)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["rma", "serve", "--child", "--json", "--listen", "127.0.0.1:0", "--rotate", "1"]);
    // This thread starts the server, because a server ends with the thread that started it.
    pin(core)?;
    let started = Process::start_ready(&mut command, 1);
    let (process, lines) = started.context("`remora rma serve` did not start")?;
    let served = serde_json::from_str(&lines[0]).context("the output of `remora rma serve`")?;
    Ok((process, served))
}

fn read(served: &Served, time: Duration) -> Result<Seen> {
    let context = PortName::Udp.device_on(LOOPBACK, NIC)?.open()?;
    let pin = Pin { address: served.address, fingerprint: served.fingerprint.parse()? };
    let mut session = RmaSession::open(&context, pin, Credential::Token(served.token.parse()?))?;
    let mut seen = Seen::default();
    let started = Instant::now();
    let mut last = Instant::now();
    let mut bytes = [0; 64];
    while started.elapsed() < time {
        match session.read(&served.name, 0, &mut bytes) {
            Ok(()) => seen.reads += 1.0,
            Err(error) => {
                tracing::warn!("a read did not recover: {error}");
                seen.lost += 1.0;
            }
        }
        seen.gap = seen.gap.max(last.elapsed());
        last = Instant::now();
    }
    seen.failed = session.outdated() as f64;
    Ok(seen)
}
