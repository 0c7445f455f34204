//! `remora demo`: reads of one table of YCSB records with every system and over every port that the machine
//! has.

mod args;
mod line;
mod page;
pub mod redn;

use std::io::IsTerminal as _;

use anyhow::{Result, ensure};
use remora_store::ycsb::Mix;

use crate::measure::parts::Parts;
use crate::measure::runner::{Plan, Runner, Server};
use crate::measure::testbed::Testbed;
use crate::measure::transports;
use crate::transport::TransportName;
use remora_options::cores::{pin, two_cores};
use remora_options::device::PortName;
use remora_options::output;
use remora_options::{Columns, print, progress};
use remora_service::kv::{Design, KvDesign, KvSession, Session};
use remora_service::with_design;

pub use args::Args;
use line::{Line, Measured, cells};

const WINDOW: u32 = 64;

/// System that serves the GETs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum System {
    /// A design of the key-value store, over a transport.
    Store(Design, TransportName),
    /// The chain of RedN, with one program for each request in flight.
    Redn,
}

impl System {
    /// Returns the systems that a port supports: those over RC always, the others only if frames leave the
    /// host.
    fn all(port: PortName) -> impl Iterator<Item = System> {
        let rc = Design::ALL.into_iter().map(|design| System::Store(design, TransportName::Rc));
        let others = [TransportName::Irn, TransportName::Rma].map(|it| System::Store(Design::Farm, it));
        rc.chain([System::Redn]).chain(others.into_iter().filter(move |_| port != PortName::Shm))
    }

    fn transport(self) -> TransportName {
        match self {
            System::Store(_, transport) => transport,
            System::Redn => TransportName::Rc,
        }
    }

    fn name(self) -> &'static str {
        match self {
            System::Store(Design::Farm, TransportName::Irn) => "farm-irn",
            System::Store(Design::Farm, TransportName::Rma) => "farm-rma",
            System::Store(design, _) => design.name(),
            System::Redn => "redn",
        }
    }

    /// Returns the system's name in the table.
    fn title(self) -> &'static str {
        match self {
            System::Store(Design::Farm, TransportName::Irn) => "two READs (FaRM, IRN)",
            System::Store(Design::Farm, TransportName::Rma) => "two reads (FaRM, 1RMA)",
            System::Store(Design::Pilaf, _) => "two READs (Pilaf)",
            System::Store(Design::Farm, _) => "two READs (FaRM)",
            System::Store(Design::TwoSided, _) => "RPC (two-sided)",
            System::Store(Design::Prism, _) => "indirect READ (PRISM)",
            System::Store(Design::Strom, _) => "GET kernel (StRoM)",
            System::Redn => "chain (RedN)",
        }
    }
}

/// Runs `remora demo`.
pub fn run(args: &Args) -> Result<()> {
    let cores = two_cores(&[])?;
    pin(cores[0])?;
    // This check comes before the measurements, so that a failure does not waste them.
    if !args.json {
        output::folder(&args.report)?;
    }
    let lines = measure_all(args, cores)?;
    ensure!(!lines.is_empty(), "irn and rma are measured over udp and xdp: choose one of them by --port");
    if args.json {
        return Ok(());
    }
    let page = args.report.join("index.html");
    output::write(&page, page::page(args, &lines)?.as_bytes())?;
    print::line(format_args!("\nThe same with pictures: {}", page.display()));
    Ok(())
}

/// The columns of a table, and their widths.
const HEAD: [&str; 6] =
    ["system", "round trips", "median", "p99", "GETs/s (64 in flight)", "server CPU per GET"];
const COLUMNS: Columns<6> = Columns([22, 11, 10, 10, 21, 18]);

/// Prints the heading of the table for one port and one value length.
fn print_heading(args: &Args, value_len: u32, port: PortName) {
    print::line(format_args!(
        "\nGETs of {} YCSB records, {value_len} B values, zipfian 0.99, every value checked, over {}",
        args.records_of(value_len),
        port.name()
    ));
    COLUMNS.print(&HEAD.map(str::to_owned));
}

