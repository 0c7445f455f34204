//! Figures 1 to 7, 10 and 12: ratios of metrics under load.

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use remora_scenario::experiment::irn::{
    self, COMPARISONS, Comparison, Contender, Metric, Metrics, Sign, Signs, interval,
};
use remora_scenario::scenario::ControlName;

use super::trials::{self, Key, Trials};
use super::{Figure, Length, row};
use remora_plot::Drawing;
use remora_plot::bars::{Bars, Series};

/// The gain of IRN over RoCE with PFC according to the paper: 6 to 83 %.
const STATED_GAIN: (f64, f64) = (0.06, 0.83);

/// Runs all experiments that the figures compare.
pub(crate) fn trials(length: &Length, bar: &ProgressBar) -> Result<Trials> {
    let mut keys: Vec<Key> = Vec::new();
    for comparison in &COMPARISONS {
        for control in controls(length, comparison) {
            for (contender, control) in comparison.sides(control) {
                let of_seeds = (1..=length.seeds).map(|seed| (contender, control, seed));
                keys.extend(of_seeds.filter(|key| !keys.contains(key)).collect::<Vec<_>>());
            }
        }
    }
    bar.set_message("load");
    trials::run(&keys, length.jobs, bar, |(contender, control, seed)| {
        irn::load(&length.setting(seed), contender, control)
    })
}

/// Returns the congestion controls of a comparison's rows.
fn controls(length: &Length, comparison: &Comparison) -> Vec<ControlName> {
    let is_run = |control: &ControlName| !length.quick || *control != ControlName::TimelyPatched;
    comparison.controls.iter().copied().filter(is_run).collect()
}

/// A ratio of a comparison, for each seed.
struct Ratio {
    control: ControlName,
    metric: Metric,
    rounds: Vec<f64>,
}

fn metrics(length: &Length, trials: &Trials, key: Key) -> Result<Metrics> {
    let outcome = trials.get(key).context("a run of this contender")?;
    outcome.metrics(length.warm, 0).context("flows that started after the first tenth")
}

fn ratios(length: &Length, trials: &Trials, comparison: &Comparison) -> Result<Vec<Ratio>> {
    let mut ratios = Vec::new();
    for control in controls(length, comparison) {
        let [subject, baseline] = comparison.sides(control);
        for metric in comparison.metrics {
            let metrics_of = |(contender, control), seed| metrics(length, trials, (contender, control, seed));
            let ratio = |seed| {
                Ok::<_, anyhow::Error>(
                    metric.of(&metrics_of(subject, seed)?) / metric.of(&metrics_of(baseline, seed)?),
                )
            };
            let rounds = (1..=length.seeds).map(ratio).collect::<Result<Vec<f64>>>()?;
            ratios.push(Ratio { control, metric: *metric, rounds });
        }
    }
    Ok(ratios)
}

/// Returns the name of a ratio, such as `irn / roce+pfc`.
fn name(comparison: &Comparison) -> String {
    let side = |(contender, control): (Contender, Option<ControlName>)| match control {
        Some(control) if control != ControlName::None => format!("{} with {control}", contender.name()),
        _ => contender.name().to_owned(),
    };
    format!("{} / {}", side(comparison.who), side(comparison.to))
}

