//! The kinds of a reader's GETs.

/// The kind of a reader's GETs.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// The NIC answers GETs by a chain.
    Chain,
    /// The server's program answers GETs.
    Calls,
}
