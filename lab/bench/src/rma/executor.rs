//! The software above the NIC, with a NIC that answers at once: the executor with its congestion control,
//! and the issue of commands (1RMA paper, §6.1 and appendix B).

use std::hint::black_box;
use std::time::Instant as Clock;

use anyhow::{Context as _, Result};
use remora_nic::Ring;
use remora_nic::rma::{Command, CommandQueue, Operand};
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_transport::rma::executor::{CongestionSettings, Executor, OnFailure, Transfer};
use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::Bench;
use crate::Row;
use crate::SHORTER;

/// The numbers of command slots, of places for transfers (as in a portal), and of transfers in progress,
/// each to a different server.
const SLOTS: u16 = 256;
const PLACES: u32 = 1024;
const TRANSFERS: u32 = 16;
/// The length of a long transfer in bytes.
const LONG: u64 = 4 << 20;
/// The number of operations of a round.
const OPERATIONS: usize = 1_000_000 / SHORTER as usize;
/// The required operations per second of a core, which is the rate of the paper's software.
const ASKED: f64 = 6e6;
/// The commands per second that each of the paper's 8 cores issues.
const ISSUED: f64 = 10.9e6;
/// The operations of 4 KB per second of a line of 100 Gb/s, and the number of cores that the paper's
/// software needs for it.
const LINE: f64 = 100e9 / 8.0 / MAX_OPERATION as f64;
const CORES: f64 = 0.5;
/// The delay that the NIC reports, which is below each target.
const DELAY: u64 = 500;

/// Measures the rates of the software.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.part().of(OPERATIONS) as u64;
    for (size, case) in [(LONG, "software/executor/4096"), (64, "software/executor/64")] {
        let Some([rate]) = bench.rounds(case, || Ok([operations(size, count)?]))? else { continue };
        let row = Row::new("rma", case, "rate", "1/s", &rate);
        bench.add(row.against("asked", &[ASKED]).at_least(1.0));
        if size == LONG {
            let cores: Vec<f64> = rate.iter().map(|rate| LINE / rate).collect();
            let row = Row::new("rma", case, "cores_for_100_Gbit", "", &cores);
            bench.add(row.against("the paper's", &[CORES]));
        }
    }
    let case = "software/commands";
    if let Some([rate]) = bench.rounds(case, || Ok([commands(count)?]))? {
        let row = Row::new("rma", case, "rate", "1/s", &rate);
        bench.add(row.against("the paper's, a core", &[ISSUED]).at_least(1.0));
    }
    Ok(())
}

/// Returns the endpoint of a separate server for each transfer.
fn server(number: u32) -> Endpoint {
    let mut address = [0; 16];
    address[12..].copy_from_slice(&number.to_be_bytes());
    Endpoint { address: Address(address), udp_port: 4791 }
}

fn command_queue() -> Result<CommandQueue> {
    Ok(CommandQueue::new(Ring::heap(u32::from(SLOTS)).context("memory for a ring of commands")?))
}

fn command(slot: u16, server: Endpoint, offset: u64, size: u32) -> Command {
    Command {
        kind: Kind::Read,
        class: Class::Latency,
        size,
        slot,
        cq: 1,
        local: Operand { region: 1, offset },
        remote: Operand { region: 2, offset },
        server,
        key: [0x5a; 16],
    }
}

/// Measures the operations per second with transfers of `size` bytes: submission, cutting, pacing, issue,
/// completion.
fn operations(size: u64, count: u64) -> Result<f64> {
    let mut executor = Executor::new(SLOTS, PLACES, &CongestionSettings::paper());
    let mut commands = command_queue()?;
    let started = Clock::now();
    let now = || Instant(started.elapsed().as_nanos() as u64);
    let submit = |executor: &mut Executor, now: Instant, id: u64| {
        let server = server(id as u32).address;
        let on_failure = OnFailure::Report;
        let kind = Kind::Read;
        let class = Class::Latency;
        let transfer = Transfer { id, kind, class, server, size, fence: false, on_failure };
        executor.submit(now, transfer).map_err(|error| anyhow::anyhow!("a transfer is refused: {error:?}"))
    };
    for id in 0..u64::from(TRANSFERS) {
        submit(&mut executor, now(), id)?;
    }
    let mut issued = Vec::with_capacity(usize::from(SLOTS));
    let mut done = 0;
    while done < count {
        let before = now();
        while let Some(chunk) = executor.next(before) {
            let command = command(chunk.slot, server(chunk.place), chunk.offset, chunk.size);
            commands.push(&command);
            issued.push(chunk.slot);
        }
        commands.publish();
        // The NIC answers here.
        let after = now();
        for slot in issued.drain(..) {
            done += 1;
            if let Some(end) = executor.completed(after, slot, Status::Ok, 0, DELAY) {
                anyhow::ensure!(end.status == Status::Ok, "a transfer failed");
                submit(&mut executor, after, end.id)?;
            }
        }
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

/// Measures the commands issued per second, each published alone.
fn commands(count: u64) -> Result<f64> {
    let mut commands = command_queue()?;
    let server = server(1);
    let started = Clock::now();
    for number in 0..count {
        let slot = (number % u64::from(SLOTS)) as u16;
        let command = black_box(command(slot, server, number << 12, MAX_OPERATION));
        commands.push(&command);
        commands.publish();
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
