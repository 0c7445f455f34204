//! StRoM kernels: deployed, listed, replaced and removed while the NIC runs.

use remora_nic::kernel::{Kernel, KernelFacts, KernelInit, SPARE, Shipped};
use remora_nic::{Command, Device, ObjectName, PartNumber};
use serde::{Deserialize, Serialize};

use crate::engine_handle::EngineHandle;
use crate::{Context, CreateError, KernelModule, MemoryRegion, ProtectionDomain};

/// Attributes of a new kernel.
#[derive(Copy, Clone, Debug)]
pub struct KernelOptions<'a> {
    /// The RPC op-code that the kernel serves. `None`: the op-codes that no other kernel of the domain
    /// serves.
    pub opcode: Option<u64>,
    /// The regions that the kernel may read. It may also write to those that allow local writing.
    pub grants: &'a [&'a MemoryRegion],
    /// Length of the longest answer in bytes, at least 1.
    pub longest: u32,
    /// Answers that may be on their way to clients, in addition to one for each lane. The NIC reserves their
    /// memory when the kernel is deployed.
    pub answers: u32,
    /// Steps that the kernel may spend on one packet of input. Beyond them the request ends with
    /// [`Status::TOO_LONG`](crate::kernel::Status::TOO_LONG).
    pub limit: u64,
    /// The engine that runs the kernel. Only queue pairs of that engine reach it.
    pub engine: usize,
}

impl Default for KernelOptions<'_> {
    fn default() -> Self {
        KernelOptions { opcode: None, grants: &[], longest: 4096, answers: 64, limit: 1 << 16, engine: 0 }
    }
}

/// A deployed kernel. It serves requests until it is removed or this handle is dropped. Queue pairs of its
/// protection domain that agreed on StRoM ([`QpOptions::strom`](crate::QpOptions::strom)) reach it.
///
/// ```
/// use remora_verbs::kernel::{Get, Kernel, Lookup, Slot, Status};
/// use remora_verbs::{Access, Device, KernelOptions, QpOptions, QueuePair};
///
/// let context = Device::shm().open()?;
/// let domain = context.alloc_pd()?;
/// let mut cq = context.create_cq(64)?;
///
/// // The server: a table of one slot, and the GET kernel of the paper (§5). The server's program then does
/// // nothing.
/// let table = domain.allocate(4096, Access::LOCAL_WRITE)?;
/// let slot = Slot { keys: [7, 8, 9], values: [table.remote(64).addr, 0, 0], lens: [4, 0, 0] };
/// table.write(0, &slot.emit())?;
/// table.write(64, b"seal")?;
/// let lanes: Vec<Box<dyn Kernel>> = vec![Box::new(Get::default())];
/// let options = KernelOptions { opcode: Some(0x6e7), grants: &[&table], ..KernelOptions::default() };
/// let get = domain.deploy_kernel(lanes, &options)?;
/// assert_eq!(get.facts()?.opcode, Some(0x6e7));
///
/// // A client reads slot and value in one round trip.
/// let strom = QpOptions { strom: true, ..QpOptions::default() };
/// let (a, b) = (domain.create_qp(&cq, &cq, &strom)?, domain.create_qp(&cq, &cq, &strom)?);
/// let (mut a, _b) = QueuePair::connect_pair(a, b)?;
/// let mut answers = domain.create_answers(16, 1024)?;
/// let lookup = Lookup { slot: table.remote(0).addr, key: 7 };
/// let tag = answers.ask(&mut a, 0x6e7, &lookup.emit())?;
/// let answer = answers.wait(&mut cq, tag, std::time::Duration::from_secs(1))?;
/// assert_eq!((answer.status, answer.len), (Status::DONE, 4));
/// let mut value = [0; 4];
/// answers.read(&answer, &mut value)?;
/// assert_eq!(&value, b"seal");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KernelHandle {
    number: u32,
    engine: EngineHandle,
    domain: ProtectionDomain,
}

impl Drop for KernelHandle {
    fn drop(&mut self) {
        if self.domain.context().fork().is_child() {
            return;
        }
        // If answers are on their way, the NIC removes the kernel when they have arrived.
        self.engine.end_kernel(self.number);
    }
}

/// The fact that a later program of a daemon's tenant needs to take over a kernel.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KernelNote {
    /// Number of the protection domain.
    pub domain: u32,
}

/// Returns the bytes of memory that `answers` answers take.
pub(crate) fn answer_bytes(answers: u64, longest: u32) -> u64 {
    answers.saturating_mul(u64::from(longest) + u64::from(SPARE))
}

/// Returns the number of answers for which a kernel with `lanes` lanes has memory.
fn count_answers(lanes: u64, options: &KernelOptions<'_>) -> Result<u32, CreateError> {
    let count = lanes + u64::from(options.answers);
    let asked = if options.longest == 0 { 0 } else { answer_bytes(count, options.longest) };
    let most = u64::from(u32::MAX);
    match (1..=most).contains(&asked) {
        true => Ok(count as u32),
        false => Err(CreateError::TooMany("bytes for answers", asked, most)),
    }
}

