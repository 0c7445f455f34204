//! Figure 12: small reads during a long transfer.

use remora_fabric::rma::beside::{Beside, Latencies, reliable_connection, rma};
use remora_fabric::rma::path::{Path, chunk_ns};
use remora_wire::rma::Class;

use super::{Figure, Length, cipher, notes, row};
use remora_plot::{Line, Plot};

const LONG: [u64; 6] = [0, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The time of 4 KB at 100 Gb/s, with which the paper explains its latency.
const PAPER_CHUNK_NS: f64 = 328.0;

type Run = fn(&Beside) -> Latencies;

const RUNS: [(&str, Class, Run); 3] = [
    ("1RMA, one class", Class::Latency, |beside| rma(beside, &cipher)),
    ("1RMA, two classes", Class::Bulk, |beside| rma(beside, &cipher)),
    ("RC, one queue pair", Class::Latency, reliable_connection),
];

fn size(bytes: u64) -> String {
    match bytes {
        0 => "alone".to_owned(),
        bytes if bytes < 1 << 20 => format!("{} KB", bytes >> 10),
        bytes => format!("{} MB", bytes >> 20),
    }
}

/// Runs the experiment and draws the figure.
pub(crate) fn figure(length: Length) -> Figure {
    let mut lines = Vec::new();
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    for (name, class, run) in RUNS {
        let reads = length.of(300) as usize;
        let taken = LONG.map(|long| run(&Beside { long, class, reads, seed: 1 }));
        let case = name.replace(", ", "/").replace(' ', "-").to_lowercase();
        for (long, latencies) in LONG.iter().zip(&taken) {
            let case = format!("figure-12/{case}/{}", size(*long).replace(' ', ""));
            rows.push(row(&case, "latency_mean", "ns", latencies.mean()));
            rows.push(row(&case, "latency_p99", "ns", latencies.quantile(0.99) as f64));
        }
        let more = taken[5].mean() - taken[0].mean();
        let beside = row(&format!("figure-12/{case}/4MB"), "beside less alone", "ns", more);
        let of_paper = name.starts_with("1RMA");
        rows.push(if of_paper { beside.against("paper: one chunk", &[PAPER_CHUNK_NS]) } else { beside });
        numbers.push(format!(
            "{name}: {more:.0} ns more beside 4 MB, {:.1} chunks (paper: 1RMA one chunk, RDMA by size)",
            more / chunk_ns() as f64
        ));
        let line = |label: &str, statistic: &dyn Fn(&Latencies) -> f64| Line {
            name: format!("{name}: {label}"),
            values: taken.iter().map(|latencies| statistic(latencies) / 1e3).collect(),
        };
        lines.push(line("mean", &Latencies::mean));
        lines.push(line("p99", &|latencies| latencies.quantile(0.99) as f64));
    }
    let not_given = [
        format!("round trip: {} us, as in Figure 15", Path::simulation(0).rtt_ns as f64 / 1e3),
        "long transfers follow each other without a pause; all of them are reads".to_owned(),
        "congestion control as in Figure 15".to_owned(),
    ];
    let plot = Plot {
        title: "Figure 12, simulated: reads of 64 B, 10,000 a second",
        x: "transfer beside them",
        y: "us",
        labels: LONG.map(size).to_vec(),
        lines,
        by_factors: true,
        ..Plot::default()
    };
    Figure { number: "12", drawings: vec![Box::new(plot)], notes: notes(&numbers, &not_given), rows }
}
