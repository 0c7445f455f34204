//! Histograms of the queue lengths of switches, with a sample every 100 ns.
//!
//! A queue length changes only when a packet arrives or leaves. So samples need no events: all samples
//! between two changes are counted at the second one. A sample counts all changes at its own instant as done.

use std::fmt::Write as _;

use remora_fabric::engine::Picos;
use remora_fabric::network::{CLASSES, EventSet, PortId};
use remora_fabric::simulation::{Seen, Simulation};

use super::output::is_ns3;
use super::{Output, PortName, Sink};
use crate::format::hpcc::outputs::{QueueLengths, qlen_time};
use crate::scenario::OutputFormat;
use crate::units::Time;

/// Picoseconds between two samples and between two blocks of the output, as in HPCC's program.
const STEP: u64 = 100 * Picos::NANOSECOND;
const BLOCK: u64 = 100_000 * Picos::MICROSECOND;

const HEAD: &str = "time_ps,node,port,kilobytes,samples\n";

/// The queue of a port of a switch.
struct Queue {
    port: PortName,
    /// Queued bytes, without those of class 0, which HPCC's switches do not count.
    bytes: u64,
    /// Number of samples counted so far.
    counted: u64,
    lengths: QueueLengths,
}

impl Queue {
    /// Counts the samples up to this number with the current length.
    fn count(&mut self, samples: u64) {
        let new = samples.saturating_sub(self.counted);
        self.lengths.add(self.bytes, u32::try_from(new).unwrap_or(u32::MAX));
        self.counted = self.counted.max(samples);
    }
}

/// The queues of all switches.
pub(crate) struct Queues {
    is_ns3: bool,
    start: u64,
    /// Number of samples of the whole interval.
    samples: u64,
    queues: Vec<Queue>,
    /// For each port: its index in `queues`.
    places: Vec<Option<u32>>,
    /// Time of the next block.
    next: Picos,
    /// Number of samples in the last block that was written.
    written: u64,
}

impl Queues {
    /// Starts to observe the queues of all switches, for samples in `range`.
    pub(crate) fn begin(
        format: OutputFormat,
        range: [Time; 2],
        simulation: &mut Simulation,
        sink: &mut dyn Sink,
    ) -> Queues {
        let [start, end] = range.map(|time| time.0);
        let mut places = vec![None; simulation.network().ports().len()];
        let mut ports: Vec<(PortName, PortId)> = Vec::new();
        for port in simulation.network().port_ids().collect::<Vec<_>>() {
            let name = PortName::of(simulation.network(), port);
            if simulation.network().host_at(name.node).is_none() {
                simulation.observe(port, EventSet::QUEUES);
                ports.push((name, port));
            }
        }
        ports.sort();
        for (place, (_, port)) in ports.iter().enumerate() {
            places[port.index()] = Some(place as u32);
        }
        let queue = |(port, _)| Queue { port, bytes: 0, counted: 0, lengths: QueueLengths::default() };
        let queues = ports.into_iter().map(queue).collect();
        if !is_ns3(format) {
            sink.append(Output::Queues, HEAD.as_bytes());
        }
        // HPCC samples at the start, and continues until a sample is at or after the end.
        let samples = end.saturating_sub(start).div_ceil(STEP) + 1;
        let is_sample = |time: &u64| (time - start).is_multiple_of(STEP);
        let next = start.checked_next_multiple_of(BLOCK).filter(is_sample).map_or(Picos::NEVER, Picos);
        let mut made = Queues { is_ns3: is_ns3(format), start, samples, queues, places, next, written: 0 };
        made.stop_behind_the_last();
        made
    }

    /// Returns the time of the next block: a multiple of 100 ms that has a sample, as in HPCC's program.
    pub(crate) fn next(&self) -> Picos {
        self.next
    }

    /// Returns the time of a sample; samples count from 0.
    fn time_of(&self, sample: u64) -> u64 {
        self.start.saturating_add(sample.saturating_mul(STEP))
    }

    fn stop_behind_the_last(&mut self) {
        if self.next.0 > self.time_of(self.samples - 1) {
            self.next = Picos::NEVER;
        }
    }

    pub(crate) fn observe(&mut self, seen: &Seen<'_>) {
        let Some(Some(place)) = self.places.get(seen.port().index()) else { return };
        let samples = self.before(seen.at());
        let queue = &mut self.queues[*place as usize];
        queue.count(samples);
        queue.bytes = seen.waiting()[1..CLASSES].iter().map(|bytes| u64::from(*bytes)).sum();
    }

    /// Returns the number of samples before a time.
    fn before(&self, time: Picos) -> u64 {
        time.0.saturating_sub(self.start).div_ceil(STEP).min(self.samples)
    }

    /// Writes the block that is due.
    pub(crate) fn sample(&mut self, now: Picos, sink: &mut dyn Sink) {
        self.block(now, sink);
        self.next = self.next.after(BLOCK);
        self.stop_behind_the_last();
    }

    /// Writes a last block with all samples when the run is over.
    pub(crate) fn end(&mut self, now: Picos, sink: &mut dyn Sink) {
        if self.before(now.after(1)) > self.written {
            self.block(now, sink);
        }
    }

    /// Writes the histogram of each queue since the start.
    fn block(&mut self, now: Picos, sink: &mut dyn Sink) {
        let samples = self.before(now.after(1));
        let last = self.time_of(samples.saturating_sub(1));
        let mut text = String::new();
        if self.is_ns3 {
            text += &qlen_time(last / Picos::NANOSECOND);
        }
        for queue in &mut self.queues {
            queue.count(samples);
            let PortName { node, port } = queue.port;
            if self.is_ns3 {
                text += &queue.lengths.write(node, port);
                continue;
            }
            for (kilobytes, count) in queue.lengths.counts().filter(|(_, count)| *count > 0) {
                let _ = writeln!(text, "{last},{node},{port},{kilobytes},{count}");
            }
        }
        self.written = samples;
        sink.append(Output::Queues, text.as_bytes());
    }
}
