//! Figures 16a and 16b: windows and timers in a network with jitter.

use remora_fabric::rma::jitter::{Jitter, Shed, run};

use super::{Figure, Length, cipher, gigabits, notes, row};
use crate::curves::Curve;

const WINDOWS: [u32; 3] = [48, 64, 96];
const JITTER_US: [u64; 13] = [0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 30];
/// The window that part b shows.
const SHOWN: u32 = 64;

/// Runs the experiment and draws both parts.
pub(crate) fn figure(length: Length) -> Figure {
    let mut goodput = Vec::new();
    let mut shown = Vec::new();
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    for window in WINDOWS {
        let all = JITTER_US.map(|us| {
            let ns = length.of(1_000_000);
            run(&Jitter { window: window << 10, jitter_ns: us * 1000, ns, seed: 1 }, &cipher)
        });
        let fallen = all.iter().position(|shed| shed.goodput < 0.7);
        let limit = fallen.map_or("beyond 30 us".to_owned(), |index| format!("{} us", JITTER_US[index]));
        numbers.push(format!(
            "a: {window} KB fall below 70 % of the line at {limit} (paper: 48, 64, 96 in this order)"
        ));
        for (us, shed) in JITTER_US.iter().zip(&all) {
            let case = format!("figure-16a/{window}KB/jitter-{us}us");
            rows.push(row(&case, "goodput", "b/s", gigabits(shed.goodput) * 1e9));
        }
        let points = JITTER_US.iter().zip(&all).map(|(us, shed)| (*us as f64, gigabits(shed.goodput)));
        goodput.push(Curve { name: format!("{window} KB"), points: points.collect() });
        if window == SHOWN {
            shown = all.to_vec();
        }
    }
    type Share = fn(&Shed) -> f64;
    let statuses: [(&str, Share); 3] = [
        ("DISPATCH_TIMEOUT", |shed| shed.dispatch_timeouts),
        ("TIMEOUT", |shed| shed.timeouts),
        ("NACK", |shed| shed.nacks),
    ];
    let mut curves = Vec::new();
    for (name, share) in statuses {
        let first = shown.iter().position(|shed| share(shed) > 0.01);
        let onset =
            first.map_or("never".to_owned(), |index| format!("from {} us of jitter on", JITTER_US[index]));
        numbers.push(format!("b: {name}: {onset} (paper: DISPATCH_TIMEOUT, then TIMEOUT)"));
        for (us, shed) in JITTER_US.iter().zip(&shown) {
            rows.push(row(&format!("figure-16b/{name}/jitter-{us}us"), "part of all", "", share(shed)));
        }
        let points = JITTER_US.iter().zip(&shown).map(|(us, shed)| (*us as f64, share(shed) * 100.0));
        curves.push(Curve { name: name.to_owned(), points: points.collect() });
    }
    let not_given = [
        "jitter: each frame of data comes later by 0 to so much, evenly distributed; it may be overtaken"
            .to_owned(),
        "reads begin at even distances, one each 333 ns: line rate with all headers; 256 slots".to_owned(),
    ];
    Figure {
        number: "16",
        drawings: vec![
            super::curves("Figure 16a, simulated", "jitter, us", "goodput, Gb/s", goodput),
            super::curves("Figure 16b, simulated: 64 KB", "jitter, us", "% of the reads", curves),
        ],
        notes: notes(&numbers, &not_given),
        rows,
    }
}
