//! Tasks of streams, which are partitioned or counted on arrival.

use std::time::Instant;

use anyhow::{Result, ensure};
use remora_verbs::kernel::{Ask, Partition, histogram};
use remora_verbs::{Flags, WorkRequest, work};

use super::case::Way;
use super::client::Client;
use super::place::{BULK, COUNT, COUNTED, MESSAGE, PARTITION, PARTITIONS, SHUFFLE, SHUFFLED};
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::NicCommand;

/// The number of messages in flight.
const WINDOW: usize = 2;
/// The number of partitions that one RPC sets: as many as fit inline.
const SET: usize = 14;
/// The number of bytes that the sender gathers for a partition, as in the paper.
const GATHERED: usize = 128;
/// The number of WRITEs posted together, and the number of such groups in flight.
const BATCH: usize = 32;
const BATCHES: usize = 4;
/// The offset in local memory of the partitioned data in flight.
const GATHERING: usize = 56 << 20;

/// Fills the local memory with values that are all different.
pub(crate) fn fill(end: &End) -> Result<()> {
    let mut page = [0; 4096];
    for offset in (0..COUNTED).step_by(page.len()) {
        for (index, word) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let number = (offset / 8 + index) as u64;
            // The function is a bijection, so that all values differ. Its low bits choose the partition.
            *word = (number ^ number << 22).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes().to_le_bytes();
        }
        end.local.write(offset, &page)?;
    }
    Ok(())
}

impl Client {
    /// Measures the time in nanoseconds to write the stream, partitioned or unchanged.
    pub(crate) fn shuffle(&mut self, way: Way) -> Result<f64> {
        match way {
            Way::Strom => {
                self.set_partitions()?;
                let started = Instant::now();
                // The stream is one message, because the end of a message flushes buffered data to memory.
                let list = [self.end.local.sge(0, SHUFFLED)];
                let tag = self.answers.give(&mut self.end.qps[0], SHUFFLE, &list)?;
                self.wait(tag)?;
                Ok(started.elapsed().as_nanos() as f64)
            }
            Way::SenderPartitions => partition_and_write(&mut self.end),
            _ => write_stream(&mut self.end, SHUFFLED),
        }
    }

    fn set_partitions(&mut self) -> Result<()> {
        let all: Vec<Partition> = (0..PARTITIONS)
            .map(|number| Partition {
                address: self.there(BULK + (number * PARTITION) as u64),
                values: PARTITION as u64 / 8,
            })
            .collect();
        for (index, some) in all.chunks(SET).enumerate() {
            self.ask(SHUFFLE, &histogram(PARTITIONS.ilog2(), (index * SET) as u32, some))?;
        }
        Ok(())
    }

    /// Checks that the data at the beginning of some partitions belongs there.
    pub(crate) fn look_at_partitions(&mut self) -> Result<()> {
        for number in [0, 7, PARTITIONS - 1] {
            let list = [self.end.local.sge(GATHERING, 4096)];
            self.end.one(&work::read(0, &list, self.end.remote.at(BULK + (number * PARTITION) as u64)))?;
            let values = self.end.local.get::<[u64; 512]>(GATHERING)?;
            let strangers = values.iter().filter(|value| **value as usize % PARTITIONS != number);
            ensure!(strangers.count() == 0, "partition {number} has values of other partitions");
        }
        Ok(())
    }

    /// Measures the bytes per second of a stream that is counted in flight, or not.
    pub(crate) fn count(&mut self, way: Way, peer: &Peer) -> Result<f64> {
        if way == Way::Strom {
            peer.run(self.end.command(NicCommand::Attach { counts: true, checks: None }))?;
            peer.run(self.end.command(NicCommand::Serve))?;
            self.ask(COUNT, &[Ask::Clear as u8])?;
        }
        let took = write_stream(&mut self.end, COUNTED)?;
        if way == Way::Strom {
            let answer = self.ask(COUNT, &[Ask::Estimate as u8])?;
            let mut bytes = [0; 8];
            self.answers.read(&answer, &mut bytes)?;
            let estimate = f64::from_le_bytes(bytes);
            let wanted = (COUNTED / 8) as f64;
            ensure!((estimate / wanted - 1.0).abs() < 0.04, "{estimate} different values, of {wanted}");
            peer.run(self.end.command(NicCommand::Attach { counts: false, checks: None }))?;
            peer.run(self.end.command(NicCommand::Serve))?;
        }
        Ok(COUNTED as f64 / took * 1e9)
    }
}

