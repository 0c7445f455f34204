//! The `transport` room.
