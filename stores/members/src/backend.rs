//! What a kind of source does for its follower.

use crate::{Map, SourceError};

/// A map, or an error, from a source.
pub type Update = Result<Map, SourceError>;

/// A source in which a map is kept.
pub trait Backend: Send + 'static {
    /// The map as it is.
    fn load(&mut self) -> Update;

    /// Waits for a change, at most for a second or some. None: there was none.
    fn wait(&mut self) -> Option<Update>;
}
