//! Reads from many NICs at the same time over UDP. A client that requests more data than the kernel's buffer
//! holds loses datagrams.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use remora_verbs::rma::{Grant, Portal, Rights, RmaOptions, RmaRegion};
use remora_verbs::{
    Access, CompletionQueue, EMPTY, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ready,
    RemoteMemory, Status, work,
};
use remora_wire::frame::Address;
use remora_wire::rma::{Class, Kind};

use super::client::{PATIENCE, SLOTS, check};
use super::place::{CROWD, FIRST_REGION, RegionKeys, under};
use super::{Bench, path};
use crate::testbed::pair::Peer;
use crate::testbed::protocol::{Command, IncastCommand};
use crate::testbed::veth::NIC;
use crate::{PortName, Row};
use remora_options::device::LOOPBACK;

/// The path of the case.
pub(crate) const CASE: &str = "incast/32";

/// The number of bytes read from each NIC at a time.
const LEN: usize = 64 << 10;
/// Number of incasts in a round.
const TIMES: usize = 20;

/// The bench's NIC, with RC and 1RMA to each of the peer's NICs.
struct Incast {
    cq: CompletionQueue,
    qps: Vec<QueuePair<Ready>>,
    remotes: Vec<RemoteMemory>,
    local: MemoryRegion,
    portal: Portal,
    buffer: RmaRegion,
    grants: Vec<Grant>,
    /// Number of incasts in a round.
    times: usize,
    /// The UDP ports of all NICs, the bench's first.
    ports: Vec<u16>,
    _domain: ProtectionDomain,
}

/// Measures the losses and rates of an incast with 1RMA and with RC.
pub(crate) fn run(bench: &mut Bench<'_>, peer: &Peer) -> Result<()> {
    let case = path(PortName::Udp, CASE);
    if !bench.wants(&case) {
        return Ok(());
    }
    let mut incast = Incast::open(peer, bench.part().of(TIMES))?;
    peer.run(Command::Incast(IncastCommand::Serve))?;
    incast.by_rma()?;
    let rounds = bench.rounds(&case, || {
        let (rma_rate, rma_lost) = incast.round(Incast::by_rma)?;
        let (rc_rate, rc_lost) = incast.round(Incast::by_rc)?;
        Ok([rma_lost, rc_lost, rma_rate, rc_rate])
    })?;
    peer.run(Command::Sleep)?;
    let Some([rma_lost, rc_lost, rma_rate, rc_rate]) = rounds else { return Ok(()) };
    let lost =
        |way: &str, rounds: &[f64]| Row::new("rma", format!("{case}/{way}"), "datagrams_lost", "", rounds);
    let worst = rma_lost.iter().copied().fold(0.0, f64::max);
    let row = lost("rma", &rma_lost);
    // The row has the worst round, because no datagram may be lost in any.
    bench.add(Row { value: worst, ..row }.at_most(0.0));
    bench.add(lost("rc", &rc_lost));
    let row = Row::new("rma", format!("{case}/rma"), "bandwidth", "B/s", &rma_rate);
    bench.add(row.against("rc", &rc_rate));
    Ok(())
}

impl Incast {
    fn open(peer: &Peer, times: usize) -> Result<Incast> {
        let context = PortName::Udp.device_on(LOOPBACK, NIC)?.open()?;
        let domain = context.alloc_pd()?;
        let rma = context.open_rma(&RmaOptions::default())?;
        let memory = domain.allocate(CROWD * LEN, Access::LOCAL_WRITE)?;
        crate::touch(&memory)?;
        let buffer = rma.expose(memory, Rights::NONE, None)?;
        let portal = rma.create_portal(&domain, SLOTS)?;
        let key = RegionKeys::default().fresh();
        let answer = peer.ask_bytes(Command::Incast(IncastCommand::Open { key }))?;
        let (ports, _) = answer.as_chunks::<2>();
        let mut ports: Vec<u16> = ports[..=CROWD].iter().copied().map(u16::from_le_bytes).collect();
        let connections = SocketAddr::from((LOOPBACK, ports.pop().context("the port of connections")?));
        let grants = ports.iter().map(|port| under(&bare(*port)?, &key, &portal.identity()));
        let grants = grants.collect::<Result<Vec<Grant>>>()?;
        ports.insert(0, rma.endpoint().udp_port);
        let local = domain.allocate(CROWD * LEN, Access::LOCAL_WRITE)?;
        crate::touch(&local)?;
        let cq = context.create_cq(256)?;
        let qps = Vec::new();
        let remotes = Vec::new();
        let mut incast =
            Incast { cq, qps, remotes, local, portal, buffer, grants, times, ports, _domain: domain.clone() };
        peer.run(Command::Incast(IncastCommand::Accept))?;
        for _ in 0..CROWD {
            incast.connect(&domain, connections)?;
        }
        Ok(incast)
    }

