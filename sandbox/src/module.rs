//! Modules: what users bring, compiled, and the lanes made of it.

use std::fmt;

use nic::kernel::Kernel;
use wasmtime::{Config, Engine, Store, StoreLimits, StoreLimitsBuilder};

use crate::guest::Guest;
use crate::mailbox;

/// What a lane may use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: usize,
    /// Work of a step, about as many instructions. A step of a native kernel does about what copying 4 KiB takes.
    pub fuel: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 16 << 20, fuel: 1 << 18 }
    }
}

/// Why a module is no kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxError {
    /// It is no WebAssembly; the compiler's words.
    NotWasm(String),
    /// It imports this, and a kernel imports nothing.
    Imports(String),
    /// It does not export this.
    Lacks(&'static str),
    /// Its mailbox is not where memory is.
    Mailbox,
    /// It was made for another version of the mailbox.
    Version(u32),
    /// It failed before its first step; why.
    Failed(String),
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SandboxError::NotWasm(words) => write!(f, "this is no WebAssembly: {words}"),
            SandboxError::Imports(name) => {
                write!(
                    f,
                    "the module imports {name}, and a kernel imports nothing: build it for wasm32-unknown-unknown"
                )
            }
            SandboxError::Lacks(name) => {
                write!(f, "the module does not export `{name}`: begin with sandbox/template")
            }
            SandboxError::Mailbox => f.write_str("the module's mailbox is not inside its memory"),
            SandboxError::Version(other) => {
                let ours = mailbox::VERSION;
                write!(
                    f,
                    "the module speaks version {other} of the mailbox, and this is {ours}: build it anew"
                )
            }
            SandboxError::Failed(words) => write!(f, "the kernel failed before its first step: {words}"),
        }
    }
}

impl std::error::Error for SandboxError {}

/// A module, compiled.
#[derive(Clone)]
pub struct Module {
    code: wasmtime::Module,
    limits: Limits,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Module {
    /// Compiles it. This takes a while: on the program's thread, not on the NIC's.
    ///
    /// # Errors
    /// `NotWasm`, `Imports`.
    pub fn new(wasm: &[u8], limits: Limits) -> Result<Module, SandboxError> {
        let mut config = Config::new();
        config.consume_fuel(true);
        let engine = Engine::new(&config).map_err(|error| SandboxError::Failed(error.to_string()))?;
        let code = wasmtime::Module::new(&engine, wasm)
            .map_err(|error| SandboxError::NotWasm(format!("{error:#}")))?;
        let imported = code.imports().next().map(|import| format!("{}.{}", import.module(), import.name()));
        match imported {
            Some(name) => Err(SandboxError::Imports(name)),
            None => Ok(Module { code, limits }),
        }
    }

    /// So many lanes of it, each with a memory of its own.
    ///
    /// # Errors
    /// `Lacks`, `Mailbox`, `Version`, `Failed`.
    pub fn lanes(&self, count: usize) -> Result<Vec<Box<dyn Kernel>>, SandboxError> {
        (0..count).map(|_| Ok(Box::new(Guest::new(self)?) as Box<dyn Kernel>)).collect()
    }

    pub(crate) fn code(&self) -> &wasmtime::Module {
        &self.code
    }

    pub(crate) fn fuel(&self) -> u64 {
        self.limits.fuel
    }

    /// Where an instance lives.
    pub(crate) fn store(&self) -> Store<StoreLimits> {
        let limits = StoreLimitsBuilder::new().memory_size(self.limits.memory).memories(1).tables(1).build();
        let mut store = Store::new(self.code.engine(), limits);
        store.limiter(|limits| limits);
        store
    }
}
