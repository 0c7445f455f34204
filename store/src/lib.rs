//! The `store` room.
