//! A key-value server's program.

use remora_store::kv::{Broken, Connection, Hello, QueueNeeds, Refusal, Server, SessionError, Table};
use remora_verbs::{Full, WorkCompletion};

use crate::Result;
use crate::post::{Batched, Later};
use crate::server::Program;

/// A program that has pairs to begin with.
pub trait Loads: Program {
    /// Stores a pair before clients come.
    ///
    /// # Errors
    /// There is not so much memory.
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// All that there is to begin with is loaded.
    ///
    /// # Errors
    /// The NIC's.
    fn loaded(&mut self) -> Result<()> {
        Ok(())
    }

    /// Pairs in the table, or that were loaded.
    fn keys(&self) -> u64;
}

/// A server of a classical design, which answers calls.
pub struct Called<T> {
    /// It.
    pub server: Server<T>,
    /// What each queue pair must hold.
    pub needs: QueueNeeds,
    /// Clients that it was made for.
    pub clients: u32,
}

impl<T: Table> Program for Called<T> {
    type Connection = Connection;

    fn needs(&self) -> QueueNeeds {
        self.needs
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Connection, Vec<u8>)> {
        match self.server.accept(&Hello::decode(hello)?, nic) {
            Ok((connection, grant)) => Ok((connection, grant.encode().to_vec())),
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
