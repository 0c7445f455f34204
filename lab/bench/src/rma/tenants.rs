//! Programs that share the daemon's NIC: the rate of a program follows from its command slots, and bulk
//! operations do not delay the operations of the latency class.
//!
//! A single thread keeps all programs busy, and the data that they read is on the same NIC. So two threads
//! have a core each, and not the kernel but the NIC divides its time. No congestion control limits the
//! operations in flight.

use std::time::Instant;

use anyhow::{Result, ensure};
use remora_verbs::Access;
use remora_verbs::rma::{CongestionSettings, ControlKind, Grant, Portal, Rights, RmaOptions, RmaRegion};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::client::{PATIENCE, check};
use super::lent::Daemon;
use super::{Bench, path};
use crate::{PortName, Row, SHORTER, histogram};

/// The paths of the cases.
pub(crate) const SHARES: &str = "tenants/shares";
pub(crate) const BULK: &str = "tenants/read-64-beside-bulk";

/// The numbers of command slots of the programs.
const SLOTS: [u16; 3] = [4, 16, 64];
/// The number of operations of a round for all programs together, and the number of short reads of a round.
const OPERATIONS: usize = 42_000 / SHORTER as usize;
const PROBES: usize = 2000 / SHORTER as usize;
/// The length of a short read in bytes.
const SHORT: u32 = 64;
/// Least ratio of a program's share of the throughput to its share of the slots.
const FAIR: f64 = 0.8;

/// A program on the daemon's NIC.
struct Tenant {
    portal: Portal,
    local: RmaRegion,
    grant: Grant,
    class: Class,
    /// The maximum and current numbers of operations in flight, and the number of completed ones.
    slots: u16,
    pending: u16,
    ended: u64,
}

impl Tenant {
    /// Opens a tenant that reads the region `served`.
    fn open(daemon: &Daemon, served: &RmaRegion, slots: u16, class: Class) -> Result<Tenant> {
        let context = daemon.attach()?;
        let congestion = CongestionSettings { kind: ControlKind::None, ..CongestionSettings::software() };
        let rma = context.open_rma(&RmaOptions { congestion, ..RmaOptions::default() })?;
        let domain = context.alloc_pd()?;
        let local =
            rma.expose(domain.allocate(MAX_OPERATION as usize, Access::LOCAL_WRITE)?, Rights::NONE, None)?;
        let portal = match class {
            Class::Bulk => rma.create_bulk_portal(&domain, slots)?,
            Class::Latency => rma.create_portal(&domain, slots)?,
        };
        let grant = served.grant(&portal.identity());
        Ok(Tenant { portal, local, grant, class, slots, pending: 0, ended: 0 })
    }

    fn submit(&mut self, len: u32) -> Result<()> {
        let Tenant { portal, local, grant, class, .. } = self;
        portal.queue(Kind::Read, *class, local, 0, grant, 0, u64::from(len), Some(PATIENCE))?;
        self.pending += 1;
        Ok(())
    }

    /// Takes the results of operations that have ended.
    fn take(&mut self) -> Result<()> {
        while let Some((_, status)) = self.portal.poll()? {
            check(status)?;
            self.pending -= 1;
            self.ended += 1;
        }
        Ok(())
    }

    /// Keeps all slots busy with reads of the maximum size.
    fn keep_busy(&mut self) -> Result<()> {
        self.take()?;
        if self.pending < self.slots {
            while self.pending < self.slots {
                self.submit(MAX_OPERATION)?;
            }
            self.portal.flush();
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        while self.pending > 0 {
            self.take()?;
        }
        Ok(())
    }
}

/// Measures both cases.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    if ![SHARES, BULK].iter().any(|case| bench.wants(&path(PortName::Udp, case))) {
        return Ok(());
    }
    let daemon = Daemon::start(bench.cores)?;
    let context = daemon.attach()?;
    let memory = context.alloc_pd()?.allocate(MAX_OPERATION as usize, Access::LOCAL_WRITE)?;
    let served = context.open_rma(&RmaOptions::default())?.expose(memory, Rights::READ, None)?;
    shares(bench, &daemon, &served)?;
    bulk(bench, &daemon, &served)
}

