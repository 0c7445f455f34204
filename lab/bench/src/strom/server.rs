//! The kernels of the peer.

use std::path::Path;

use anyhow::Result;
use remora_verbs::kernel::{Consistency, Get, HyperLogLog, Kernel, Shuffle, Traversal};
use remora_verbs::{KernelHandle, KernelOptions, MemoryRegion, ProtectionDomain};

use super::place::{COUNT, FAILING, GET, LONGEST, SHUFFLE, WALK, WASM, whole};
use super::wasm;

/// The attached kernels; they are detached when this value is dropped.
pub(crate) struct Kernels {
    counting: KernelHandle,
    /// Consistency kernels in the order of [`FAILING`].
    consistency: Vec<KernelHandle>,
    _others: Vec<KernelHandle>,
}

impl Kernels {
    /// Deploys the kernels over the peer's memory, and the kernel of a module if there is one.
    pub(crate) fn deploy(
        domain: &ProtectionDomain,
        target: &MemoryRegion,
        module: Option<&Path>,
    ) -> Result<Kernels> {
        let deploy = |opcode, kernel: Box<dyn Kernel>| {
            let grants = [target];
            let options = KernelOptions {
                opcode: Some(opcode),
                grants: &grants,
                longest: LONGEST as u32,
                ..KernelOptions::default()
            };
            domain.deploy_kernel(vec![kernel], &options)
        };
        let mut others = vec![
            deploy(WALK, Box::<Traversal>::default())?,
            deploy(GET, Box::<Get>::default())?,
            deploy(SHUFFLE, Box::<Shuffle>::default())?,
        ];
        if let Some(module) = module {
            others.push(deploy(WASM, wasm::kernel(module)?)?);
        }
        let consistency = FAILING.iter().map(|failing| {
            let kernel = Box::new(Consistency::failing(*failing));
            deploy(whole(*failing), kernel)
        });
        let consistency = consistency.collect::<Result<_, _>>()?;
        let counting = deploy(COUNT, Box::<HyperLogLog>::default())?;
        Ok(Kernels { counting, consistency, _others: others })
    }

    /// Returns the kernel that counts the values of passing data.
    pub(crate) fn counting(&self) -> &KernelHandle {
        &self.counting
    }

    /// Returns the consistency kernel that reports `failing` of a thousand first reads as torn.
    pub(crate) fn consistency(&self, failing: u32) -> Option<&KernelHandle> {
        let index = FAILING.iter().position(|known| *known == failing)?;
        self.consistency.get(index)
    }
}
