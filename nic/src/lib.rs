//! The `nic` room.
