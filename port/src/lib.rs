//! The `port` room.
