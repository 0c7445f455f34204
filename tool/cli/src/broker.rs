//! `remora broker`: shares one address between the programs of a network namespace.

use std::fs::OpenOptions;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use remora_broker::{Broker, Options, client};
use remora_options::device::OwnAddress;
use remora_options::number::{natural, whole};
use remora_options::{ending, print};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// Arguments of `remora broker`.
#[derive(Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  remora broker &\n  remora broker --address 10.0.0.1 --allow-uid 1000\n  remora broker list --address 10.0.0.1\n  remora broker end --address 10.0.0.1 --uid 1000\n  remora doctor --address 10.0.0.1\n\nPrograms start a broker by themselves; it ends ten seconds after the last program. All programs of an address share its UDP port 4791,\nand each has a range of QP numbers. Programs of the broker's user receive packets from the kernel. Programs of --allow-uid users receive\nthem through the broker, which is slower but shows them no packets of other programs."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address to share [default: the source address of the default route, or 127.0.0.1].
    #[arg(long)]
    address: Option<OwnAddress>,
    /// ID of a user that may use the broker, besides its own user and root; may be given several times.
    #[arg(long, value_name = "UID", value_parser = natural::<u32>)]
    allow_uid: Vec<u32>,
    /// Serve all addresses of the network namespace from the start. Programs of other users cannot add
    /// addresses.
    #[arg(long)]
    every_address: bool,
    /// Print the shared address and the process ID as JSON.
    #[arg(long)]
    json: bool,
    /// Print only that the broker is ready, then close the standard streams: a program started it.
    #[arg(long, hide = true)]
    background: bool,
    /// Seconds after the end of the last program until the broker ends.
    #[arg(long, hide = true, default_value_t = 10, value_parser = whole::<u64>(0..=86_400))]
    linger: u64,
    /// Relay all frames through the broker, as if the kernel could not steer them to the programs.
    #[arg(long, hide = true)]
    relay: bool,
}

/// Commands for a running broker.
#[derive(Subcommand)]
enum Command {
    /// Show the users of a broker, their programs and their QP number ranges.
    List(ListArgs),
    /// End programs that use a broker; allowed for the user of the broker and for root.
    End(EndArgs),
}

/// Arguments of `remora broker list`.
#[derive(Parser)]
struct ListArgs {
    /// Shared address [default: the source address of the default route, or 127.0.0.1].
    #[arg(long)]
    address: Option<OwnAddress>,
    /// Print one JSON object for each user and each program.
    #[arg(long)]
    json: bool,
}

/// Arguments of `remora broker end`.
#[derive(Parser)]
#[command(group = clap::ArgGroup::new("target").required(true))]
struct EndArgs {
    /// Shared address [default: the source address of the default route, or 127.0.0.1].
    #[arg(long)]
    address: Option<OwnAddress>,
    /// ID of the user: all programs of this user are ended, and the broker admits no new ones.
    #[arg(long, group = "target", value_parser = natural::<u32>)]
    uid: Option<u32>,
    /// QP number range of the program to end, from 1 to 127, as `remora broker list` shows it.
    #[arg(long, group = "target", value_parser = whole::<u8>(1..=127))]
    range: Option<u8>,
}

/// Runs `remora broker`.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::List(args)) => list(args),
        Some(Command::End(args)) => end(args),
        None => serve(args),
    }
}

/// Runs `remora broker list`.
fn list(args: &ListArgs) -> Result<()> {
    let report = client::report(address(args.address), &client::Options::from_environment())?;
    if args.json {
        for user in &report.users {
            print::line(json!({
                "user": user.uid, "guest": user.guest, "connections": user.connections, "ranges": user.ranges,
                "ids": user.ids, "channels": user.channels,
            }));
        }
        for program in &report.programs {
            print::line(json!({
                "range": program.range, "pid": program.pid, "user": program.uid, "links": program.links, "name": program.name,
            }));
        }
        return Ok(());
    }
    let broker = &report.broker;
    print::line(format!("broker: process {} of user {} at {}", broker.pid, broker.uid, broker.address.ip()));
    for user in &report.users {
        let kind = if user.guest { ", a guest" } else { "" };
        print::line(format!(
            "user {}{kind}: {} QPN ranges, {} ids and {} event channels of rdma_cm, {} connections",
            user.uid, user.ranges, user.ids, user.channels, user.connections
        ));
    }
    for program in &report.programs {
        print::line(format!(
            "QPN range {}: process {} ({}) of user {}",
            program.range,
            program.pid,
            program.name.escape_debug(),
            program.uid
        ));
    }
    Ok(())
}

/// Runs `remora broker end`.
fn end(args: &EndArgs) -> Result<()> {
    let address = address(args.address);
    let options = client::Options::from_environment();
    let ended = match (args.uid, args.range) {
        (Some(uid), _) => client::end_user(address, &options, uid)?,
        (None, Some(range)) => client::end_program(address, &options, range)?,
        (None, None) => anyhow::bail!("no program named: give --uid or --range"),
    };
    eprintln!("ended {ended} connections to the broker");
    Ok(())
}

fn serve(args: &Args) -> Result<()> {
    let address = address(args.address);
    let defaults = Options::default();
    let options = Options {
        allow: args.allow_uid.clone(),
        every_address: args.every_address,
        gives_way: args.background,
        linger: Some(Duration::from_secs(args.linger)),
        steered: if args.relay { remora_broker::SteeredBy::Reader } else { defaults.steered },
        ..defaults
    };
    let stop_signal = ending::readable()?;
    raise_limits();
    let broker = Broker::open(address, &options)?;
    let ip = address.ip();
    if args.background {
        print::line(client::READY);
        silence().context("redirecting the standard streams to /dev/null")?;
    } else if args.json {
        print::line(json!({ "address": ip.to_string(), "pid": std::process::id() }));
    } else {
        eprintln!("sharing {ip} between programs, each with its own QP numbers; end with Ctrl-C");
    }
    // The signal may interrupt the wait before or after its handler makes `stop_signal` readable.
    loop {
        match remora_host::wait_either(&broker.ended(), &stop_signal) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done.context("waiting for the end of the broker"),
        }
    }
}

/// Number of file descriptors that a broker with several addresses needs.
const DESCRIPTORS: u64 = 65_536;

/// Raises the limits that the broker inherited from the program that started it: each address needs a
/// descriptor for each QP number range. A limit that the system does not raise stays as it is; the
/// operations that exceed it then fail.
pub(crate) fn raise_limits() {
    for resource in [Resource::Nofile, Resource::As, Resource::Data] {
        let limit = getrlimit(resource);
        let enough = if resource == Resource::Nofile { Some(DESCRIPTORS) } else { None };
        let is_enough = limit.maximum.is_none_or(|maximum| enough.is_some_and(|enough| maximum >= enough));
        let wanted = if is_enough { limit.maximum } else { enough };
        // Only root may exceed the hard limit.
        if setrlimit(resource, Rlimit { current: wanted, maximum: wanted }).is_err() {
            let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
        }
    }
    // The broker works for programs of any priority, so it must not inherit a low one.
    let _ = rustix::process::setpriority_process(None, 0);
}

/// Returns the given address, or the default address of a broker. The UDP port of the result is irrelevant.
pub(crate) fn address(given: Option<OwnAddress>) -> std::net::SocketAddr {
    given.map_or_else(client::default_address, |own| own.at(0))
}

/// Redirects the standard streams to /dev/null, because the program that started the broker reads its
/// output to the end.
fn silence() -> std::io::Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}