impl KernelHandle {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        kernels: Vec<Box<dyn Kernel>>,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        domain.context().refuse_child()?;
        let engine = domain.context().engine_handle(options.engine)?;
        let answers = count_answers(kernels.len() as u64, options)?;
        let code = engine.hand(kernels.into())?;
        KernelHandle::deploy(domain, engine, code, answers, options)
    }

    pub(crate) fn shipped(
        domain: &ProtectionDomain,
        kernel: Shipped,
        lanes: u32,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        domain.context().refuse_child()?;
        let engine = domain.context().engine_handle(options.engine)?;
        // Checked before the lanes are created.
        let answers = count_answers(lanes.into(), options)?;
        let code = engine.hand_shipped(kernel, lanes)?;
        KernelHandle::deploy(domain, engine, code, answers, options)
    }

    pub(crate) fn of_module(
        domain: &ProtectionDomain,
        module: &KernelModule<'_>,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        domain.context().refuse_child()?;
        let engine = domain.context().engine_handle(options.engine)?;
        let answers = count_answers(module.lanes.into(), options)?;
        let code = engine.hand_module(module)?;
        KernelHandle::deploy(domain, engine, code, answers, options)
    }

    fn deploy(
        domain: &ProtectionDomain,
        engine: EngineHandle,
        code: PartNumber,
        answers: u32,
        options: &KernelOptions<'_>,
    ) -> Result<KernelHandle, CreateError> {
        let init = KernelInit {
            pd: domain.pd(),
            opcode: options.opcode,
            code,
            grants: options.grants.iter().map(|region| region.lkey()).collect(),
            answers,
            longest: options.longest,
            limit: options.limit,
        };
        let number = engine.ask(Command::DeployKernel(init))?;
        let handle = KernelHandle::over(domain, engine, number);
        if let Some(daemon) = handle.engine.daemon().filter(|daemon| daemon.keeps()) {
            daemon.note(ObjectName::Kernel(number), &KernelNote { domain: domain.pd().get() }, None)?;
        }
        Ok(handle)
    }

    /// Wraps a kernel that runs, such as one that an earlier program of a tenant has left.
    pub(crate) fn over(domain: &ProtectionDomain, engine: EngineHandle, number: u32) -> KernelHandle {
        KernelHandle { number, engine, domain: domain.clone() }
    }

    pub(crate) fn is_on(&self, engine: &EngineHandle) -> bool {
        self.engine.is(engine)
    }

    /// The kernel's number on its engine.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The kernel's op-code, lanes and counters.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Nic(Unknown)` once the kernel has been removed.
    pub fn facts(&self) -> Result<KernelFacts, CreateError> {
        self.domain.context().refuse_child()?;
        let is_it = |facts: &KernelFacts| facts.number == self.number;
        let all: Vec<KernelFacts> = self.engine.ask(Command::QueryKernels)?;
        let kernel_facts = all.into_iter().find(is_it);
        kernel_facts.ok_or(CreateError::Nic(remora_nic::NicError::Unknown))
    }

    /// Replaces the code of all lanes by `others`, one for each lane. A lane changes while it is at rest, so
    /// no request is served by both.
    ///
    /// # Errors
    /// `Forked` in a forked child; `NotByDaemon`; `Nic(TooSmall)` if the numbers differ; `Nic(Unknown)` once
    /// the kernel has been removed.
    pub fn replace(&self, others: Vec<Box<dyn Kernel>>) -> Result<(), CreateError> {
        self.domain.context().refuse_child()?;
        let code = self.engine.hand(others.into())?;
        self.engine.ask(Command::ReplaceKernel { kernel: self.number, code })
    }

    /// Like [`replace`](KernelHandle::replace), by the lanes of a module. A daemon loads it, too.
    ///
    /// # Errors
    /// The errors of [`replace`](KernelHandle::replace), except `NotByDaemon`; `Module` or `Daemon` if the
    /// module cannot be loaded.
    pub fn replace_by_module(&self, module: &KernelModule<'_>) -> Result<(), CreateError> {
        self.domain.context().refuse_child()?;
        let code = self.engine.hand_module(module)?;
        self.engine.ask(Command::ReplaceKernel { kernel: self.number, code })
    }

    /// Removes the kernel. It takes no new requests, and requests under way end with
    /// [`Status::REMOVED`](crate::kernel::Status::REMOVED).
    ///
    /// # Errors
    /// `Forked` in a forked child; `Nic(Busy)` while answers are on their way: try later; `Nic(Unknown)` once
    /// the kernel has been removed; `Daemon` if the daemon refuses.
    pub fn remove(&self) -> Result<(), CreateError> {
        self.domain.context().refuse_child()?;
        self.engine.ask(Command::RemoveKernel { kernel: self.number })
    }
}

impl Context {
    /// Lists the deployed kernels of all domains, each with the number of its engine.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn kernels(&self) -> Result<Vec<(usize, KernelFacts)>, CreateError> {
        self.refuse_child()?;
        let engines = self.own_engines().iter();
        Ok(engines
            .flat_map(|engine| {
                let all: Vec<KernelFacts> = engine.ask(Command::QueryKernels).unwrap_or_default();
                all.into_iter().map(|facts| (engine.number(), facts))
            })
            .collect())
    }
}
