//! Records of a run in addition to its flows: captured frames, pauses, queue lengths, samples and traces.
//!
//! Each output file has the format of the simulator whose file the scenario came from, or is CSV with
//! Remora's own columns; see docs/guides/simulate.md.

mod capture;
mod frame;
mod output;
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
use crate::scenario::Scenario;

pub use capture::CAPTURES_MAX;
pub use frame::{Frame, FrameBytes};
pub use output::{Output, RecordConfig, Sink};
pub use port_name::PortName;

use capture::Captures;
use pauses::Pauses;
use queues::Queues;
use samples::Samples;
use trace::Trace;

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
