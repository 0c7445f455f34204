//! The memory of queues and the code of kernels that no command of a tenant has named yet.

use remora_memory::Bytes;
use remora_nic::Ring;
use remora_nic::kernel::Shipped;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use super::super::message::{Refusal, Reply};
use super::super::users::{Amounts, Claim, Resource};
pub(super) use super::waiting_parts::Part;
use super::{ReplyResult, Shared, Tenant, sent_len, words};
use crate::KernelLoader;

/// Maximum number of lanes of a kernel.
const LANES: u32 = 1024;
/// Maximum size of a kernel's module in bytes.
const MODULE: usize = 16 << 20;

fn check_lanes(lanes: u32) -> Result<(), Refusal> {
    match (1..=LANES).contains(&lanes) {
        true => Ok(()),
        false => Err(format!("a kernel has 1 to {LANES} lanes").into()),
    }
}

impl Tenant {
    /// Takes the memory of a queue, which a later command names.
    pub(super) fn hand_ring(&mut self, descriptors: Vec<OwnedFd>) -> ReplyResult {
        let [memory] =
            <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| "a queue needs one descriptor of memory")?;
        // Mapping the memory allocates its pages.
        let len = sent_len(&memory)?;
        let claim = self.claim_all(Amounts::of(Resource::Byte, len).and(Resource::Descriptor, 1))?;
        let bytes = Bytes::from_memfd_of(memory, usize::try_from(len).map_err(words)?).map_err(words)?;
        let ring = Ring::new(bytes).ok_or("no queue has so much memory")?;
        let memory = Some(self.memories.lend(ring.bytes().clone()));
        let number = self.parts.add(Part { handed: ring.into(), memory, claim: Some(claim) })?;
        Ok((Reply::Number(number), Vec::new()))
    }

    /// Takes the code of a shipped kernel, which a later command names.
    pub(super) fn hand_kernel(&mut self, kernel: u32, lanes: u32) -> ReplyResult {
        let kernel = Shipped::of(kernel).ok_or("no such kernel ships with this daemon")?;
        check_lanes(lanes)?;
        let handed = kernel.lanes(lanes as usize).into();
        let number = self.parts.add(Part { handed, memory: None, claim: None })?;
        Ok((Reply::Number(number), Vec::new()))
    }

    /// Claims the memory of a module with `len` bytes and of its lanes, and returns the daemon's loader.
    fn admit_module(&mut self, lanes: u32, memory: u64, len: u64) -> Result<(KernelLoader, Claim), Refusal> {
        let loader = self.loader.ok_or(
            "this daemon loads no modules of kernels: build it with `--features remora-cli/wasm`, or deploy a shipped kernel",
        )?;
        check_lanes(lanes)?;
        let bytes = memory.saturating_mul(lanes.into()).saturating_add(len);
        Ok((loader, self.claim_all(Amounts::of(Resource::Byte, bytes))?))
    }
}

/// Loads the module of a kernel, which a later command names. Each lane has at most `memory` bytes. The
/// tenant is not locked while the module is compiled, which may take seconds: a list of the tenants waits for
/// the lock.
pub(in crate::nicd) fn load(
    tenant: &Shared,
    lanes: u32,
    memory: u64,
    descriptors: Vec<OwnedFd>,
) -> ReplyResult {
    let lock = || tenant.lock().unwrap_or_else(PoisonError::into_inner);
    let [file] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| "a module needs one descriptor")?;
    let len = usize::try_from(sent_len(&file)?).ok().filter(|len| *len <= MODULE);
    let len = len.ok_or_else(|| format!("a module has at most {MODULE} bytes"))?;
    let admitted = lock().admit_module(lanes, memory, len as u64);
    let (loader, claim) = admitted?;
    // A copy, which the program cannot change while it is checked.
    let mut module = vec![0; len];
    Bytes::from_memfd_of(file, len)?.read(0, &mut module).map_err(words)?;
    let memory = usize::try_from(memory).map_err(words)?;
    let handed = loader(&module, lanes as usize, memory)?.into();
    let number = lock().parts.add(Part { handed, memory: None, claim: Some(claim) })?;
    Ok((Reply::Number(number), Vec::new()))
}
