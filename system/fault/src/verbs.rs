//! Faults of verbs: calls that fail, completions with an error status, and incidents of the device.

mod policy;
mod rules;

pub use policy::{Occurrence, QueuePairFaults, RegistrationFaults};
pub use rules::{Errno, Incident, IncidentKind, VerbRules, WorkKind};

pub(crate) use rules::{Failure, RegistrationRule, VerbRule};
