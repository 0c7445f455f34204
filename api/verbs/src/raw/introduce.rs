//! The request for a link to a neighbour.

use std::fmt;
use std::sync::Arc;

/// The reason why a program has no link to a neighbour, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLink {
    /// The link was refused. The neighbour is refused it, too, so both ends of a connection go by UDP.
    Refused(String),
    /// The neighbour may have its end of the link and use it, so a connection by UDP would not work.
    Failed(String),
}

/// Function that requests a link to a QPN range. When it returns `Ok`, the link was added by
/// [`add_neighbour`](super::ChannelAdapter::add_neighbour).
pub type Introduce = Arc<dyn Fn(u8) -> Result<(), NoLink> + Send + Sync>;

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
