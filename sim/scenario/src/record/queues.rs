//! How long the queues of switches are, and how often: a sample each 100 ns, without an event for it.
//!
//! The length of a queue only changes when a packet comes or goes. All samples between two changes are
//! counted at the second one. A sample sees all changes of its own instant.

use std::fmt::Write as _;

use remora_fabric::engine::Picos;
use remora_fabric::network::{CLASSES, Observe, PortId};
use remora_fabric::simulation::{Seen, Simulation};

use super::{Output, PortName, Sink, is_ns3};
use crate::format::hpcc::outputs::{QueueLengths, qlen_time};
use crate::scenario::OutputFormat;
use crate::units::Time;

/// Picoseconds between two samples, and between two blocks of the output: HPCC's.
const STEP: u64 = 100 * Picos::NANOSECOND;
const BLOCK: u64 = 100_000 * Picos::MICROSECOND;

const HEAD: &str = "time_ps,node,port,kilobytes,samples\n";

/// One port of a switch.
struct Queue {
    port: PortName,
    /// Bytes that wait, those of class 0 left out: they take no part in what a switch counts.
    bytes: u64,
    /// Samples that are counted.
    counted: u64,
    lengths: QueueLengths,
}

impl Queue {
    /// Counts the samples before this one.
    fn count(&mut self, samples: u64) {
        let new = samples.saturating_sub(self.counted);
        self.lengths.add(self.bytes, u32::try_from(new).unwrap_or(u32::MAX));
        self.counted = self.counted.max(samples);
    }
}

/// The ports of all switches.
pub struct Queues {
    is_ns3: bool,
    start: u64,
    /// Samples in all.
    samples: u64,
    queues: Vec<Queue>,
    /// By port: its place in `queues`.
    places: Vec<Option<u32>>,
    /// When a block is due.
    next: Picos,
    /// Samples in the last block.
    written: u64,
}

impl Queues {
    /// Observes the queues of all switches from a time until another.
    pub fn begin(
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
                simulation.observe(port, Observe::QUEUES);
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
        // A sample is taken at the start, and as long as the one before it was not at the end.
        let samples = end.saturating_sub(start).div_ceil(STEP) + 1;
        let is_sample = |time: &u64| (time - start).is_multiple_of(STEP);
        let next = start.checked_next_multiple_of(BLOCK).filter(is_sample).map_or(Picos::NEVER, Picos);
        let mut made = Queues { is_ns3: is_ns3(format), start, samples, queues, places, next, written: 0 };
        made.stop_behind_the_last();
        made
    }

    /// When a block is due: at whole tenths of a second that have a sample, as in HPCC's program.
    pub fn next(&self) -> Picos {
        self.next
    }

    /// The time of a sample, from 0.
    fn time_of(&self, sample: u64) -> u64 {
        self.start.saturating_add(sample.saturating_mul(STEP))
    }

    fn stop_behind_the_last(&mut self) {
        if self.next.0 > self.time_of(self.samples - 1) {
            self.next = Picos::NEVER;
        }
    }

    pub fn observe(&mut self, seen: &Seen<'_>) {
        let Some(Some(place)) = self.places.get(seen.port().index()) else { return };
        let samples = self.before(seen.at());
        let queue = &mut self.queues[*place as usize];
        queue.count(samples);
        queue.bytes = seen.waiting()[1..CLASSES].iter().map(|bytes| u64::from(*bytes)).sum();
    }

    /// Samples before a time.
    fn before(&self, at: Picos) -> u64 {
        at.0.saturating_sub(self.start).div_ceil(STEP).min(self.samples)
    }

    /// A block is due.
    pub fn sample(&mut self, now: Picos, sink: &mut dyn Sink) {
        self.block(now, sink);
        self.next = self.next.after(BLOCK);
        self.stop_behind_the_last();
    }

    /// The run is over: the last block has all samples.
    pub fn end(&mut self, now: Picos, sink: &mut dyn Sink) {
        if self.before(now.after(1)) > self.written {
            self.block(now, sink);
        }
    }

    /// Writes how often each queue had each length so far.
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
