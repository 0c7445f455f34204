//! Port `udp` (to come).
