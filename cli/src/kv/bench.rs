//! `remora kv bench`: the designs beside each other, beside their floor, and beside memcached and redis.

use anyhow::Result;
use clap::Parser;
use store::ycsb::Mix;

use super::DesignName;
use super::contest::{Counts, RivalSeat, Round, Should, seat};
use super::flight::RIVAL_WINDOW;
use super::measure::Plan;
use super::rival::Rival;
use crate::bench::cores::{pin, two_cores};
use crate::bench::{Bare, Report, Row};
use crate::device::PortName;
use crate::with_design;

/// Arguments of `remora kv bench`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora kv bench\n  remora kv bench --design farm --port udp --records 1000000 --json\n  remora kv bench --workload A --rounds 9\n\nServer and client have a core each; servers take turns on theirs. Every value is checked. `window` operations are in flight for\nrates, one for latencies; the rivals' latency is taken with both processes on one core, since a hand-over between cores would be\nthe figure.\n\nA latency is judged: at most 1.15 times what its round trips of the bare verb take in the same round (READs of the bytes that the\ndesign reads, from as many places, or a SEND that a program answers with one) and the design's CPU work, measured without a NIC.\n\nYCSB: A half updates, B 5 % updates, C reads only, D reads of the latest and 5 % inserts, E scans and 5 % inserts, F half\nread-modify-writes. These tables have no order, so a scan is 1 to 100 GETs; a read-modify-write is a GET, then a PUT."
)]
pub struct Args {
    /// Only this design.
    #[arg(long)]
    design: Option<DesignName>,
    /// Only this port.
    #[arg(long)]
    port: Option<PortName>,
    /// A YCSB workload, A to F [default: GETs alone, then PUTs alone].
    #[arg(long, value_parser = workload)]
    workload: Option<Mix>,
    /// Records.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65536))]
    value_len: u32,
    /// Operations in flight for rates.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64))]
    window: u32,
    /// Interleaved rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Leave memcached and redis out.
    #[arg(long)]
    no_rivals: bool,
    /// Cores of client and server [default: the first two].
    #[arg(long, value_delimiter = ',', num_args = 1)]
    cores: Vec<usize>,
}

fn workload(text: &str) -> Result<Mix, String> {
    let mut letters = text.chars();
    let named = letters.next().and_then(|letter| Mix::named(letter.to_ascii_uppercase()));
    named.filter(|_| letters.next().is_none()).ok_or_else(|| "YCSB's workloads are A to F".to_owned())
}

impl Args {
    /// What is measured, and how its figures are called.
    fn mixes(&self) -> Vec<(Mix, String)> {
        match self.workload {
            Some(mix) => vec![(mix, format!("ycsb-{}", mix.name.to_ascii_lowercase()))],
            None => vec![(GETS, "get".to_owned()), (PUTS, "put".to_owned())],
        }
    }
}

/// GETs of zipfian keys; PUTs of zipfian keys.
const GETS: Mix = Mix::C;
const PUTS: Mix = Mix { name: 'p', read: 0, update: 100, ..Mix::A };

/// What a design's latency may be at most, over its round trips times the bare verb and its CPU work.
const LIMIT: f64 = 1.15;

/// `remora kv bench`.
pub fn run(args: &Args) -> Result<()> {
    let cores = two_cores(&args.cores)?;
    pin(cores[0])?;
    let cases = args.mixes();
    let mixes: Vec<Mix> = cases.iter().map(|(mix, _)| *mix).collect();
    let inserts = mixes.iter().map(|mix| Counts::of(*mix).inserts(*mix, args.rounds)).max();
    let plan = Plan {
        records: args.records,
        value_len: args.value_len,
        window: args.window,
        cores,
        seed: 1,
        inserts: inserts.unwrap_or(0),
    };
    let mut report = Report::new(args.json);
    let rivals: &[Rival] = if args.no_rivals { &[] } else { &Rival::ALL };
    let mut rivals = rivals
        .iter()
        .map(|rival| RivalSeat::start(*rival, &plan, &mixes))
        .collect::<Result<Vec<RivalSeat>>>()?;
    for port in PortName::local(args.port)? {
        over_port(args, &plan, port, &mut rivals, &mut report)?;
    }
    for rival in &rivals {
        for (at, (_, verb)) in cases.iter().enumerate() {
            let case = format!("tcp/{}-{verb}/{}", rival.rival.name(), plan.value_len);
            report.add(Row::new("kv", format!("{case}/same-core"), "latency_p50", "ns", &rival.p50[at]));
            let windowed = format!("{case}/window-{RIVAL_WINDOW}");
            report.add(Row::new("kv", windowed, "rate", "1/s", &rival.rates[at]));
        }
    }
    report.finish();
    Ok(())
}