/// Returns all figures.
pub(crate) fn figures(length: &Length, trials: &Trials) -> Result<Vec<Figure>> {
    let mut figures: Vec<Figure> = Vec::new();
    for comparison in &COMPARISONS {
        let ratios = ratios(length, trials, comparison)?;
        let number = comparison.figure.to_string();
        let mut rows = Vec::new();
        let mut numbers = Vec::new();
        for ratio in &ratios {
            let case =
                format!("figure-{number}/{}/{}", name(comparison).replace(" / ", "-to-"), ratio.control);
            rows.push(row(&case, ratio.metric.name(), "", &ratio.rounds));
            let (mean, half) = interval(&ratio.rounds);
            numbers.push(format!(
                "{}, {}, {}: {mean:.2} +- {half:.2}{}",
                name(comparison),
                ratio.control,
                ratio.metric.name(),
                paper(comparison)
            ));
        }
        let drawing: Box<dyn Drawing> = Box::new(bars(comparison, &controls(length, comparison), &ratios));
        match figures.iter_mut().find(|figure| figure.number == number) {
            Some(figure) => {
                figure.drawings.push(drawing);
                figure.rows.extend(rows);
                figure.numbers.extend(numbers);
            }
            None => figures.push(Figure { number, drawings: vec![drawing], numbers, rows }),
        }
    }
    Ok(figures)
}

/// Returns the ratio or its sign as the paper states it.
fn paper(comparison: &Comparison) -> String {
    let sign = comparison.paper.map(|sign| format!("; the paper's is {} 1", sign.name()));
    let recalled = comparison.recalled.map(|(low, high)| format!(", recalled {low:.2} to {high:.2}"));
    [sign, recalled].into_iter().flatten().collect()
}

fn bars(comparison: &Comparison, controls: &[ControlName], ratios: &[Ratio]) -> Bars<'static> {
    let groups: Vec<&'static str> = controls.iter().map(|control| control.name()).collect();
    let series = comparison.metrics.iter().map(|metric| {
        let ratio_of = |control: &ControlName| {
            let ratio = ratios.iter().find(|ratio| ratio.control == *control && ratio.metric == *metric);
            ratio.map(|ratio| interval(&ratio.rounds).0)
        };
        Series {
            name: metric.name().to_owned(),
            values: controls.iter().map(ratio_of).collect(),
            stated: comparison.recalled.map_or(Vec::new(), |range| vec![Some(range); groups.len()]),
        }
    });
    Bars {
        title: format!("Figure {}: {}", comparison.figure, name(comparison)).leak(),
        y: "ratio",
        series: series.collect(),
        stated: "lines: recalled from the paper",
        groups,
    }
}

/// Returns one line for each ratio on an unexpected side of 1. A complete run is compared only with the
/// paper, and its gains with the stated ones.
pub(crate) fn signs(length: &Length, trials: &Trials) -> Vec<String> {
    let quick = length.quick;
    let known = Signs::known();
    let mut wrong = Vec::new();
    for comparison in &COMPARISONS {
        for ratio in ratios(length, trials, comparison).unwrap_or_default() {
            let (mean, half) = interval(&ratio.rounds);
            let names = [comparison.who.0.name(), comparison.to.0.name()];
            let control = ratio.control.name();
            let metric = ratio.metric.name();
            let reason = known.reason(comparison.figure, names, control, metric);
            let words =
                format!("figure {}: {}, {control}, {metric}: {mean:.3}", comparison.figure, name(comparison));
            let Some(paper) = comparison.paper else { continue };
            let agrees = Sign::of(mean) == paper;
            match (agrees, reason) {
                (true, None) => {}
                (false, Some(_)) if quick => {}
                (true, Some(_)) if quick => {
                    wrong.push(format!("{words} is {} 1 as the paper's: take it off the list", paper.name()));
                }
                (true, Some(_)) => {}
                (false, reason) => {
                    let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
                    wrong.push(format!("{words} +- {half:.3}; the paper's is {} 1{reason}", paper.name()));
                }
            }
            let gain = 1.0 - mean;
            if !quick && is_stated(comparison) && !(STATED_GAIN.0..=STATED_GAIN.1).contains(&gain) {
                wrong.push(format!(
                    "{words}: the gain of {:.0} % is outside the stated 6 to 83 %",
                    gain * 100.0
                ));
            }
        }
    }
    wrong
}

/// Returns whether the comparison is one of the nine gains that the paper states.
fn is_stated(comparison: &Comparison) -> bool {
    matches!(comparison.figure, 1 | 4)
}
