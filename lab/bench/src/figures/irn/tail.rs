//! Figure 8: the tail latency of messages of one packet.

use remora_scenario::experiment::irn::Contender;
use remora_scenario::scenario::ControlName;

use super::trials::Trials;
use super::{Figure, Length, row};
use crate::median;
use remora_plot::{Line, Plot};

/// The percentiles of the messages, as fractions.
const PARTS: [f64; 4] = [0.9, 0.95, 0.99, 0.999];
/// The size in bytes of a message of one packet.
const PACKET: u64 = 1_000;

const CONTROLS: [ControlName; 3] = [ControlName::None, ControlName::Timely, ControlName::Dcqcn];
const WHO: [Contender; 2] = [Contender::Irn, Contender::RocePfc];

/// Draws the figure from the runs under load.
pub(crate) fn figure(length: &Length, trials: &Trials) -> Figure {
    let mut lines = Vec::new();
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    for control in CONTROLS {
        let tails = WHO.map(|contender| {
            let of_seed = |seed| trials.get((contender, control, seed))?.tail(length.warm, PACKET, PARTS);
            (1..=length.seeds).filter_map(of_seed).collect::<Vec<[f64; 4]>>()
        });
        let samples =
            |index: usize, part: usize| tails[index].iter().map(|tail| tail[part]).collect::<Vec<f64>>();
        for (index, contender) in WHO.iter().enumerate() {
            let values = (0..PARTS.len()).map(|part| median(&samples(index, part)) * 1e6).collect();
            lines.push(Line { name: format!("{}, {control}", contender.name()), values });
        }
        for (part, share) in PARTS.iter().enumerate() {
            let [irn, roce] = [samples(0, part), samples(1, part)];
            let case = format!("figure-8/{control}/{}", share * 100.0);
            numbers.push(format!(
                "{} %, {control}: IRN {:.1} us, RoCE with PFC {:.1} us (the paper: IRN's is not longer)",
                share * 100.0,
                median(&irn) * 1e6,
                median(&roce) * 1e6
            ));
            let us = |seconds: &[f64]| seconds.iter().map(|each| each * 1e6).collect::<Vec<_>>();
            let latency = row(&case, "latency of one packet", "us", &us(&irn));
            rows.push(latency.against("roce+pfc", &us(&roce)));
        }
    }
    let plot = Plot {
        title: "Figure 8: messages of one packet",
        x: "part of the messages",
        y: "completion time, us",
        labels: PARTS.iter().map(|part| format!("{} %", part * 100.0)).collect(),
        lines,
        by_factors: true,
        ..Plot::default()
    };
    Figure { number: "8".into(), drawings: vec![Box::new(plot)], numbers, rows }
}
