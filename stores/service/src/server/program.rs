//! A server's program, as the loop that serves sees it: what it does for a connection, and beside that.

use remora_store::{Broken, QueueNeeds};
use remora_verbs::kernel::Kernel;
use remora_verbs::{Access, KernelHandle, KernelOptions, MemoryRegion, ProtectionDomain, WorkCompletion};

use crate::Result;
use crate::error::{Context as _, ensure};
use crate::post::{Batched, Direct, Later, registered};

/// The program of a server.
pub trait Program {
    /// What it calls a client.
    type Connection: Copy;

    /// What each client's queue pair must hold.
    fn needs(&self) -> QueueNeeds;

    /// Takes a client on that says `hello`: posts receive requests, and says what the client must know.
    ///
    /// # Errors
    /// The client does not fit; it is told why.
    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Self::Connection, Vec<u8>)>;

    /// Must this client be gone, its queue pair with it, before somebody is taken on that says `hello`?
    fn gives_way(&self, connection: Self::Connection, hello: &[u8]) -> bool {
        let _ = (connection, hello);
        false
    }

    /// Is a connection over with what was said when it was made?
    fn is_brief(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Takes a completion of a client's queue pair.
    ///
    /// # Errors
    /// The client is gone.
    fn handle(
        &mut self,
        connection: Self::Connection,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken>;

    /// Forgets a client, whose queue pair is gone.
    fn disconnect(&mut self, connection: Self::Connection);

    /// Forgets a client that was never connected, and what it was granted.
    fn abandon(&mut self, connection: Self::Connection, grant: &[u8]) {
        let _ = grant;
        self.disconnect(connection);
    }

    /// Does some of the work beside answering; true if there is more that should not wait.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Says to a client what there is to say beside answers.
    ///
    /// # Errors
    /// The client is gone.
    fn tell(&mut self, connection: Self::Connection, nic: &mut Direct<'_>) -> Result<(), Broken> {
        let _ = (connection, nic);
        Ok(())
    }

    /// Do others wait for this client to say something?
    fn is_late(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Is this client to be ended at once?
    fn is_over(&self, connection: Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// The memory of a server, registered as long as its program lives.
pub struct Memory {
    /// Its domain.
    pub domain: ProtectionDomain,
    /// What was registered.
    pub regions: Vec<MemoryRegion>,
    /// Kernels that were deployed over it.
    pub kernels: Vec<KernelHandle>,
    /// What a server before this one had, by the names that it gave.
    pub kept: Vec<(String, MemoryRegion)>,
}

impl Memory {
    /// Nothing yet, in this domain.
    pub fn of(domain: ProtectionDomain) -> Memory {
        Memory { domain, regions: Vec::new(), kernels: Vec::new(), kept: Vec::new() }
    }

    /// Deploys a kernel that may reach everything that has been registered.
    ///
    /// # Errors
    /// The NIC's.
    pub fn kernel(&mut self, lanes: Vec<Box<dyn Kernel>>, options: KernelOptions<'_>) -> Result<()> {
        let grants: Vec<&MemoryRegion> = self.regions.iter().collect();
        let options = KernelOptions { grants: &grants, ..options };
        self.kernels.push(self.domain.deploy_kernel(lanes, &options)?);
        Ok(())
    }

    /// Registers `len` bytes, or takes the region of this name that was kept.
    ///
    /// # Errors
    /// There is not so much memory, or what was kept has another length.
    pub fn region(&mut self, what: &str, len: usize, access: Access) -> Result<remora_store::Registered> {
        let kept = self.kept.iter().position(|(name, _)| name == what);
        let region = match kept.map(|at| self.kept.swap_remove(at).1) {
            Some(region) => {
                ensure!(
                    region.len() == len,
                    Config,
                    "{what}: {} bytes were kept, and {len} are asked for: start with the same words as before",
                    region.len()
                );
                region
            }
            None => self.domain.allocate_named(what, len, access).with_context(|| {
                format!("{} MiB for {what}: ask for less with --capacity or --memory", len >> 20)
            })?,
        };
        let registered = registered(&region);
        self.regions.push(region);
        Ok(registered)
    }
}