    fn connect(&mut self, domain: &ProtectionDomain, address: SocketAddr) -> Result<()> {
        let options =
            QpOptions { max_send_wr: 16, max_recv_wr: 16, max_rd_atomic: 16, ..QpOptions::default() };
        let qp = domain.create_qp(&self.cq, &self.cq, &options)?.connect(address)?;
        self.remotes.push(RemoteMemory::from_bytes(qp.peer_private_data()).context("the peer's memory")?);
        self.qps.push(qp);
        Ok(())
    }

    /// Runs one round. Returns bytes per second, and the number of datagrams that the kernel dropped.
    fn round(&mut self, mut reads: impl FnMut(&mut Incast) -> Result<()>) -> Result<(f64, f64)> {
        let before = lost(&self.ports)?;
        let started = std::time::Instant::now();
        for _ in 0..self.times {
            reads(self)?;
        }
        let rate = (self.times * CROWD * LEN) as f64 / started.elapsed().as_secs_f64();
        Ok((rate, (lost(&self.ports)? - before) as f64))
    }

    fn by_rma(&mut self) -> Result<()> {
        let Incast { portal, buffer, grants, .. } = self;
        for (number, grant) in grants.iter().enumerate() {
            let offset = (number * LEN) as u64;
            portal.submit(
                Kind::Read,
                Class::Latency,
                buffer,
                offset,
                grant,
                0,
                LEN as u64,
                Some(PATIENCE),
            )?;
        }
        let mut left = grants.len();
        while left > 0 {
            if let Some((_, status)) = portal.poll()? {
                check(status)?;
                left -= 1;
            }
        }
        Ok(())
    }

    fn by_rc(&mut self) -> Result<()> {
        for (number, (qp, remote)) in self.qps.iter_mut().zip(&self.remotes).enumerate() {
            let list = [self.local.sge(number * LEN, LEN)];
            qp.post_send(&work::read(number as u64, &list, remote.at(0)))?;
        }
        let mut left = self.qps.len();
        let mut done = [EMPTY; 32];
        while left > 0 {
            let got = self.cq.poll(&mut done)?;
            for completion in &done[..got] {
                let status = completion.status;
                ensure!(status == Status::Success, "a READ of the incast ended: {}", status.explain());
            }
            left -= got;
        }
        Ok(())
    }
}

/// Returns a grant of the first region of one of the NICs, without keys.
fn bare(port: u16) -> Result<Grant> {
    let mut bytes = [0; Grant::LEN];
    bytes[..16].copy_from_slice(&Address::from(LOOPBACK).0);
    bytes[16..18].copy_from_slice(&port.to_le_bytes());
    bytes[18..22].copy_from_slice(&FIRST_REGION.to_le_bytes());
    bytes[22..30].copy_from_slice(&(LEN as u64).to_le_bytes());
    Grant::from_bytes(&bytes).context("the bytes have the length of a grant")
}

/// Returns the number of datagrams that sockets with these ports have dropped, from the kernel's counters.
fn lost(ports: &[u16]) -> Result<u64> {
    let table = std::fs::read_to_string("/proc/net/udp").context("the kernel's table of UDP sockets")?;
    Ok(drops(&table, ports))
}

/// Returns the sum of the last column for the sockets with one of these ports.
fn drops(table: &str, ports: &[u16]) -> u64 {
    let sockets = table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (_, port) = words.nth(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        ports.contains(&port).then(|| words.next_back()?.parse::<u64>().ok())?
    });
    sockets.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_are_lost_are_those_of_the_sockets_that_are_asked_for() {
        let line = |port: &str, drops: &str| {
            format!(
                "  419: 0100007F:{port} 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 \
                 2241 2 0000000000000000 {drops}\n"
            )
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout \
                    inode ref pointer drops\n";
        let table = [head, &line("12B7", "5"), &line("12B8", "7"), &line("12B9", "11")].concat();
        assert_eq!(drops(&table, &[0x12b7, 0x12b9]), 16);
        assert_eq!(drops(&table, &[1]), 0);
    }
}
