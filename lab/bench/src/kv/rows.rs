//! The rows of a workload's rounds: each design compared with its lower bound and the rivals, PRISM-KV with
//! Pilaf.

use super::case::Case;
use super::contest::{Round, Should};
use super::rival::Rival;
use crate::Row;
use remora_options::device::PortName;
use remora_service::kv::Design;
use remora_store_cli::measure::runner::Plan;

/// Largest ratio of a design's latency to its round trips of the bare verb plus its CPU work.
const LIMIT: f64 = 1.15;
/// Bounds of the ratios of PRISM-KV to Pilaf, from the paper's results: the latency of GETs by port, and the
/// rates of reads and of YCSB A.
const LATENCY: f64 = 0.6;
const LATENCY_SHM: f64 = 0.75;
const READS: f64 = 1.22;
const UPDATES: f64 = 1.0;

/// Context of a workload's rounds.
pub(crate) struct RowContext<'a> {
    /// Port over which the rounds ran.
    pub port: PortName,
    /// Plan with the length of values and the window.
    pub plan: &'a Plan,
    /// The measured workload.
    pub case: &'a Case,
    /// Rates of the rivals, whose rounds were interleaved with these.
    pub rivals: &'a [(Rival, &'a [f64])],
}

fn all(rounds: &[Round], figure: fn(&Round) -> f64) -> Vec<f64> {
    rounds.iter().map(figure).collect()
}

impl RowContext<'_> {
    fn path(&self, design: Design) -> String {
        format!("{}/{}/{}/{}", self.port.name(), design.name(), self.plan.value_len, self.case.name)
    }

    fn windowed(&self, design: Design) -> String {
        format!("{}/window-{}", self.path(design), self.plan.window)
    }

    /// Returns the rows of all designs.
    pub(crate) fn rows(&self, designs: &[(Design, &[Round])]) -> Vec<Row> {
        let mut rows: Vec<Row> =
            designs.iter().flat_map(|(design, rounds)| self.of(*design, rounds)).collect();
        let find = |wanted| designs.iter().find(|(design, _)| *design == wanted).map(|(_, rounds)| *rounds);
        if let (Some(prism), Some(pilaf)) = (find(Design::Prism), find(Design::Pilaf)) {
            rows.extend(self.beside_pilaf(prism, pilaf));
        }
        rows
    }

    /// Returns the rows of one design.
    fn of(&self, design: Design, rounds: &[Round]) -> Vec<Row> {
        let case = self.path(design);
        let row = |metric, unit, figure| Row::new("kv", &case, metric, unit, &all(rounds, figure));
        let mut rows = vec![row("round_trips", "", |round| round.round_trips)];
        let p50 = row("latency_p50", "ns", |round| round.p50);
        let should: Option<Vec<Should>> = rounds.iter().map(|round| round.should).collect();
        match should {
            None => rows.push(p50),
            Some(should) => {
                let values = |figure: fn(&Should) -> f64| should.iter().map(figure).collect::<Vec<f64>>();
                let verbs = values(|should| should.verbs);
                let work = values(|should| should.work);
                let whole = values(|should| should.verbs + should.work);
                rows.push(Row::new("kv", &case, "cpu_work", "ns per op", &work));
                rows.push(p50.clone().against("round trips x bare verb", &verbs));
                rows.push(p50.against("round trips x bare verb + cpu_work", &whole).within(LIMIT));
            }
        }
        rows.push(row("latency_p99", "ns", |round| round.p99));
        rows.push(row("cpu", "ns of server core per op", |round| round.cpu));
        let rate = Row::new("kv", self.windowed(design), "rate", "1/s", &all(rounds, |round| round.rate));
        rows.push(rate.clone());
        rows.extend(self.rivals.iter().map(|(rival, rates)| rate.clone().against(rival.name(), rates)));
        rows
    }

    /// Returns the rows with bounds: latency and rate for a workload of reads, the rate for YCSB A.
    fn beside_pilaf(&self, prism: &[Round], pilaf: &[Round]) -> [Row; 2] {
        let against = |row: Row, figure| row.against("pilaf", &all(pilaf, figure));
        let latency =
            Row::new("kv", self.path(Design::Prism), "latency_p50", "ns", &all(prism, |one| one.p50));
        let rate = Row::new("kv", self.windowed(Design::Prism), "rate", "1/s", &all(prism, |one| one.rate));
        let latency = against(latency, |one| one.p50);
        let rate = against(rate, |one| one.rate);
        let most = if self.port == PortName::Shm { LATENCY_SHM } else { LATENCY };
        match self.case.mix.name {
            _ if self.case.reads() => [latency.within(most), rate.at_least(READS)],
            'A' => [latency, rate.at_least(UPDATES)],
            _ => [latency, rate],
        }
    }
}
