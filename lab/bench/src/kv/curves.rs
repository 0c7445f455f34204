//! Rate and mean latency as a function of the operations in flight, for Figures 3 and 4 of PRISM.
//!
//! The client keeps n operations in flight and starts one whenever one has ended, like n closed-loop clients
//! behind one connection. So n operations end in the time that one operation takes on average (Little's
//! law), from which the mean latency follows.

use anyhow::Result;
use remora_store::ycsb::{Distribution, Mix};

use super::contest::{Contestant, system};
use crate::testbed::Testbed;
use crate::{Report, Row, SHORTER};
use remora_options::device::PortName;
use remora_service::kv::Design;
use remora_service::with_design;
use remora_store_cli::measure::runner::Plan;

/// The designs of the two figures.
const DESIGNS: [Design; 2] = [Design::Pilaf, Design::Prism];
/// The workloads of Figures 3 and 4, with their names in the paths of rows.
const MIXES: [(Mix, &str); 2] = [(uniform(Mix::C), "ycsb-c"), (uniform(Mix::A), "ycsb-a")];
/// The operations of a point in one round.
const OPERATIONS: u64 = 20_000 / SHORTER;

const fn uniform(mix: Mix) -> Mix {
    Mix { distribution: Distribution::Uniform, ..mix }
}

/// Returns the numbers of operations in flight.
pub(crate) fn windows(most: u32) -> impl Iterator<Item = u32> + Clone {
    (0..).map(|power| 1 << power).take_while(move |window| *window <= most)
}

/// Measures both designs over each port, in turn.
pub(crate) fn run(
    plan: &Plan,
    cores: [usize; 2],
    only: Option<PortName>,
    rounds: u32,
    report: &mut Report,
) -> Result<()> {
    let mixes = MIXES.map(|(mix, _)| mix);
    for port in Testbed::ports(only) {
        let Some(testbed) = Testbed::open(port, cores, DESIGNS.len(), only.is_some())? else { continue };
        let mut systems: Vec<Box<dyn Contestant>> = Vec::new();
        for (link, design) in DESIGNS.into_iter().enumerate() {
            systems.push(with_design!(design, system(design, &testbed, link, plan, &mixes, false))?);
        }
        for (index, (_, mix)) in MIXES.iter().enumerate() {
            for window in windows(plan.window) {
                let mut rates = vec![Vec::new(); systems.len()];
                for _ in 0..rounds {
                    for (system, rates) in systems.iter_mut().zip(&mut rates) {
                        rates.push(system.closed_loop(index, OPERATIONS, window)?);
                    }
                }
                let paths = DESIGNS.map(|design| {
                    let port = port.name();
                    let design = design.name();
                    let len = plan.value_len;
                    format!("{port}/{design}/{len}/{mix}/uniform/window-{window}")
                });
                tell(paths, window, &rates, report);
            }
        }
    }
    Ok(())
}

/// Returns the rows of a point: PRISM-KV's compared with Pilaf's.
fn tell(paths: [String; 2], window: u32, rates: &[Vec<f64>], report: &mut Report) {
    let latencies: Vec<Vec<f64>> =
        rates.iter().map(|rates| rates.iter().map(|rate| f64::from(window) * 1e9 / rate).collect()).collect();
    for (metric, unit, figures) in [("rate", "1/s", rates), ("latency_mean", "ns", &latencies)] {
        let [pilaf, prism] = &paths;
        report.add(Row::new("kv", pilaf, metric, unit, &figures[0]));
        report.add(Row::new("kv", prism, metric, unit, &figures[1]).against("pilaf", &figures[0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_as_far_as_there_is_room() {
        assert!(windows(64).eq([1, 2, 4, 8, 16, 32, 64]));
        assert!(windows(1).eq([1]));
        assert!(windows(48).eq([1, 2, 4, 8, 16, 32]));
    }
}