/// Rounds of the designs over one port, with the rivals between them.
fn over_port(
    args: &Args,
    plan: &Plan,
    port: PortName,
    rivals: &mut [RivalSeat],
    report: &mut Report,
) -> Result<()> {
    let cases = args.mixes();
    let mixes: Vec<Mix> = cases.iter().map(|(mix, _)| *mix).collect();
    let mut bare = Bare::open(port, plan.cores)?;
    let mut seats = DesignName::ALL
        .into_iter()
        .filter(|design| args.design.is_none_or(|only| only == *design))
        .map(|design| with_design!(design, seat(design, port, plan, &mixes)))
        .collect::<Result<Vec<_>>>()?;
    // By design, workload, round; the rivals' rounds beside them, without those over another port.
    let mut rounds = vec![vec![Vec::new(); mixes.len()]; seats.len()];
    let before = rivals.first().map_or(0, |rival| rival.rates[0].len());
    for number in 0..args.rounds {
        for at in 0..mixes.len() {
            for (seat, rounds) in seats.iter_mut().zip(&mut rounds) {
                rounds[at].push(seat.round(at, &mut bare)?);
            }
            rivals.iter_mut().try_for_each(|rival| rival.round(at, plan))?;
        }
        tracing::info!(port = port.name(), number, "round measured");
    }
    for (seat, rounds) in seats.iter().zip(&rounds) {
        for (at, (_, verb)) in cases.iter().enumerate() {
            let case = format!("{}/{}-{verb}/{}", port.name(), seat.design().name(), plan.value_len);
            let beside: Vec<(Rival, &[f64])> =
                rivals.iter().map(|rival| (rival.rival, &rival.rates[at][before..])).collect();
            tell(&case, plan, &rounds[at], &beside, report);
        }
    }
    Ok(())
}

/// The rows of a design's rounds.
fn tell(case: &str, plan: &Plan, rounds: &[Round], rivals: &[(Rival, &[f64])], report: &mut Report) {
    let all = |figure: fn(&Round) -> f64| rounds.iter().map(figure).collect::<Vec<f64>>();
    let row = |metric, unit, figure| Row::new("kv", case, metric, unit, &all(figure));
    report.add(row("round_trips", "", |round| round.round_trips));
    let p50 = row("latency_p50", "ns", |round| round.p50);
    let should: Option<Vec<Should>> = rounds.iter().map(|round| round.should).collect();
    match should {
        None => report.add(p50),
        Some(should) => {
            let verbs: Vec<f64> = should.iter().map(|should| should.verbs).collect();
            let work: Vec<f64> = should.iter().map(|should| should.work).collect();
            let whole: Vec<f64> = should.iter().map(|should| should.verbs + should.work).collect();
            report.add(Row::new("kv", case, "cpu_work", "ns per op", &work));
            report.add(p50.clone().against("round trips x bare verb", &verbs));
            report.add(p50.against("round trips x bare verb + cpu_work", &whole).within(LIMIT));
        }
    }
    report.add(row("latency_p99", "ns", |round| round.p99));
    report.add(row("cpu", "ns of server core per op", |round| round.cpu));
    let windowed = format!("{case}/window-{}", plan.window);
    let rate = Row::new("kv", windowed, "rate", "1/s", &all(|round| round.rate));
    report.add(rate.clone());
    for (rival, rates) in rivals {
        report.add(rate.clone().against(rival.name(), rates));
    }
}
