//! Figure 11: offered and accepted load, and the rate by number of slots.

use remora_fabric::rma::load::{Load, accepted, rate_of_slots};
use remora_transport::rma::WriteDebit;
use remora_wire::rma::Kind;

use super::{Figure, Length, cipher, gigabits, notes, row};
use crate::curves::Curve;

const LOADS: [u32; 12] = [20, 40, 60, 70, 75, 80, 85, 90, 95, 100, 110, 120];
const SLOTS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The fraction of the offered load below which the accepted load counts as saturated.
const ON_DIAGONAL: f64 = 0.97;

/// The operations: name, kind, debit of writes, and round-trip time in nanoseconds.
const KINDS: [(&str, Kind, WriteDebit, u64); 4] = [
    ("reads", Kind::Read, WriteDebit::Both, 5_000),
    ("writes, debit at both ends", Kind::Write, WriteDebit::Both, 5_000),
    ("writes, round trip of 3.5 us", Kind::Write, WriteDebit::Both, 3_500),
    ("writes, debit at the server", Kind::Write, WriteDebit::ServerOnly, 5_000),
];

/// Runs the experiment and draws the figure.
pub(crate) fn figure(length: Length) -> Figure {
    let mut curves = Vec::new();
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    for (name, kind, debit, rtt_ns) in KINDS {
        let loads = LOADS.iter().map(|percent| f64::from(*percent) / 100.0);
        let all = loads.map(|offered| {
            let load = Load { kind, debit, rtt_ns, offered, ns: length.of(1_000_000), seed: 1 };
            accepted(&load, &cipher)
        });
        let all: Vec<_> = all.collect();
        let bent = all.iter().position(|row| row.accepted < ON_DIAGONAL * row.offered);
        let limit = bent.map_or("beyond 120 %".to_owned(), |index| format!("{} %", LOADS[index]));
        numbers.push(format!(
            "a: {name} leave the diagonal at {limit} of the line (paper: writes before reads)"
        ));
        let most = all.iter().map(|row| row.accepted).fold(0.0, f64::max);
        let case = format!("figure-11a/{}", name.replace(", ", "/").replace(' ', "-"));
        rows.push(row(&case, "most accepted", "b/s", gigabits(most) * 1e9));
        let points = all.iter().map(|row| (gigabits(row.offered), gigabits(row.accepted))).collect();
        curves.push(Curve { name: name.to_owned(), points });
    }
    let rates: Vec<f64> =
        SLOTS.iter().map(|slots| rate_of_slots(*slots, length.of(400_000), &cipher)).collect();
    for (slots, rate) in SLOTS.iter().zip(&rates) {
        rows.push(row(&format!("figure-11b/slots-{slots}"), "rate", "1/s", *rate));
    }
    let parts = rates[6] / rates[0];
    numbers.push(format!(
        "b: 64 slots have {parts:.1} times the rate of one (paper: the rate grows with slots)"
    ));
    let points = SLOTS.iter().zip(&rates).map(|(slots, rate)| (f64::from(*slots), rate / 1e6)).collect();
    let by_slots = vec![Curve { name: "reads of 64 B".to_owned(), points }];
    let not_given = [
        "round trip of the rack: that of Figure 15, 5 us; and 3.5 us, where two of them just hold a window"
            .to_owned(),
        "arrivals: Poisson, 4 KB, 256 slots, no congestion control; window 64 KB, timers 10 and 20 us"
            .to_owned(),
        "which window a write debits: both are drawn".to_owned(),
    ];
    Figure {
        number: "11",
        drawings: vec![
            super::curves("Figure 11a, simulated", "offered, Gb/s", "accepted, Gb/s", curves),
            super::curves("Figure 11b, simulated", "slots", "million reads a second", by_slots),
        ],
        notes: notes(&numbers, &not_given),
        rows,
    }
}
