//! The version of the set-up messages, and the limit of what a program adds to them.

/// Version of the set-up messages.
pub const VERSION: u16 = 1;
/// Maximum length of private data in bytes.
pub const MAX_PRIVATE: usize = 256;
