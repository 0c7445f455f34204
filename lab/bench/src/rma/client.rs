//! The bench's end of 1RMA, on the same NIC as its RC queue pair.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use remora_verbs::rma::{Grant, Portal, Rights, Rma, RmaError, RmaOptions, RmaRegion, Status};
use remora_verbs::{Access, Flags, WorkRequest, work};
use remora_wire::rma::{Class, Kind};

use super::Part;
use super::place::{REGION, RegionKeys};
use crate::PortName;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{NicCommand, RmaCommand};

/// The maximum number of operations of a portal in progress.
pub(crate) const SLOTS: u16 = 128;

/// The maximum time of an operation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Connections by RC and by 1RMA from one NIC to the same peer.
pub(crate) struct Client {
    /// The NIC and its RC queue pairs.
    pub end: End,
    /// The 1RMA engine of the NIC.
    pub rma: Rma,
    /// The portal of the client.
    pub portal: Portal,
    /// Local memory of the operations.
    pub local: RmaRegion,
    /// Grant of the peer's region.
    pub grant: Grant,
    /// The generator of keys K_r of the peer's regions.
    pub keys: RegionKeys,
    /// The current key of the region.
    pub key: [u8; 16],
    /// The fraction of a round to run.
    pub part: Part,
}

impl Client {
    /// Opens both connections on a port.
    pub(crate) fn open(peer: &Peer, port: PortName, part: Part) -> Result<Client> {
        let end = End::open(peer, port)?;
        let rma = end.domain.context().open_rma(&RmaOptions::default())?;
        let memory = end.domain.allocate(REGION, Access::LOCAL_WRITE)?;
        crate::touch(&memory)?;
        let local = rma.expose(memory, Rights::NONE, None)?;
        let portal = rma.create_portal(&end.domain, SLOTS)?;
        let mut keys = RegionKeys::default();
        let key = keys.fresh();
        let grant = expose(peer, &end, &portal, 0, key)?;
        Ok(Client { end, rma, portal, local, grant, keys, key, part })
    }

    /// Performs one operation and waits for its completion.
    #[inline]
    pub(crate) fn one(&mut self, kind: Kind, len: u64) -> Result<()> {
        let Client { portal, local, grant, .. } = self;
        match kind {
            Kind::Write => portal.write(local, 0, grant, 4096, len, PATIENCE)?,
            _ => portal.read(local, 0, grant, 4096, len, PATIENCE)?,
        }
        Ok(())
    }

    /// Measures reads per second of `len` bytes with `window` in flight, submitted in batches of `batch`.
    pub(crate) fn reads(&mut self, len: usize, window: usize, batch: usize, count: usize) -> Result<f64> {
        let mut posted = 0;
        let mut done = 0;
        let places = REGION / len.max(4096);
        let started = Instant::now();
        while done < posted || posted < count {
            while posted < count && posted - done + batch <= window {
                let Client { portal, local, grant, .. } = self;
                for number in posted..posted + batch {
                    let offset = (number % places * len) as u64;
                    let len = len as u64;
                    portal.queue(
                        Kind::Read,
                        Class::Latency,
                        local,
                        offset,
                        grant,
                        offset,
                        len,
                        Some(PATIENCE),
                    )?;
                }
                portal.flush();
                posted += batch;
            }
            if let Some((_, status)) = self.portal.poll()? {
                check(status)?;
                done += 1;
            }
        }
        Ok(done as f64 / started.elapsed().as_secs_f64())
    }

    /// Starts a read and returns its number.
    pub(crate) fn submit(&mut self, class: Class, offset: u64, len: u64) -> Result<u64> {
        let Client { portal, local, grant, .. } = self;
        Ok(portal.submit(Kind::Read, class, local, offset, grant, offset, len, Some(PATIENCE))?)
    }

    /// Measures RC's READs per second of `len` bytes with `window` in flight, posted in batches of `batch`.
    pub(crate) fn rc_reads(&mut self, len: usize, window: usize, batch: usize, count: usize) -> Result<f64> {
        let end = &mut self.end;
        let mut posted = 0;
        let mut done = 0;
        let places = REGION / len.max(4096);
        let started = Instant::now();
        while done < count {
            if posted < count && posted - done + batch <= window {
                let mut together = end.qps[0].batch()?;
                for number in posted..posted + batch {
                    let offset = number % places * len;
                    let list = [end.local.sge(offset, len)];
                    let request = work::read(number as u64, &list, end.remote.at(offset as u64));
                    let signaled = number + 1 == posted + batch;
                    together.post_send(&WorkRequest {
                        flags: Flags { signaled, ..Flags::default() },
                        ..request
                    })?;
                }
                together.ring();
                posted += batch;
            } else {
                end.complete(1)?;
                done += batch;
            }
        }
        Ok(done as f64 / started.elapsed().as_secs_f64())
    }
}

/// Returns the grant of a region that the peer exposes at a place under this key.
pub(crate) fn expose(peer: &Peer, end: &End, portal: &Portal, place: usize, key: [u8; 16]) -> Result<Grant> {
    let client = portal.identity().into();
    let command = NicCommand::Rma(RmaCommand::Expose { place, key, client });
    let answer = peer.ask_bytes(end.command(command))?;
    Grant::from_bytes(&answer).context("the peer's answer is not a grant")
}

/// Checks that an operation has succeeded.
pub(crate) fn check(status: Status) -> Result<()> {
    match status {
        Status::Ok => Ok(()),
        other => Err(RmaError::Failed(other).into()),
    }
}
