//! `remora broker`: shares one address between the programs of a network namespace.

use std::fs::OpenOptions;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use remora_bench::command::device::OwnAddress;
use remora_bench::command::number::{natural, whole};
use remora_bench::command::{ending, print};
use remora_broker::{Broker, Options, client};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// Arguments of `remora broker`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora broker &\n  remora broker --address 10.0.0.1 --allow-uid 1000\n  remora doctor --address 10.0.0.1\n\nPrograms start one by themselves; it ends ten seconds after the last of them. All programs of an address share its UDP port 4791, and\neach has a range of QP numbers. Start it as root to let several users share an address."
)]
pub struct Args {
    /// The address to share [default: the one that the default route leaves from, or 127.0.0.1].
    #[arg(long)]
    address: Option<OwnAddress>,
    /// User that may borrow beside the broker's own and root; more by repeating it.
    #[arg(long, value_name = "UID", value_parser = natural::<u32>)]
    allow_uid: Vec<u32>,
    /// Say what it shares as JSON.
    #[arg(long)]
    json: bool,
    /// Say when it is ready, and nothing more: a program has started it.
    #[arg(long, hide = true)]
    background: bool,
    /// Seconds after the last program in which it ends.
    #[arg(long, hide = true, default_value_t = 10, value_parser = whole::<u64>(0..=86_400))]
    linger: u64,
    /// Hand all frames over, as where the kernel cannot steer.
    #[arg(long, hide = true)]
    relay: bool,
}

/// `remora broker`.
pub fn run(args: &Args) -> Result<()> {
    let address = address(args.address);
    let defaults = Options::default();
    let options = Options {
        allow: args.allow_uid.clone(),
        linger: Some(Duration::from_secs(args.linger)),
        steered: if args.relay { remora_broker::SteeredBy::Reader } else { defaults.steered },
        ..defaults
    };
    let told = ending::readable()?;
    allow_descriptors();
    let broker = Broker::open(address, &options)?;
    let ip = address.ip();
    if args.background {
        print::line(client::READY);
        silence().context("leaving the standard output")?;
    } else if args.json {
        print::line(json!({ "address": ip.to_string(), "pid": std::process::id() }));
    } else {
        eprintln!("sharing {ip} between programs, each with its own QP numbers; end with Ctrl-C");
    }
    // The signal interrupts the wait before its handler has made `told` readable, or after.
    loop {
        match remora_host::wait_either(&broker.ended(), &told) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done.context("waiting for programs"),
        }
    }
}

/// Each address takes a descriptor for each range: as many as the system lets this user have. With fewer, the
/// addresses that need more are refused.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The address, with an UDP port that does not matter.
pub fn address(given: Option<OwnAddress>) -> std::net::SocketAddr {
    given.map_or_else(client::default_address, |own| own.at(0))
}

/// Whoever started it reads its output to the end.
fn silence() -> std::io::Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}
