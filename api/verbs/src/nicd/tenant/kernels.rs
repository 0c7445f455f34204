//! Kernels that a daemon runs for a program: shipped kernels, over the tenant's own regions.

use remora_nic::kernel::Shipped;

use super::super::message::{Deploy, Reply};
use super::super::users::{Claim, Resource};
use super::{ReplyResult, Tenant, unknown, words};
use crate::kernels::answer_bytes;
use crate::{KernelHandle, KernelOptions, MemoryRegion};

/// Upper limit of the steps for one packet of input, whatever limit the program requests.
const STEPS: u64 = 1 << 20;
/// Maximum number of lanes of a kernel.
const LANES: u32 = 1024;

/// A deployed kernel with its claim.
pub(super) struct Deployed {
    /// Dropping the handle removes the kernel.
    _handle: KernelHandle,
    pub domain: u32,
    claim: Claim,
}

impl Deployed {
    /// The claim on the kernel and its memory.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }
}

impl Tenant {
    pub(super) fn deploy(&mut self, asked: &Deploy) -> ReplyResult {
        let kernel = Shipped::of(asked.kernel).ok_or("no such kernel ships with this daemon")?;
        if !(1..=LANES).contains(&asked.lanes) {
            return Err(format!("a kernel has 1 to {LANES} lanes"));
        }
        let answers = u64::from(asked.lanes) + u64::from(asked.answers);
        let bytes = answer_bytes(answers, asked.longest);
        let claim = self.claim(Resource::Kernel, bytes)?;
        let region = |key: &u32| match self.regions.get(key) {
            Some(region) => Ok(&region.region),
            None => Err(unknown("region with key", *key)),
        };
        let grants = asked.grants.iter().map(region).collect::<Result<Vec<&MemoryRegion>, String>>()?;
        let options = KernelOptions {
            opcode: asked.opcode,
            grants: &grants,
            longest: asked.longest,
            answers: asked.answers,
            limit: asked.limit.min(STEPS),
            engine: 0,
        };
        let domain = self.domain(asked.domain)?;
        let handle = domain.deploy_shipped(kernel, asked.lanes, &options).map_err(words)?;
        let number = handle.number();
        self.kernels.insert(number, Deployed { _handle: handle, domain: asked.domain, claim });
        Ok((Reply::Number(number), Vec::new()))
    }

    pub(super) fn remove_kernel(&mut self, number: u32) -> Result<(), String> {
        self.kernels.remove(&number).map(drop).ok_or_else(|| unknown("kernel", number))
    }
}
