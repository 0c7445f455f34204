//! The interface of a source (file or etcd) to its follower.

use crate::{Map, SourceError};

/// A new map from a source, or the error of reading it.
pub(crate) type Update = Result<Map, SourceError>;

/// A source from which a map is read.
pub(crate) trait Backend: Send + 'static {
    /// Reads the current map.
    fn load(&mut self) -> Update;

    /// Waits for a change for up to some seconds. Returns `None` if there was none.
    fn wait(&mut self) -> Option<Update>;
}
