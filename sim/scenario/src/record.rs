//! What a run records beside its flows: frames at ports, pauses, lengths of queues, samples, traces.
//!
//! Each output has the format of the program whose file the scenario was, or is CSV of our own; see
//! docs/FABRIC.md for the columns.

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

/// An output beside the flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Output {
    /// Pause frames, by who receives them.
    Pauses,
    /// How long the queues of switches were, how often.
    Queues,
    /// CNPs that hosts have sent.
    Cnps,
    /// Bytes that ToRs have sent upwards.
    Uplinks,
    /// Queue pairs of hosts.
    Connections,
    /// What befell the packets at nodes that are traced.
    Trace,
}

impl Output {
    /// Those of a scenario.
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

    /// The name of its file.
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

/// Do outputs have the format of the ns-3 programs?
fn is_ns3(format: OutputFormat) -> bool {
    matches!(format, OutputFormat::Hpcc | OutputFormat::Conweave)
}

/// Who takes what a run records.
pub trait Sink: Send {
    /// Whole lines, or whole records, of an output.
    fn append(&mut self, output: Output, bytes: &[u8]);
    /// A frame at the port of a capture, by number in the list that was asked for.
    fn frame(&mut self, capture: usize, frame: &Frame<'_>);
}

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct RecordConfig<'a> {
    /// Ports that are captured.
    pub captures: &'a [PortName],
    /// Outputs, of those of the scenario.
    pub outputs: &'a [Output],
}

/// Turns what is observed and sampled into outputs.
struct Recorder {
    captures: Captures,
    pauses: Option<Pauses>,
    queues: Option<Queues>,
    samples: Option<Samples>,
    trace: Option<Trace>,
    sink: Box<dyn Sink>,
}

/// The recorder of a run, for the run and for its simulation.
#[derive(Clone)]
pub struct Recording(Arc<Mutex<Recorder>>);

impl Recording {
    /// Begins to record a simulation of the scenario that has not begun.
    ///
    /// # Errors
    /// A port that is not there, or more than an output can say, in one line.
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

    /// When [`Recording::sample`] is due next.
    pub fn next(&self) -> Picos {
        let recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = recorder.queues.as_ref().map_or(Picos::NEVER, Queues::next);
        recorder.samples.as_ref().map_or(queues, |samples| samples.next().min(queues))
    }

    /// Looks at the simulation, whose time is that of [`Recording::next`].
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

    /// The run is over: writes what is still to be written.
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
