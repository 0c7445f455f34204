//! `remora bench kv --transport rc,irn,rma`: a table of design farm over each transport, and the
//! interruption of GETs when one of two servers with the same records is killed.

mod comparison;
mod failover;

use anyhow::{Context as _, Result, ensure};
use remora_service::kv::KvSession;
use remora_store::ycsb::Mix;

use super::case::Case;
use super::contest::{Counts, Round};
use crate::testbed::Testbed;
use crate::{Report, Row};
pub use comparison::Comparison;
use remora_options::device::PortName;
use remora_store_cli::measure::parts::Parts;
use remora_store_cli::measure::runner::{Plan, Runner, Server};
use remora_store_cli::measure::transports::{by_pairs, by_rma, start};
use remora_store_cli::transport::TransportName;

/// A server and a client of one transport.
trait TransportUnderTest {
    fn round(&mut self, index: usize) -> Result<Round>;
}

struct ServerAndClient<S: KvSession> {
    runner: Runner<S>,
    server: Server,
    streams: Vec<(Mix, Parts)>,
    plan: Plan,
}

impl<S: KvSession> TransportUnderTest for ServerAndClient<S> {
    /// Measures one round of workload `index`. The server runs only during the round.
    fn round(&mut self, index: usize) -> Result<Round> {
        let (mix, parts) = &mut self.streams[index];
        let counts = Counts::of(*mix, &self.plan);
        self.server.go_on()?;
        self.runner.together(parts, counts.warm)?;
        let alone = self.runner.alone(parts, counts.alone)?;
        let before = self.server.cpu_ns()?;
        let rate = self.runner.together(parts, counts.together)?;
        let cpu = (self.server.cpu_ns()? - before) as f64 / counts.together as f64;
        self.runner.stop(&self.server)?;
        Ok(Round { round_trips: alone.round_trips, p50: alone.p50, p99: alone.p99, rate, cpu, should: None })
    }
}

fn open(
    transport: TransportName,
    testbed: &Testbed,
    link: usize,
    plan: &Plan,
    cases: &[Case],
) -> Result<Box<dyn TransportUnderTest>> {
    fn of<S: KvSession + 'static>(
        session: S,
        server: Server,
        plan: &Plan,
        cases: &[Case],
    ) -> Result<Box<dyn TransportUnderTest>> {
        let mut runner = Runner::over(session, plan);
        runner.stop(&server)?;
        let parts = |case: &Case| (case.mix, Parts::new(case.mix, plan.records, plan.seed));
        let streams = cases.iter().map(parts).collect();
        Ok(Box::new(ServerAndClient { runner, server, streams, plan: *plan }))
    }
    let server = start(transport, testbed, link, plan)?;
    let port = testbed.client(link);
    match transport {
        TransportName::Rma => of(by_rma(&[&server], &port, plan)?, server, plan, cases),
        _ => of(by_pairs(&server, transport, &port, plan)?, server, plan, cases),
    }
}

impl Comparison<'_> {
    /// Measures all transports, and then the failure of their servers.
    ///
    /// # Errors
    /// Fails on a wrong value or if a process has died.
    pub fn run(&self, cores: [usize; 2], report: &mut Report) -> Result<()> {
        let port = self.port.unwrap_or(PortName::Udp);
        ensure!(
            port != PortName::Shm || !self.transports.contains(&TransportName::Rma),
            "1RMA over shm needs a connected queue pair beside it: choose --port udp"
        );
        let links = 2 * self.transports.len();
        let testbed = Testbed::open(port, cores, links, true)?.context("a network")?;
        let mut systems = Vec::new();
        for (link, transport) in self.transports.iter().enumerate() {
            systems.push(open(*transport, &testbed, link, self.plan, self.cases)?);
        }
        let mut rounds: Vec<Vec<Vec<Round>>> = vec![vec![Vec::new(); systems.len()]; self.cases.len()];
        for number in 0..self.rounds {
            for (index, rounds) in rounds.iter_mut().enumerate() {
                for (system, rounds) in systems.iter_mut().zip(rounds) {
                    rounds.push(system.round(index)?);
                }
            }
            tracing::info!(port = port.name(), number, "round measured");
        }
        for (case, rounds) in self.cases.iter().zip(&rounds) {
            self.tell(port, case, rounds, report);
        }
        drop(systems);
        failover::measure(self, &testbed, report)
    }

    fn tell(&self, port: PortName, case: &Case, rounds: &[Vec<Round>], report: &mut Report) {
        type Figure = fn(&Round) -> f64;
        let figures: [(&str, &str, Figure); 5] = [
            ("round_trips", "", |round| round.round_trips),
            ("latency_p50", "ns", |round| round.p50),
            ("latency_p99", "ns", |round| round.p99),
            ("rate", "1/s", |round| round.rate),
            ("cpu", "ns of server core per op", |round| round.cpu),
        ];
        for (metric, unit, figure) in figures {
            let values = |rounds: &Vec<Round>| rounds.iter().map(figure).collect::<Vec<f64>>();
            let baseline = values(&rounds[0]);
            for (number, (transport, rounds)) in self.transports.iter().zip(rounds).enumerate() {
                let row =
                    Row::new("kv", self.path(port, *transport, &case.name), metric, unit, &values(rounds));
                let beside = self.transports[0].name();
                report.add(if number == 0 { row } else { row.against(beside, &baseline) });
            }
        }
    }

    fn path(&self, port: PortName, transport: TransportName, case: &str) -> String {
        format!("{}/farm-{}/{}/{case}", port.name(), transport.name(), self.plan.value_len)
    }
}
