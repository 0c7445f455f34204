//! Figure 9: 150 MB from several senders to one receiver, alone and with other traffic.

use anyhow::Result;
use indicatif::ProgressBar;
use remora_fabric::engine::Picos;
use remora_scenario::experiment::irn::{self, Contender, Setting, interval};
use remora_scenario::scenario::ControlName;
use remora_scenario::units::Time;

use super::trials::{self, Key};
use super::{Figure, Length, row};
use remora_plot::{Line, Plot};

const SENDERS: [u32; 5] = [10, 20, 30, 40, 50];
const CONTROLS: [ControlName; 3] = [ControlName::None, ControlName::Timely, ControlName::Dcqcn];
const WHO: [Contender; 2] = [Contender::Irn, Contender::RocePfc];
/// The repetitions for each seed of the other figures: 20 with 5 seeds. The paper has 100.
const REPEATED: u64 = 4;
/// The load of the other traffic, and its duration: an incast takes 30 ms at the receiver's link.
const LOAD: f64 = 0.5;
const DURATION: Time = Time(30_000 * Picos::MICROSECOND);
/// The number of senders in the runs with other traffic.
const BESIDE: u32 = 30;

fn keys(seeds: u64) -> Vec<Key> {
    let of_control =
        |control| WHO.map(move |contender| (1..=seeds).map(move |seed| (contender, control, seed)));
    CONTROLS.into_iter().flat_map(of_control).flatten().collect()
}

/// Returns the ratios of a value of IRN to that of RoCE with PFC, by seed.
fn ratios(control: ControlName, seeds: u64, value: impl Fn(Key) -> Option<f64>) -> Vec<f64> {
    let ratio = |seed| Some(value((WHO[0], control, seed))? / value((WHO[1], control, seed))?);
    (1..=seeds).filter_map(ratio).collect()
}

/// Runs and draws both parts of the figure.
pub(crate) fn figures(length: &Length, bar: &ProgressBar) -> Result<Vec<Figure>> {
    Ok(vec![alone(length, bar)?, beside(length, bar)?])
}

fn alone(length: &Length, bar: &ProgressBar) -> Result<Figure> {
    let seeds = length.seeds * REPEATED;
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    let mut lines = CONTROLS.map(|control| Line { name: control.name().to_owned(), values: Vec::new() });
    for senders in SENDERS {
        bar.set_message(format!("incast of {senders}"));
        let trials = trials::run(&keys(seeds), length.jobs, bar, |(contender, control, seed)| {
            irn::incast(&length.setting(seed), contender, control, senders, false)
        })?;
        for (control, line) in CONTROLS.into_iter().zip(&mut lines) {
            let rct = |key| trials.get(key).map(|outcome| outcome.last_end(u64::from(senders)));
            let rounds = ratios(control, seeds, rct);
            let (mean, half) = interval(&rounds);
            line.values.push(mean);
            numbers.push(format!(
                "{senders} senders, {control}: {mean:.3} +- {half:.3} (recalled: within some % of 1)"
            ));
            rows.push(row(&format!("figure-9/{senders}/{control}"), "rct, irn / roce+pfc", "", &rounds));
        }
    }
    let plot = Plot {
        title: "Figure 9: incast of 150 MB, IRN / RoCE with PFC",
        x: "senders",
        y: "ratio of completion times",
        labels: SENDERS.iter().map(ToString::to_string).collect(),
        lines: lines.into(),
        ..Plot::default()
    };
    Ok(Figure { number: "9".into(), drawings: vec![Box::new(plot)], numbers, rows })
}

fn beside(length: &Length, bar: &ProgressBar) -> Result<Figure> {
    bar.set_message("incast beside other traffic");
    let setting = |seed| Setting { load: LOAD, duration: DURATION, ..length.setting(seed) };
    let trials = trials::run(&keys(length.seeds), length.jobs, bar, |(contender, control, seed)| {
        irn::incast(&setting(seed), contender, control, BESIDE, true)
    })?;
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    let mut lines = ["request", "other flows"].map(|name| Line { name: name.into(), values: Vec::new() });
    for control in CONTROLS {
        let rct = |key| trials.get(key).map(|outcome| outcome.last_end(u64::from(BESIDE)));
        let others = |key| Some(trials.get(key)?.metrics(Picos(0), u64::from(BESIDE))?.fct);
        let request = ratios(control, length.seeds, rct);
        let other = ratios(control, length.seeds, others);
        for ((rounds, line), (metric, recalled)) in [request, other].iter().zip(&mut lines).zip([
            ("rct, irn / roce+pfc", "0.70 to 0.96"),
            ("mean fct of others, irn / roce+pfc", "0.13 to 0.68"),
        ]) {
            let (mean, half) = interval(rounds);
            line.values.push(mean);
            numbers.push(format!("{metric}, {control}: {mean:.3} +- {half:.3} (recalled: {recalled})"));
            rows.push(row(&format!("figure-9/beside/{BESIDE}/{control}"), metric, "", rounds));
        }
    }
    let plot = Plot {
        title: "Figure 9: the same beside 50 % load, 30 senders",
        x: "control",
        y: "IRN / RoCE with PFC",
        labels: CONTROLS.iter().map(|control| control.name().to_owned()).collect(),
        lines: lines.into(),
        ..Plot::default()
    };
    Ok(Figure { number: "9-beside".into(), drawings: vec![Box::new(plot)], numbers, rows })
}