/// Measures the rates of programs that keep their slots busy, compared to the shares of their slots.
fn shares(bench: &mut Bench<'_>, daemon: &Daemon, served: &RmaRegion) -> Result<()> {
    let case = path(PortName::Udp, SHARES);
    if !bench.wants(&case) {
        return Ok(());
    }
    let mut tenants = SLOTS
        .into_iter()
        .map(|slots| Tenant::open(daemon, served, slots, Class::Latency))
        .collect::<Result<Vec<_>>>()?;
    let count = bench.part().of(OPERATIONS) as u64;
    let rounds = bench.rounds(&case, || {
        for tenant in &mut tenants {
            tenant.ended = 0;
        }
        let started = Instant::now();
        while tenants.iter().map(|tenant| tenant.ended).sum::<u64>() < count {
            for tenant in &mut tenants {
                tenant.keep_busy()?;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let rates = [0, 1, 2].map(|place: usize| tenants[place].ended as f64 / seconds);
        for tenant in &mut tenants {
            tenant.drain()?;
        }
        Ok(rates)
    })?;
    let Some(rates) = rounds else { return Ok(()) };
    let all = SLOTS.iter().copied().map(f64::from).sum::<f64>();
    let sums: Vec<f64> =
        (0..rates[0].len()).map(|round| rates.iter().map(|rate| rate[round]).sum()).collect();
    for (slots, rate) in SLOTS.into_iter().zip(&rates) {
        let share: Vec<f64> = sums.iter().map(|sum| sum * f64::from(slots) / all).collect();
        let row = Row::new("rma", format!("{case}/slots-{slots}"), "rate", "operations/s", rate);
        bench.add(row.against("its slots' share of the rate", &share).at_least(FAIR));
    }
    Ok(())
}

/// Measures the latency of one program's short reads, alone and while another keeps all slots of the bulk
/// class busy.
fn bulk(bench: &mut Bench<'_>, daemon: &Daemon, served: &RmaRegion) -> Result<()> {
    let case = path(PortName::Udp, BULK);
    if !bench.wants(&case) {
        return Ok(());
    }
    let mut short = Tenant::open(daemon, served, 1, Class::Latency)?;
    let mut long = Tenant::open(daemon, served, 64, Class::Bulk)?;
    let probes = bench.part().of(PROBES);
    let rounds = bench.rounds(&case, || {
        let alone = p99(&mut short, None, probes)?;
        let before = (long.ended, Instant::now());
        let beside = p99(&mut short, Some(&mut long), probes)?;
        let chunks = long.ended - before.0;
        let chunk = before.1.elapsed().as_nanos() as f64 / chunks.max(1) as f64;
        long.drain()?;
        ensure!(chunks > 0, "the bulk program read nothing");
        Ok([beside, alone, alone + 2.0 * chunk, chunk])
    })?;
    let Some([beside, alone, bound, chunk]) = rounds else { return Ok(()) };
    let row = |metric, rounds: &[f64]| Row::new("rma", &case, metric, "ns", rounds);
    bench.add(row("latency_p99", &beside).against("alone + two chunks", &bound).within(1.0));
    bench.add(row("latency_p99", &beside).against("alone", &alone));
    bench.add(row("time_of_a_chunk", &chunk));
    Ok(())
}

/// Measures the 99th percentile of short reads, one at a time.
fn p99(short: &mut Tenant, mut long: Option<&mut Tenant>, probes: usize) -> Result<f64> {
    let mut histogram = histogram()?;
    for _ in 0..probes {
        let started = Instant::now();
        short.submit(SHORT)?;
        short.portal.flush();
        while short.pending > 0 {
            short.take()?;
            if let Some(long) = &mut long {
                long.keep_busy()?;
            }
        }
        histogram.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok(histogram.value_at_quantile(0.99) as f64)
}
