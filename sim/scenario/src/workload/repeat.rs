//! The repetition of an incast.

use serde::{Deserialize, Serialize};

use crate::units::Time;

/// The rate at which an incast repeats.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// Mean load that the incasts put on the links of all participating hosts, as a share of their rate;
    /// above 0 and at most 10.
    pub load: f64,
    /// Length of the interval in which incasts start.
    pub duration: Time,
}