fn measure_all(args: &Args, cores: [usize; 2]) -> Result<Vec<Line>> {
    let systems = |port| System::all(port).filter(|system| args.transport.contains(&system.transport()));
    let tables = |port| args.value_len.len() * systems(port).count();
    let bar = progress::bar(Testbed::ports(args.port).map(tables).sum::<usize>() as u64, "tables")?;
    // A progress bar prints nothing without a terminal, and each line of the table takes seconds.
    let is_piped = !std::io::stderr().is_terminal();
    let mut lines = Vec::new();
    for port in Testbed::ports(args.port) {
        let tables = tables(port);
        let Some(testbed) = Testbed::open(port, cores, tables, args.port.is_some())? else { continue };
        let all = args.value_len.iter().flat_map(|len| systems(port).map(|system| (*len, system)));
        let mut printed = None;
        for (link, (value_len, system)) in all.enumerate() {
            if !args.json && printed.replace(value_len) != Some(value_len) {
                bar.suspend(|| print_heading(args, value_len, port));
            }
            let records = args.records_of(value_len);
            let operations = args.gets;
            let window = WINDOW;
            let plan = Plan { records, value_len, operations, window, seed: 42, inserts: 0 };
            bar.set_message(format!("{} over {}: {records} records", system.name(), port.name()));
            bar.tick();
            if is_piped && !args.json {
                eprintln!(
                    "{} of {}: {} over {}",
                    bar.position() + 1,
                    bar.length().unwrap_or(0),
                    system.title(),
                    port.name()
                );
            }
            let measured = measure(system, &testbed, link, &plan)?;
            let line = line(system, port, value_len, &measured);
            if args.json {
                print::line(serde_json::to_string(&line)?);
            } else {
                bar.suspend(|| COLUMNS.print(&cells(&line)));
            }
            lines.push(line);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(lines)
}

fn measure(system: System, testbed: &Testbed, link: usize, plan: &Plan) -> Result<Measured> {
    match system {
        System::Store(design, TransportName::Rc) => {
            with_design!(design, measure_store(testbed, link, plan, design))
        }
        System::Store(_, transport) => measure_transport(testbed, link, plan, transport),
        System::Redn => redn::measure(testbed, link, plan),
    }
}

fn measure_store<D: KvDesign>(
    testbed: &Testbed,
    link: usize,
    plan: &Plan,
    design: Design,
) -> Result<Measured> {
    let server = Server::start(design, testbed, link, plan)?;
    let runner = Runner::<Session<D>>::connect(&server.address, &testbed.client(link), plan)?;
    measure_gets(&server, runner, plan)
}

/// Measures design farm over a transport other than RC.
fn measure_transport(
    testbed: &Testbed,
    link: usize,
    plan: &Plan,
    transport: TransportName,
) -> Result<Measured> {
    let server = transports::start(transport, testbed, link, plan)?;
    let port = testbed.client(link);
    if transport == TransportName::Rma {
        let session = transports::by_rma(&[&server], &port, plan)?;
        return measure_gets(&server, Runner::over(session, plan), plan);
    }
    let session = transports::by_pairs(&server, transport, &port, plan)?;
    measure_gets(&server, Runner::over(session, plan), plan)
}

fn measure_gets<S: KvSession>(server: &Server, mut runner: Runner<S>, plan: &Plan) -> Result<Measured> {
    let gets = plan.operations;
    let mut parts = Parts::new(Mix::C, plan.records, plan.seed);
    runner.alone(&mut parts, gets / 10)?;
    let alone = runner.alone(&mut parts, gets)?;
    let before = server.cpu_ns()?;
    let rate = runner.together(&mut parts, gets * 4)?;
    Ok(Measured { alone, rate, cpu: (server.cpu_ns()? - before) as f64 / (gets * 4) as f64 })
}

fn line(system: System, port: PortName, value_len: u32, measured: &Measured) -> Line {
    Line {
        bench: "demo",
        case: format!("{}/{}-get/{value_len}", port.name(), system.name()),
        round_trips: measured.alone.round_trips,
        latency_p50_ns: measured.alone.p50,
        latency_p99_ns: measured.alone.p99,
        rate_per_s: measured.rate,
        server_cpu_ns_per_get: measured.cpu,
        port,
        system: system.title(),
        value_len,
    }
}
