//! `remora bench loss`: the cost of packet loss with go-back-N, with IRN, and with IRN without each of its
//! parts.
//!
//! | file | contents |
//! |---|---|
//! | `bench.rs` | the state of a run, and the constants of its paths |
//! | `world.rs` | the simulated path and the overflowing buffer: scenarios in virtual time |
//! | `udp.rs` | the measurement over real UDP, with ports that lose and delay frames on purpose |
//! | `speed.rs` | packets per second on one core without loss |

mod bench;
mod speed;
mod udp;
mod world;

use anyhow::Result;
use remora_verbs::irn::{Recovery, Settings};

use super::{Args, PortName, Report, Row, median, plot};
use bench::{BDP, Bench, Contestant, MTU};
use remora_options::output;
use remora_options::progress;

/// The probability of random loss of each frame, in percent.
const LOSSES: [f64; 5] = [0.0, 0.01, 0.1, 1.0, 5.0];

/// Indices of the contestants that have a bound.
const BACK: usize = 0;
const IRN: usize = 1;
/// Variants of IRN without those parts that matter on one path.
const WORSE: [usize; 2] = [2, 3];

fn contestants() -> [Contestant; 6] {
    let whole = Settings::default();
    let irn = |name, settings| Contestant { name, irn: Some(settings) };
    [
        Contestant { name: "go-back-n", irn: None },
        irn("irn", whole),
        irn("irn-with-go-back-n", Settings { recovery: Recovery::GoBackN, ..whole }),
        irn("irn-without-sack", Settings { recovery: Recovery::HeadOnly, ..whole }),
        // In this variant, the bitmap limits the packets in flight.
        irn("irn-without-bdp-fc", Settings { bdp_fc: false, bitmap: 512, ..whole }),
        irn("irn-sacked-leave-cap", Settings { sacked_leave: true, ..whole }),
    ]
}

/// The goodput of every contestant at every loss rate, in bits per second, one value per round.
type Goodputs = Vec<[Vec<f64>; LOSSES.len()]>;

/// Runs `remora bench loss`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    let mut bench = Bench { args, report, bar: progress::bar(0, "runs")? };
    output::folder(&args.report)?;
    if args.port.is_none() {
        world::exchange(&mut bench)?;
        world::incast(&mut bench)?;
    }
    if args.wants(PortName::Udp) {
        udp::exchange(&mut bench)?;
    }
    if args.wants(PortName::Shm) {
        speed::run(&mut bench)?;
    }
    bench.bar.finish_and_clear();
    Ok(())
}

impl Bench<'_> {
    /// Measures every contestant at every loss rate in interleaved rounds. Then adds the rows and verdicts,
    /// and draws the plot.
    fn exchanges(
        &mut self,
        place: &str,
        title: &str,
        run: impl Fn(&Contestant, f64, u64) -> Result<f64>,
    ) -> Result<()> {
        if !self.args.wants_case(&format!("{place}/goodput")) {
            return Ok(());
        }
        let contestants = contestants();
        let mut all: Goodputs = contestants.iter().map(|_| Default::default()).collect();
        self.bar.set_length(u64::from(self.args.rounds) * (contestants.len() * LOSSES.len()) as u64);
        self.bar.set_position(0);
        for round in 0..u64::from(self.args.rounds) {
            for (index, loss) in LOSSES.into_iter().enumerate() {
                for (contestant, goodputs) in contestants.iter().zip(&mut all) {
                    self.bar.set_message(format!("{place}/{}/{loss}%", contestant.name));
                    goodputs[index].push(run(contestant, loss / 100.0, round)?);
                    self.bar.inc(1);
                }
            }
        }
        for row in rows(place, &contestants, &all) {
            self.report.add(row);
        }
        let lines = contestants.iter().zip(&all).map(|(contestant, goodputs)| plot::Line {
            name: contestant.name.to_owned(),
            values: goodputs.iter().map(|rounds| median(rounds) / 1e9).collect(),
        });
        plot::Plot {
            title,
            x: "random loss of each frame",
            y: "goodput of both directions, Gb/s",
            labels: LOSSES.iter().map(|loss| format!("{loss} %")).collect(),
            lines: lines.collect(),
            ..plot::Plot::default()
        }
        .write(&self.args.report.join(format!("loss-{place}.svg")))
    }
}

/// Returns the rows that compare every value with that of the same contestant without loss, and those with
/// bounds.
fn rows(place: &str, contestants: &[Contestant], all: &Goodputs) -> Vec<Row> {
    let mut rows = Vec::new();
    let row = |contestant: usize, index: usize| {
        let case = format!("{place}/{}/{}%", contestants[contestant].name, LOSSES[index]);
        Row::new("loss", case, "goodput", "b/s", &all[contestant][index])
    };
    let against = |contestant: usize, index: usize| {
        (format!("{}/{}%", contestants[contestant].name, LOSSES[index]), &all[contestant][index])
    };
    for contestant in 0..contestants.len() {
        for (index, loss) in LOSSES.into_iter().enumerate() {
            let (name, lossless) = against(contestant, 0);
            let row = row(contestant, index);
            let row = if index > 0 { row.against(&name, lossless) } else { row };
            rows.push(if contestant == IRN && loss == 1.0 { row.at_least(0.6) } else { row });
        }
    }
    for (loss, least) in [(1.0, 1.25), (5.0, 2.0)] {
        let index = LOSSES.iter().position(|known| *known == loss).unwrap_or(0);
        let (name, back) = against(BACK, index);
        rows.push(row(IRN, index).against(&name, back).at_least(least));
        let (name, whole) = against(IRN, index);
        rows.extend(WORSE.map(|contestant| row(contestant, index).against(&name, whole).within(1.0)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_asked_figure_is_judged_from_the_right_side() {
        let contestants = contestants();
        let all: Goodputs = (0..contestants.len())
            .map(|contestant| {
                std::array::from_fn(|index| vec![100.0 / (1 + index * (2 - contestant.min(1))) as f64])
            })
            .collect();
        let judged: Vec<Row> =
            rows("world", &contestants, &all).into_iter().filter(|row| row.holds.is_some()).collect();
        let bounds: Vec<_> = judged
            .iter()
            .map(|row| (row.case.as_str(), row.baseline.as_deref().unwrap_or(""), row.least, row.limit))
            .collect();
        assert_eq!(
            bounds,
            [
                ("world/irn/1%", "irn/0%", Some(0.6), None),
                ("world/irn/1%", "go-back-n/1%", Some(1.25), None),
                ("world/irn-with-go-back-n/1%", "irn/1%", None, Some(1.0)),
                ("world/irn-without-sack/1%", "irn/1%", None, Some(1.0)),
                ("world/irn/5%", "go-back-n/5%", Some(2.0), None),
                ("world/irn-with-go-back-n/5%", "irn/5%", None, Some(1.0)),
                ("world/irn-without-sack/5%", "irn/5%", None, Some(1.0)),
            ]
        );
        // The bounds are a quarter of the lossless goodput at 1 %, and 1.75 and 1.8 times the goodput of
        // go-back-N.
        let holds: Vec<_> = judged.iter().map(|row| row.holds).collect();
        assert_eq!(holds, [false, true, true, true, false, true, true].map(Some));
    }
}
