//! Port `capture` (to come).
