//! The control path of a table as values: one function executes what programs, hosts of other programs and
//! tests ask of it.

use super::{Range, Table};
use crate::{Access, Error, Key, Pd, WindowType};

/// A command of the memory table.
#[derive(Clone, Debug)]
pub enum MemoryCommand<'a> {
    /// Allocates a protection domain. The reply is its number.
    AllocDomain,
    /// Frees a protection domain that is not in use.
    FreeDomain(Pd),
    /// Registers ranges as one region ([`Table::register`]). The reply is its key.
    Register {
        /// Protection domain of the region.
        pd: Pd,
        /// Ranges of the region.
        ranges: &'a [Range],
        /// Access rights of the region.
        access: Access,
    },
    /// Registers a region whose bytes are discarded, or zero. The reply is its key.
    RegisterNull(Pd),
    /// Ends a region to which no window is bound.
    Deregister(Key),
    /// Ends a region after unbinding its windows.
    Revoke(Key),
    /// Allocates a memory window. The reply is its key.
    AllocWindow {
        /// Protection domain of the window.
        pd: Pd,
        /// Type of the window.
        kind: WindowType,
    },
    /// Asks for the present key of a window of which an earlier or the present key is known.
    QueryWindow(Key),
    /// Frees a memory window.
    FreeWindow(Key),
}

/// The reply to a command of the memory table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemoryReply {
    /// The command has no result.
    Done,
    /// A new protection domain.
    Domain(Pd),
    /// The key of a new region or of a window.
    Key(Key),
}

impl MemoryReply {
    /// Returns the protection domain of the reply; `None` if the reply has none.
    pub fn domain(self) -> Option<Pd> {
        match self {
            MemoryReply::Domain(pd) => Some(pd),
            _ => None,
        }
    }

    /// Returns the key of the reply; `None` if the reply has none.
    pub fn key(self) -> Option<Key> {
        match self {
            MemoryReply::Key(key) => Some(key),
            _ => None,
        }
    }
}

impl Table {
    /// Executes a command.
    ///
    /// # Errors
    /// The errors of the functions that the command stands for. A refused command has changed nothing.
    pub fn execute(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, Error> {
        let done = |()| MemoryReply::Done;
        match command {
            MemoryCommand::AllocDomain => self.alloc_pd().map(MemoryReply::Domain),
            MemoryCommand::FreeDomain(pd) => self.free_pd(pd).map(done),
            MemoryCommand::Register { pd, ranges, access } => {
                self.register(pd, ranges, access).map(MemoryReply::Key)
            }
            MemoryCommand::RegisterNull(pd) => self.register_null(pd).map(MemoryReply::Key),
            MemoryCommand::Deregister(key) => self.deregister(key).map(done),
            MemoryCommand::Revoke(key) => self.revoke(key).map(done),
            MemoryCommand::AllocWindow { pd, kind } => self.alloc_window(pd, kind).map(MemoryReply::Key),
            MemoryCommand::QueryWindow(key) => {
                self.window_key(key).map(MemoryReply::Key).ok_or(Error::Unknown)
            }
            MemoryCommand::FreeWindow(key) => self.free_window(key).map(done),
        }
    }
}
