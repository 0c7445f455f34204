//! The program of a key-value server.

use remora_store::kv::{Broken, Connection, Hello, QueueNeeds, Refusal, Server, SessionError, Table};
use remora_verbs::{Full, WorkCompletion};

use crate::Result;
use crate::post::{Batched, Later};
use crate::server::Program;

/// A program whose table can be loaded before clients connect.
pub trait Loads: Program {
    /// Stores a pair before clients connect.
    ///
    /// # Errors
    /// There is not enough memory.
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// Completes loading.
    ///
    /// # Errors
    /// The NIC failed.
    fn loaded(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of pairs in the table; for PRISM-KV, of those that were loaded.
    fn keys(&self) -> u64;
}

/// The program of a classical design, whose server answers calls.
pub struct Called<T> {
    /// The server machine.
    pub server: Server<T>,
    /// The sizes that each client's queue pair needs.
    pub needs: QueueNeeds,
    /// Maximum number of clients.
    pub clients: u32,
}

impl<T: Table> Program for Called<T> {
    type Connection = Connection;

    fn needs(&self) -> QueueNeeds {
        self.needs
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Connection, Vec<u8>)> {
        match self.server.accept(&Hello::decode(hello)?, nic) {
            Ok((connection, grant)) => Ok((connection, grant.encode())),
            Err(SessionError::TooManyConnections) => Err(Full::clients(self.clients).into()),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn handle(
        &mut self,
        connection: Connection,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken> {
        self.server.handle(connection, completion, nic)
    }

    fn disconnect(&mut self, connection: Connection) {
        self.server.disconnect(connection);
    }
}

impl<T: Table> Loads for Called<T> {
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.server.table_mut().put(key, value)
    }

    fn keys(&self) -> u64 {
        self.server.table().len()
    }
}
