//! The `host` room.
