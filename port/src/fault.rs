//! Port `fault` (to come).
