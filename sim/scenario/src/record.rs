//! Records of a run in addition to its flows: captured frames, pauses, queue lengths, samples and traces.
//!
//! Each output file has the format of the simulator whose file the scenario came from, or is CSV with
//! Remora's own columns; see docs/guides/simulate.md.

mod capture;
mod pauses;
mod port_name;
mod queues;
mod samples;
mod trace;

use remora_fabric::engine::Picos;
use remora_fabric::simulation::{Observer, Seen, Simulation};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Flow;
use crate::path::Paths;
use crate::scenario::{OutputFormat, Scenario};

pub use capture::{CAPTURES_MAX, Frame, FrameBytes};
pub use port_name::PortName;

use capture::Captures;
use pauses::Pauses;
use queues::Queues;
use samples::Samples;
use trace::Trace;

/// An output file in addition to the flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Output {
    /// Pause frames, by the node that receives them.
    Pauses,
    /// Histograms of the queue lengths of switches.
    Queues,
    /// CNPs sent by each host.
    Cnps,
    /// Bytes sent by ToR switches on each uplink.
    Uplinks,
    /// Queue pairs of each host.
    Connections,
    /// Events of the packets at traced nodes.
    Trace,
}

impl Output {
    /// Returns the outputs that a scenario produces.
    pub fn of(scenario: &Scenario) -> Vec<Output> {
        let output = &scenario.output;
        let sampled = output.sampling.is_some();
        let all = [
            (scenario.transport.name.has_pfc(), Output::Pauses),
            (output.queues.is_some(), Output::Queues),
            (sampled, Output::Cnps),
            (sampled, Output::Uplinks),
            (sampled, Output::Connections),
            (!output.trace.is_empty(), Output::Trace),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, output)| output).collect()
    }

    /// Returns the name of the output file.
    pub fn file_name(self, format: OutputFormat) -> &'static str {
        let names = match self {
            Output::Pauses => ["pfc.txt", "pauses.csv"],
            Output::Queues => ["qlen.txt", "queues.csv"],
            Output::Cnps => ["cnp.txt", "cnps.csv"],
            Output::Uplinks => ["uplink.txt", "uplinks.csv"],
            Output::Connections => ["conn.txt", "connections.csv"],
            Output::Trace => ["trace.tr", "trace.csv"],
        };
        names[usize::from(!is_ns3(format))]
    }
}

/// Returns true if output files have the format of an ns-3 program.
fn is_ns3(format: OutputFormat) -> bool {
    matches!(format, OutputFormat::Hpcc | OutputFormat::Conweave)
}

/// The receiver of what a run records.
pub trait Sink: Send {
    /// Appends whole lines, or whole records, to an output.
    fn append(&mut self, output: Output, bytes: &[u8]);
    /// Handles a frame at a captured port. `capture` is the index of the port in [`RecordConfig::captures`].
    fn frame(&mut self, capture: usize, frame: &Frame<'_>);
}

/// The selection of what is recorded.
#[derive(Clone, Debug, Default)]
pub struct RecordConfig<'a> {
    /// Ports whose frames are captured.
    pub captures: &'a [PortName],
    /// Outputs to write, from those of [`Output::of`].
    pub outputs: &'a [Output],
}

/// Converts observed events and samples into outputs.
struct Recorder {
    captures: Captures,
    pauses: Option<Pauses>,
    queues: Option<Queues>,
    samples: Option<Samples>,
    trace: Option<Trace>,
    sink: Box<dyn Sink>,
}

/// The recorder of a run, shared by the run and its simulation.
#[derive(Clone)]
pub struct Recording(Arc<Mutex<Recorder>>);

impl Recording {
    /// Starts recording. The simulation must be at time 0 and belong to `scenario`.
    ///
    /// # Errors
    /// Fails if a port or node does not exist or if an output format cannot represent it. The message is one
    /// line.
    pub fn begin(
        asked: &RecordConfig<'_>,
        scenario: &Scenario,
        flows: &[Flow],
        paths: &Paths,
        simulation: &mut Simulation,
        mut sink: Box<dyn Sink>,
    ) -> Result<Recording, String> {
        let has = |output| asked.outputs.contains(&output);
        let format = scenario.output.format;
        let captures = Captures::new(simulation, asked.captures)?;
        let pauses = has(Output::Pauses).then(|| Pauses::begin(format, simulation, &mut *sink));
        let queues = scenario.output.queues.filter(|_| has(Output::Queues));
        let queues = queues.map(|range| Queues::begin(format, range, simulation, &mut *sink));
        let samples = scenario.output.sampling.filter(|_| has(Output::Connections));
        let samples = samples.map(|interval| Samples::begin(format, interval, flows, simulation, &mut *sink));
        let trace = has(Output::Trace)
            .then(|| Trace::begin(scenario, flows, paths, simulation, &mut *sink))
            .transpose()?;
        let recorder = Recorder { captures, pauses, queues, samples, trace, sink };
        let recording = Recording(Arc::new(Mutex::new(recorder)));
        simulation.set_observer(Box::new(recording.clone()));
        Ok(recording)
    }

    /// Returns the time at which [`Recording::sample`] must be called next, or [`Picos::NEVER`].
    pub fn next(&self) -> Picos {
        let recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = recorder.queues.as_ref().map_or(Picos::NEVER, Queues::next);
        recorder.samples.as_ref().map_or(queues, |samples| samples.next().min(queues))
    }

    /// Takes the samples that are due. The simulation must be at the time of [`Recording::next`].
    pub fn sample(&self, simulation: &Simulation) {
        let mut recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Recorder { queues, samples, sink, .. } = &mut *recorder;
        let now = simulation.network().now();
        if let Some(queues) = queues.as_mut().filter(|queues| queues.next() <= now) {
            queues.sample(now, &mut **sink);
        }
        if let Some(samples) = samples.as_mut().filter(|samples| samples.next() <= now) {
            samples.sample(simulation, &mut **sink);
        }
    }

    /// Writes what is still pending when the run is over.
    pub fn end(&self, simulation: &Simulation) {
        let mut recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Recorder { queues, samples, sink, .. } = &mut *recorder;
        if let Some(queues) = queues {
            queues.end(simulation.network().now(), &mut **sink);
        }
        if let Some(samples) = samples {
            samples.end(simulation, &mut **sink);
        }
    }
}

impl Observer for Recording {
    fn observe(&mut self, seen: &Seen<'_>) {
        let mut recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Recorder { captures, pauses, queues, samples, trace, sink } = &mut *recorder;
        let sink = &mut **sink;
        captures.observe(seen, sink);
        if let Some(pauses) = pauses {
            pauses.observe(seen, sink);
        }
        if let Some(queues) = queues {
            queues.observe(seen);
        }
        if let Some(samples) = samples {
            samples.observe(seen);
        }
        if let Some(trace) = trace {
            trace.observe(seen, sink);
        }
    }
}