/// Measures the time of plain WRITEs of the stream in nanoseconds.
fn write_stream(end: &mut End, bytes: usize) -> Result<f64> {
    let started = Instant::now();
    end.stream(bytes / MESSAGE, WINDOW, |end, number| {
        let list = [end.local.sge(number * MESSAGE, MESSAGE)];
        let remote = end.remote.at(BULK + (number * MESSAGE) as u64);
        Ok(end.qps[0].post_send(&work::write(0, &list, remote))?)
    })?;
    Ok(started.elapsed().as_nanos() as f64)
}

/// The sender's side of partitioning (the paper's "SW + RDMA WRITE").
struct Partitioner {
    gathered: Vec<[u8; GATHERED]>,
    fill: Vec<usize>,
    /// The number of bytes that each partition has received.
    written: Vec<usize>,
    /// The gathered WRITEs: place in the ring, length, and destination.
    batch: Vec<(usize, usize, u64)>,
    posted: usize,
    batches: usize,
}

fn partition_and_write(end: &mut End) -> Result<f64> {
    let mut partitioner = Partitioner {
        gathered: vec![[0; GATHERED]; PARTITIONS],
        fill: vec![0; PARTITIONS],
        written: vec![0; PARTITIONS],
        batch: Vec::with_capacity(BATCH),
        posted: 0,
        batches: 0,
    };
    let mut page = [0; 4096];
    let started = Instant::now();
    for offset in (0..SHUFFLED).step_by(page.len()) {
        end.local.read(offset, &mut page)?;
        for value in page.as_chunks::<8>().0 {
            let number = u64::from_le_bytes(*value) as usize % PARTITIONS;
            let fill = partitioner.fill[number];
            partitioner.gathered[number][fill..fill + 8].copy_from_slice(value);
            partitioner.fill[number] = fill + 8;
            if fill + 8 == GATHERED {
                partitioner.write(end, number)?;
            }
        }
    }
    for number in 0..PARTITIONS {
        partitioner.write(end, number)?;
    }
    partitioner.post(end)?;
    end.complete(partitioner.batches)?;
    Ok(started.elapsed().as_nanos() as f64)
}

impl Partitioner {
    /// Queues the gathered data of a partition for a WRITE to the peer.
    fn write(&mut self, end: &mut End, number: usize) -> Result<()> {
        let len = std::mem::take(&mut self.fill[number]);
        if len == 0 {
            return Ok(());
        }
        let slot = self.posted % (BATCH * (BATCHES + 1));
        end.local.write(GATHERING + slot * GATHERED, &self.gathered[number][..len])?;
        let offset = BULK + (number * PARTITION + self.written[number]) as u64;
        self.batch.push((slot, len, offset));
        self.posted += 1;
        self.written[number] += len;
        if self.batch.len() == BATCH { self.post(end) } else { Ok(()) }
    }

    fn post(&mut self, end: &mut End) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        if self.batches == BATCHES {
            end.complete(1)?;
            self.batches -= 1;
        }
        let End { qps, local, remote, .. } = end;
        let mut batch = qps[0].batch()?;
        let count = self.batch.len();
        for (index, (slot, len, offset)) in self.batch.drain(..).enumerate() {
            let list = [local.sge(GATHERING + slot * GATHERED, len)];
            let flags = Flags { signaled: index + 1 == count, ..Flags::default() };
            batch.post_send(&WorkRequest { flags, ..work::write(0, &list, remote.at(offset)) })?;
        }
        batch.ring();
        self.batches += 1;
        Ok(())
    }
}
