//! Kernels of users as files of bytes, which a daemon can load, too.

use remora_nic::kernel::Kernel;

/// Makes `lanes` lanes of a module, each with at most `memory` bytes of memory; or says in one line why not.
/// `remora_sandbox::load` does it for WebAssembly.
pub type KernelLoader =
    fn(module: &[u8], lanes: usize, memory: usize) -> Result<Vec<Box<dyn Kernel>>, String>;

/// A kernel as bytes. A NIC of the process loads them by `loader`, and a daemon by its own
/// ([`nicd::Options::loader`](crate::nicd::Options::loader)).
#[derive(Copy, Clone, Debug)]
pub struct KernelModule<'a> {
    /// The bytes of the module.
    pub bytes: &'a [u8],
    /// Number of lanes.
    pub lanes: u32,
    /// Maximum memory of each lane in bytes. A daemon counts it among the memory of the user.
    pub memory: usize,
    /// The loader of a NIC of the process.
    pub loader: KernelLoader,
}

impl KernelModule<'_> {
    /// Makes the lanes.
    pub(crate) fn load(&self) -> Result<Vec<Box<dyn Kernel>>, crate::CreateError> {
        (self.loader)(self.bytes, self.lanes as usize, self.memory).map_err(crate::CreateError::Module)
    }
}
