//! Modules: users' kernels, compiled, and their lanes.

use std::fmt;

use remora_nic::kernel::Kernel;
use wasmparser::WasmFeatures;
use wasmtime::{Config, Engine, Store};

use crate::bounds;
use crate::guest::Guest;
use crate::limits::{Charged, Limits, costs};
use crate::mailbox;

/// Why a module is no kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxError {
    /// It is no WebAssembly, or uses what kernels may not; with the compiler's message.
    NotWasm(String),
    /// It has more of something than a kernel may have.
    TooMuch {
        /// Name of the bounded size.
        what: &'static str,
        /// How much it has.
        has: u64,
        /// How much a kernel may have.
        most: u64,
        /// How to fix it.
        mend: &'static str,
    },
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
            SandboxError::NotWasm(words) => {
                write!(
                    f,
                    "this is no WebAssembly that a kernel may be: {words}: build it as program/sandbox/template does"
                )
            }
            SandboxError::TooMuch { what, has, most, mend } => {
                write!(f, "the module has {has} {what}, and a kernel may have {most}: {mend}")
            }
            SandboxError::Imports(name) => {
                write!(
                    f,
                    "the module imports {name}, and a kernel imports nothing: build it for wasm32-unknown-unknown"
                )
            }
            SandboxError::Lacks(name) => {
                write!(f, "the module does not export `{name}`: begin with program/sandbox/template")
            }
            SandboxError::Mailbox => f.write_str("the module's mailbox is not inside its memory"),
            SandboxError::Version(other) => {
                let ours = mailbox::VERSION;
                write!(
                    f,
                    "the module speaks version {other} of the mailbox, and this is {ours}: build it again"
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
    /// Compiles it. This takes a while, on the program's thread, not on the NIC's. The bounds on a module's
    /// sizes bound the time.
    ///
    /// # Errors
    /// `NotWasm`, `TooMuch`, `Imports`.
    pub fn new(wasm: &[u8], limits: Limits) -> Result<Module, SandboxError> {
        let reserved = bounds::check(wasm, &limits)?;
        let engine =
            Engine::new(&config(reserved)).map_err(|error| SandboxError::Failed(error.to_string()))?;
        let code = wasmtime::Module::new(&engine, wasm)
            .map_err(|error| SandboxError::NotWasm(format!("{error:#}")))?;
        Ok(Module { code, limits })
    }

    /// So many lanes of it, each with its own memory.
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

    /// The store of an instance.
    pub(crate) fn store(&self) -> Store<Charged> {
        let mut store = Store::new(self.code.engine(), Charged::new(&self.limits));
        store.limiter(|charged| charged);
        store
    }
}

/// Proposals that compilers of Rust and C use, and that the limits are known to bound. Others are refused:
/// shared memories, for one, are not charged.
const PROPOSALS: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::EXTENDED_CONST);

/// A lane's memory has the addresses that it may grow into, and no more. Instructions check bounds, so guard
/// pages behind it would save nothing. It never moves: growing it would copy it, which no fuel pays for.
fn config(reserved: u64) -> Config {
    let mut config = Config::new();
    config.consume_fuel(true).operator_cost(costs());
    config.wasm_features(WasmFeatures::all().difference(PROPOSALS), false);
    config.memory_reservation(reserved).memory_may_move(false);
    config.memory_guard_size(0).guard_before_linear_memory(false).memory_reservation_for_growth(0);
    // A kernel's backtrace is not used, and a failure must be short.
    config.wasm_backtrace_max_frames(None);
    config
}
