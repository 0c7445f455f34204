//! A store that can be killed, and its clients.

use anyhow::Result;

/// A store that can be killed.
pub(super) trait Store {
    /// Starts the store and fills it. A store that was killed is started again.
    fn start(&mut self) -> Result<()>;

    /// Kills the store's server.
    fn kill(&mut self);

    /// Returns a client with its own connection, which it makes when needed.
    fn client(&self) -> Reads;
}

/// A client that reads one record. The function returns false if the GET failed.
pub(super) type Reads = Box<dyn FnMut(u64) -> bool + Send>;
