//! The source of links to neighbours.

use std::fmt;
use std::sync::Arc;

/// Asks the lender of the address for a link to a QPN range. When it returns `Ok`, the link was added by
/// [`add_neighbour`](super::ChannelAdapter::add_neighbour). The error is one line that says why there is no
/// link.
pub type Introduce = Arc<dyn Fn(u8) -> Result<(), String> + Send + Sync>;

/// The rule by which connections get links to neighbours.
#[derive(Clone)]
pub struct Links {
    /// Asks for a link.
    pub introduce: Introduce,
    /// True if a connection without a link is refused on the way to RTR instead of using UDP.
    pub demanded: bool,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("demanded", &self.demanded).finish_non_exhaustive()
    }
}
