//! The interface between a server's program and the loop that serves its clients.

use remora_store::{Broken, QueueNeeds};
use remora_verbs::kernel::Kernel;
use remora_verbs::{Access, KernelHandle, KernelOptions, MemoryRegion, ProtectionDomain, WorkCompletion};

use crate::Result;
use crate::error::{Context as _, ensure};
use crate::post::{Batched, Direct, Later, registered};

/// The program of a server.
pub trait Program {
    /// The program's identity of a client.
    type Connection: Copy;

    /// Returns the sizes that each client's queue pair needs.
    fn needs(&self) -> QueueNeeds;

    /// Accepts a client that sent `hello`: posts receive requests, and returns the client's grant.
    ///
    /// # Errors
    /// The client does not fit; it receives the reason.
    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Self::Connection, Vec<u8>)>;

    /// Returns true if this client must be disconnected before a client that sends `hello` is accepted.
    fn gives_way(&self, connection: Self::Connection, hello: &[u8]) -> bool {
        let _ = (connection, hello);
        false
    }

    /// Returns true if the connection ends after the exchange of private data.
    fn is_brief(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Processes a completion of a client's queue pair.
    ///
    /// # Errors
    /// The client must be disconnected.
    fn handle(
        &mut self,
        connection: Self::Connection,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken>;

    /// Removes a client whose queue pair no longer exists.
    fn disconnect(&mut self, connection: Self::Connection);

    /// Removes a client that was never connected, and what it was granted.
    fn abandon(&mut self, connection: Self::Connection, grant: &[u8]) {
        let _ = grant;
        self.disconnect(connection);
    }

    /// Performs a part of the work besides answering. Returns true if there is more that should not wait.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Sends a message to a client that is not an answer, if there is one.
    ///
    /// # Errors
    /// The client must be disconnected.
    fn tell(&mut self, connection: Self::Connection, nic: &mut Direct<'_>) -> Result<(), Broken> {
        let _ = (connection, nic);
        Ok(())
    }

    /// Returns true if others wait for a message of this client.
    fn is_late(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Returns true if this client must be disconnected at once.
    fn is_over(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// The memory of a server, registered for the lifetime of its program.
pub struct Memory {
    /// The protection domain.
    pub domain: ProtectionDomain,
    /// The registered regions.
    pub regions: Vec<MemoryRegion>,
    /// The kernels deployed over the regions.
    pub kernels: Vec<KernelHandle>,
    /// The regions of a previous server, by name.
    pub kept: Vec<(String, MemoryRegion)>,
}

impl Memory {
    /// Returns an empty memory in this domain.
    pub fn of(domain: ProtectionDomain) -> Memory {
        Memory { domain, regions: Vec::new(), kernels: Vec::new(), kept: Vec::new() }
    }

    /// Deploys a kernel that may access all regions registered so far.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn kernel(&mut self, lanes: Vec<Box<dyn Kernel>>, options: KernelOptions<'_>) -> Result<()> {
        let grants: Vec<&MemoryRegion> = self.regions.iter().collect();
        let options = KernelOptions { grants: &grants, ..options };
        self.kernels.push(self.domain.deploy_kernel(lanes, &options)?);
        Ok(())
    }

    /// Registers `len` bytes, or takes the kept region with this name.
    ///
    /// # Errors
    /// There is not enough memory, or the kept region has another length.
    pub fn region(&mut self, name: &str, len: usize, access: Access) -> Result<remora_store::Registered> {
        let kept = self.kept.iter().position(|(other, _)| other == name);
        let region = match kept.map(|index| self.kept.swap_remove(index).1) {
            Some(region) => {
                ensure!(
                    region.len() == len,
                    Config,
                    "{name}: {} bytes were kept, and {len} are asked for: start with the same words as before",
                    region.len()
                );
                region
            }
            None => self.domain.allocate_named(name, len, access).with_context(|| {
                format!("{} MiB for {name}: ask for less with --capacity or --memory", len >> 20)
            })?,
        };
        let registered = registered(&region);
        self.regions.push(region);
        Ok(registered)
    }
}
