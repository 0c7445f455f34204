//! Figures 9 and 10: transactions as a function of clients and of the skew of their keys, on modelled
//! hardware with the paper's values, and in this software.

use std::path::Path;

use anyhow::Result;
use remora_cost::load::{FIGURE_9, System};
use remora_store::ycsb::zeta;

use super::loads::{UNITS, measured, write};
use crate::curves::{Curve, Curves, Saved, Stated, by_name, skew};
use remora_plot as plot;

/// Number of objects in the paper.
const OBJECTS: u64 = 8_000_000;
/// The Zipf exponents of the models; 0 is uniform.
const SKEWS: [f64; 9] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6];
/// Number of clients that reaches the peak rate, regardless of the bottleneck.
const MANY: u32 = 1 << 20;

/// Draws Figure 9: transactions with uniform keys. The text states only differences from FaRM: 5.5 us less,
/// and a million more.
pub(crate) fn figure_9(folder: &Path, rows: &[Saved]) -> Result<()> {
    let farm = FIGURE_9[2].load(0.0);
    let stated = [
        Stated { curve: 0, x: None, y: Some(farm.latency / UNITS.latency - 5.5) },
        Stated { curve: 0, x: Some(farm.most() / UNITS.rate + 1.0), y: None },
    ];
    let subject = "read-modify-write transactions";
    let title = "YCSB-T, uniform keys";
    let software = measured(rows, "txn", "/ycsb-t/uniform");
    write(folder, 9, &FIGURE_9, stated.to_vec(), subject, title, software)
}

/// Draws Figure 10: the peak rate as a function of the keys' skew.
pub(crate) fn figure_10(folder: &Path, rows: &[Saved]) -> Result<()> {
    let curve = |system: &System| {
        let peak = |skew: f64| system.load(1.0 / zeta(OBJECTS, skew)).with(MANY).rate / UNITS.rate;
        Curve { name: system.name.to_owned(), points: SKEWS.map(|skew| (skew, peak(skew))).to_vec() }
    };
    let x = "Zipf exponent of the keys; 0: uniform";
    let y = "peak, million transactions a second";
    let curves = FIGURE_9.iter().map(curve).collect();
    let title = "Figure 10 in model time";
    let model = Curves { title, x, y, curves, by_factors: true, ..Curves::default() };
    let title = "Figure 10 in real time";
    let real = Curves { title, x, y, curves: peaks(rows), by_factors: true, ..Curves::default() };
    plot::write(&folder.join("prism-figure-10.svg"), &[&model, &real])
}

/// Returns the rates of `PORT/DESIGN/LEN/ycsb-t/uniform|zipf-E`, without windows.
fn peaks(rows: &[Saved]) -> Vec<Curve> {
    let rates = rows.iter().filter(|row| row.bench == "txn" && row.metric == "rate");
    by_name(rates.filter_map(|row| {
        let parts: Vec<&str> = row.case.split('/').collect();
        let [port, design, _, "ycsb-t", keys] = parts[..] else { return None };
        Some((format!("{port}, {design}"), (skew(keys)?, row.value / UNITS.rate)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_the_rates_without_a_window_in_the_order_of_their_exponents() {
        let row = |case: &str, metric: &str, value: f64| Saved::alone(["txn", case, metric], value);
        let rows = [
            row("shm/farm/512/ycsb-t/zipf-1.6", "rate", 1e5),
            row("shm/farm/512/ycsb-t/uniform", "rate", 4e5),
            row("shm/farm/512/ycsb-t/uniform/window-4", "rate", 3e5),
            row("shm/farm/512/ycsb-t/uniform", "latency_p50", 9.0),
            row("shm/prism-tx/512/ycsb-t/zipf-0.2", "rate", 5e5),
            row("shm/farm/16/smallbank", "rate", 1.0),
        ];
        let curves = peaks(&rows);
        let seen: Vec<(&str, &[(f64, f64)])> =
            curves.iter().map(|curve| (curve.name.as_str(), curve.points.as_slice())).collect();
        let expected: [(&str, &[(f64, f64)]); 2] =
            [("shm, farm", &[(0.0, 0.4), (1.6, 0.1)]), ("shm, prism-tx", &[(0.2, 0.5)])];
        assert_eq!(seen, expected);
    }
}
