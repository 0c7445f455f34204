//! `remora demo`: one table of YCSB records, read every way that there is, over every port.

use anyhow::Result;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use store::ycsb::Mix;

use crate::bench::cores::{pin, two_cores};
use crate::bench::print_table;
use crate::bench::site::Site;
use crate::device::PortName;
use crate::kv::measure::{Figures, Plan, Runner, Server};
use crate::kv::parts::Parts;
use crate::kv::{Design, DesignName};
use crate::print;
use crate::with_design;

/// Arguments of `remora demo`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora demo\n  remora demo --records 100000 --gets 10000\n  remora demo --json\n\nA server process and this one get a core each. Every value that is read is checked."
)]
pub struct Args {
    /// YCSB records in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65536))]
    value_len: u32,
    /// GETs one at a time, and as many times four together, for each line of the table.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    gets: u64,
    /// Only this port.
    #[arg(long)]
    port: Option<PortName>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// A line of the demo's table.
#[derive(Serialize)]
struct Line {
    bench: &'static str,
    case: String,
    round_trips: f64,
    latency_p50_ns: f64,
    latency_p99_ns: f64,
    rate_per_s: f64,
    server_cpu_ns_per_get: f64,
}

const WINDOW: u32 = 64;

/// `remora demo`.
pub fn run(args: &Args) -> Result<()> {
    let cores = two_cores(&[])?;
    pin(cores[0])?;
    let plan = Plan {
        records: args.records,
        value_len: args.value_len,
        window: WINDOW,
        cores,
        seed: 42,
        inserts: 0,
    };
    let ports = PortName::local(args.port)?;
    let style = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {pos}/{len} {elapsed}")?;
    let bar = ProgressBar::new((ports.len() * DesignName::ALL.len()) as u64).with_style(style);
    let mut lines = Vec::new();
    for port in ports {
        for design in DesignName::ALL {
            bar.set_message(format!("{} over {}: {} records", design.name(), port.name(), args.records));
            bar.tick();
            let line = with_design!(design, measure(args, &plan, design, port))?;
            if args.json {
                print::line(serde_json::to_string(&line)?);
            }
            lines.push(line);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if !args.json {
        print::line(format_args!(
            "GETs of {} YCSB records, {} B values, zipfian 0.99, every value checked",
            args.records, args.value_len
        ));
        print_table(
            ["system", "round trips", "median", "p99", "GETs/s (64 in flight)", "server CPU per GET"],
            lines.iter().map(cells),
        );
    }
    Ok(())
}

fn measure<D: Design>(args: &Args, plan: &Plan, design: DesignName, port: PortName) -> Result<Line> {
    let site = Site::loopback(port);
    let server = Server::start(design, (&site, 0), plan)?;
    let mut runner = Runner::<D>::connect(&server, &site.client(0), plan)?;
    let mut gets = Parts::new(Mix::C, plan.records, plan.seed);
    runner.alone(&mut gets, args.gets / 10)?;
    let alone: Figures = runner.alone(&mut gets, args.gets)?;
    let before = server.cpu_ns()?;
    let rate = runner.together(&mut gets, args.gets * 4)?;
    let cpu = (server.cpu_ns()? - before) as f64 / (args.gets * 4) as f64;
    Ok(Line {
        bench: "demo",
        case: format!("{}/{}-get/{}", port.name(), design.name(), plan.value_len),
        round_trips: alone.round_trips,
        latency_p50_ns: alone.p50,
        latency_p99_ns: alone.p99,
        rate_per_s: rate,
        server_cpu_ns_per_get: cpu,
    })
}

fn cells(line: &Line) -> [String; 6] {
    let micro = |ns: f64| format!("{:.2} us", ns / 1000.0);
    [
        line.case.clone(),
        format!("{:.2}", line.round_trips),
        micro(line.latency_p50_ns),
        micro(line.latency_p99_ns),
        format!("{:.2} M", line.rate_per_s / 1e6),
        format!("{:.0} ns", line.server_cpu_ns_per_get),
    ]
}
