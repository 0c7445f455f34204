//! The outputs of a run, and their receiver.

use super::PortName;
use super::frame::Frame;
use crate::scenario::{OutputFormat, Scenario};

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
pub(super) fn is_ns3(format: OutputFormat) -> bool {
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
