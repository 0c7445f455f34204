//! The `wire` room.

pub mod frame;
