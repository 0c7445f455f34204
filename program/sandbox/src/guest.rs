//! A lane: an instance of a module that acts as a kernel.

use remora_nic::kernel::{Kernel, Progress, Status, Streams};
use wasmtime::{Instance, Memory, Module, Store, Trap, TypedFunc};

use crate::error::SandboxError;
use crate::limits::{Charged, Limits};
use crate::mailbox::{self, Shown};

/// An instance of a module that has not trapped.
struct LiveInstance {
    store: Store<Charged>,
    memory: Memory,
    /// Offset of the mailbox in the memory.
    mailbox: usize,
    step: TypedFunc<(), i32>,
    reset: TypedFunc<(), ()>,
}

/// A lane, as a kernel of the NIC.
pub(crate) struct Guest {
    code: Module,
    limits: Limits,
    /// `None` after a trap, because the content of the memory is then undefined.
    alive: Option<LiveInstance>,
    shown: Shown,
}

impl LiveInstance {
    fn new(code: &Module, limits: &Limits) -> Result<LiveInstance, SandboxError> {
        let failed = |error: wasmtime::Error| SandboxError::Failed(format!("{error:#}"));
        let mut store = Store::new(code.engine(), Charged::new(limits));
        store.limiter(|charged| charged);
        store.set_fuel(limits.fuel).map_err(failed)?;
        let instance = Instance::new(&mut store, code, &[]).map_err(failed)?;
        let memory = instance.get_memory(&mut store, "memory").ok_or(SandboxError::Lacks("memory"))?;
        let place = instance.get_typed_func::<(), i32>(&mut store, "mailbox");
        let place =
            place.map_err(|_| SandboxError::Lacks("mailbox"))?.call(&mut store, ()).map_err(failed)?;
        let step = instance.get_typed_func(&mut store, "step").map_err(|_| SandboxError::Lacks("step"))?;
        let reset = instance.get_typed_func(&mut store, "reset").map_err(|_| SandboxError::Lacks("reset"))?;
        let mut alive = LiveInstance { store, memory, mailbox: place as u32 as usize, step, reset };
        match mailbox::version(alive.mail().ok_or(SandboxError::Mailbox)?) {
            mailbox::VERSION => Ok(alive),
            other => Err(SandboxError::Version(other)),
        }
    }

    /// Returns the mailbox. Memories never shrink, so it always exists if it existed once.
    fn mail(&mut self) -> Option<&mut [u8]> {
        let memory = self.memory.data_mut(&mut self.store);
        memory.get_mut(self.mailbox..)?.get_mut(..mailbox::LEN)
    }

    fn call<R: wasmtime::WasmResults>(
        &mut self,
        fuel: u64,
        function: impl FnOnce(&LiveInstance) -> TypedFunc<(), R>,
    ) -> Result<R, Status> {
        let function = function(self);
        self.store.set_fuel(fuel).map_err(|_| Status::FAILED)?;
        function.call(&mut self.store, ()).map_err(|error| match error.downcast_ref() {
            Some(Trap::OutOfFuel) => Status::TOO_LONG,
            _ => Status::FAILED,
        })
    }
}

impl Guest {
    pub(crate) fn new(code: &Module, limits: Limits) -> Result<Guest, SandboxError> {
        let alive = Some(LiveInstance::new(code, &limits)?);
        Ok(Guest { code: code.clone(), limits, alive, shown: Shown::default() })
    }

    fn try_step(&mut self, streams: &mut Streams<'_, '_>) -> Result<Progress, Status> {
        let alive = self.alive.as_mut().ok_or(Status::FAILED)?;
        mailbox::fill(alive.mail().ok_or(Status::FAILED)?, streams, self.shown);
        let progress = alive.call(self.limits.fuel, |alive| alive.step.clone())?;
        let mail = alive.mail().ok_or(Status::FAILED)?;
        self.shown = mailbox::empty(mail, streams).map_err(|_| Status::FAILED)?;
        match progress {
            0 => Ok(Progress::Rests),
            1 => Ok(Progress::Waits),
            2 => Ok(Progress::Again),
            _ => Err(Status::FAILED),
        }
    }
}

impl Kernel for Guest {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        self.try_step(streams).unwrap_or_else(|status| {
            self.alive = None;
            streams.fail(status);
            Progress::Rests
        })
    }

    fn reset(&mut self) {
        self.shown = Shown::default();
        let fuel = self.limits.fuel;
        let rested = self.alive.as_mut().map(|alive| alive.call(fuel, |alive| alive.reset.clone()));
        if !matches!(rested, Some(Ok(()))) {
            // Allocates memory, but only after a failure. If this fails too, every later request fails.
            self.alive = LiveInstance::new(&self.code, &self.limits).ok();
        }
    }
}
