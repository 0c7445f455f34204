//! Figures 1 and 2 in two versions: in model time, with the values of the paper's text, and in the real time
//! of this software.

use std::path::Path;

use anyhow::Result;
use remora_cost::prism::{CHAIN, FIGURE_1, FIGURE_2, Plan};
use remora_cost::{CostModel, NETWORKS};

use super::Measured;
use super::case::Case;
use crate::median;
use remora_options::output;
use remora_plot::bars::{Bars, Series};
use remora_plot::{Drawing, Line, Mark, Plot};

/// Converts nanoseconds to microseconds.
fn us(ns: f64) -> f64 {
    ns / 1000.0
}

/// Returns the latency that §4.3 states: RDMA operations plus the software overhead of each operation. The
/// paper states none for chains.
fn stated(model: CostModel, plan: Plan) -> Option<(f64, f64)> {
    match model {
        CostModel::ConnectX5 => Some((2.5, 2.5)),
        CostModel::PrismSoftware if plan != CHAIN => Some((2.5 + 2.5, 2.5 + 2.8)),
        _ => None,
    }
}

/// Reads through a pointer with latencies in the text for one switch: two READs, 0.8 us more than an RPC of
/// 5.6 us (§2.1), and PRISM-KV's GET (§6.2).
const OVER_ONE_SWITCH: [(usize, f64); 2] = [(1, 5.6 + 0.8), (1, 6.0)];

/// Writes both versions into the folder.
pub(crate) fn draw(folder: &Path, measured: &[Measured]) -> Result<()> {
    output::folder(folder)?;
    let bars = model_bars();
    let lines = model_lines();
    let real_bars = real_bars(measured);
    let real_lines = real_lines(measured);
    let [mut first, mut second]: [Vec<&dyn Drawing>; 2] = [vec![&bars], vec![&lines]];
    if !measured.is_empty() {
        first.push(&real_bars);
        second.push(&real_lines);
    }
    remora_plot::write(&folder.join("prism-figure-1.svg"), &first)?;
    remora_plot::write(&folder.join("prism-figure-2.svg"), &second)
}

fn groups() -> Vec<&'static str> {
    FIGURE_1.iter().map(|plan| plan.name).collect()
}

fn model_bars() -> Bars<'static> {
    let latency_us = |model: CostModel, plan: Plan| model.latency(plan.trips, 0).map(|ns| us(ns as f64));
    let stated_of = |model| match FIGURE_1.map(|plan| stated(model, plan)) {
        none if none.iter().all(Option::is_none) => Vec::new(),
        some => some.to_vec(),
    };
    let series = |model: CostModel| Series {
        name: model.name().to_owned(),
        values: FIGURE_1.iter().map(|plan| latency_us(model, *plan)).collect(),
        stated: stated_of(model),
    };
    Bars {
        title: "Figure 1 in model time: one cable, 512 B",
        y: "latency, us",
        groups: groups(),
        series: CostModel::MODELS.map(series).into_iter().collect(),
        stated: "stated in the paper",
    }
}

fn case_of(plan: Plan) -> Option<Case> {
    Case::ALL.into_iter().find(|case| case.plan() == plan)
}

fn real_bars(measured: &[Measured]) -> Bars<'static> {
    let series = |measured: &Measured| {
        let read = median(measured.of(Case::Read));
        let ratio = |plan: &Plan| case_of(*plan).map(|case| median(measured.of(case)) / read);
        Series {
            name: format!("Remora, {}", measured.port.name()),
            values: FIGURE_1.iter().map(ratio).collect(),
            stated: Vec::new(),
        }
    };
    Bars {
        title: "Figure 1 in real time: this software, 512 B",
        y: "latency, READs of the same port",
        groups: groups(),
        series: measured.iter().map(series).collect(),
        stated: "",
    }
}

fn networks() -> Vec<String> {
    NETWORKS.iter().map(|network| format!("{} {} us", network.name, us(network.ns as f64))).collect()
}

fn model_lines() -> Plot<'static> {
    let value = |model: CostModel, plan: Plan, network: u64| {
        model.latency(plan.trips, network).map_or(f64::NAN, |ns| us(ns as f64))
    };
    let line = |(model, plan): (CostModel, Plan)| Line {
        name: format!("{}, {}", model.name(), plan.name),
        values: NETWORKS.iter().map(|network| value(model, plan, network.ns)).collect(),
    };
    Plot {
        title: "Figure 2 in model time: a READ through a pointer",
        x: "what the network adds to a round trip",
        y: "latency, us",
        labels: networks(),
        lines: FIGURE_2.map(line).into_iter().collect(),
        by_factors: true,
        stated: Some((
            "stated in the paper",
            OVER_ONE_SWITCH.map(|(place, value)| Mark { line: None, place, value }).to_vec(),
        )),
    }
}

fn real_lines(measured: &[Measured]) -> Plot<'static> {
    let line = |measured: &Measured, case: Case| {
        let own = median(measured.of(case));
        let trips = measured.trips(case);
        Line {
            name: format!("{}, {}", measured.port.name(), case.plan().name),
            values: NETWORKS.iter().map(|network| us(own + trips * network.ns as f64)).collect(),
        }
    };
    let both = |measured| [Case::TwoReads, Case::IndirectRead].map(|case| line(measured, case));
    Plot {
        title: "Figure 2 in real time: measured here, networks added",
        x: "added to each round trip that was counted on the wire",
        y: "latency, us",
        labels: networks(),
        lines: measured.iter().flat_map(both).collect(),
        by_factors: true,
        stated: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortName;

    #[test]
    fn software_has_a_bar_for_each_operation_and_pays_the_network_as_often_as_the_wire_says() {
        let index_of = |case: Case| Case::ALL.iter().position(|known| *known == case).unwrap();
        let mut rounds = vec![vec![1000.0]; Case::ALL.len()];
        rounds[index_of(Case::Chain)] = vec![1500.0, 2500.0, 9000.0];
        let trips = Case::ALL.map(|case| (case, if case == Case::TwoReads { 2.0 } else { 1.0 }));
        let measured = [Measured { port: PortName::Shm, rounds, trips: trips.to_vec() }];
        let bars = real_bars(&measured);
        assert_eq!(bars.series[0].values.len(), bars.groups.len());
        assert_eq!(bars.series[0].values.last(), Some(&Some(2.5)));
        let lines = real_lines(&measured);
        assert_eq!(lines.lines[0].values, [1.0, 2.2, 7.0, 49.0], "two READs");
        assert_eq!(lines.lines[1].values, [1.0, 1.6, 4.0, 25.0], "one");
    }
}
