//! The results of the cases over a port.

use super::case::Case;
use crate::PortName;

/// Results of the cases over a port in nanoseconds, one value per round, in the order of [`Case::ALL`].
pub(super) struct Measured {
    pub(super) port: PortName,
    pub(super) rounds: Vec<Vec<f64>>,
    pub(super) trips: Vec<(Case, f64)>,
}

impl Measured {
    pub(super) fn of(&self, case: Case) -> &[f64] {
        let index = Case::ALL.iter().position(|known| *known == case).unwrap_or_default();
        &self.rounds[index]
    }

    pub(super) fn trips(&self, case: Case) -> f64 {
        self.trips.iter().find(|(known, _)| *known == case).map_or(f64::NAN, |(_, trips)| *trips)
    }
}
