//! Compiled modules of users' kernels, and their lanes.

use std::fmt;

use remora_nic::kernel::Kernel;
use wasmparser::WasmFeatures;
use wasmtime::{Config, Engine};

use crate::bounds;
use crate::error::SandboxError;
use crate::guest::Guest;
use crate::limits::{Limits, costs};

/// A compiled module.
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
    /// Compiles a module on the calling thread. The bounds on the module's sizes limit the compilation time.
    ///
    /// # Errors
    /// [`SandboxError::NotWasm`], [`SandboxError::TooMuch`] or [`SandboxError::Imports`].
    pub fn new(wasm: &[u8], limits: Limits) -> Result<Module, SandboxError> {
        let reserved = bounds::check(wasm, &limits)?;
        let engine =
            Engine::new(&config(reserved)).map_err(|error| SandboxError::Failed(error.to_string()))?;
        let code = wasmtime::Module::new(&engine, wasm)
            .map_err(|error| SandboxError::NotWasm(format!("{error:#}")))?;
        Ok(Module { code, limits })
    }

    /// Creates `count` lanes, each with its own memory.
    ///
    /// # Errors
    /// [`SandboxError::Lacks`], [`SandboxError::Mailbox`], [`SandboxError::Version`] or
    /// [`SandboxError::Failed`].
    pub fn lanes(&self, count: usize) -> Result<Vec<Box<dyn Kernel>>, SandboxError> {
        (0..count).map(|_| Ok(Box::new(Guest::new(&self.code, self.limits)?) as Box<dyn Kernel>)).collect()
    }
}

/// Maximum work of a step of a kernel that [`load`] makes: about as much as a step of a native kernel does. A
/// lane of the NIC does 32 steps at once, and other users of the NIC wait for it.
const SHARED_FUEL: u64 = 1 << 14;

/// Compiles a module and creates lanes with at most `memory` bytes each, for a NIC that several users share.
/// Programs pass this function to `KernelModule::loader`, and daemons to `nicd::Options::loader`.
///
/// # Errors
/// The text of the [`SandboxError`].
pub fn load(wasm: &[u8], lanes: usize, memory: usize) -> Result<Vec<Box<dyn Kernel>>, String> {
    let limits = Limits { memory, fuel: SHARED_FUEL };
    Module::new(wasm, limits).and_then(|module| module.lanes(lanes)).map_err(|error| error.to_string())
}

/// WebAssembly proposals that compilers of Rust and C use and that the limits cover. All others are refused;
/// shared memories, for example, are not charged.
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

/// Returns the configuration of the compiler. The address space of a lane's memory is reserved up to its
/// maximum size. Instructions check bounds, so guard pages would save nothing. The memory never moves,
/// because copying it would not use fuel.
fn config(reserved: u64) -> Config {
    let mut config = Config::new();
    config.consume_fuel(true).operator_cost(costs());
    config.wasm_features(WasmFeatures::all().difference(PROPOSALS), false);
    config.memory_reservation(reserved).memory_may_move(false);
    config.memory_guard_size(0).guard_before_linear_memory(false).memory_reservation_for_growth(0);
    // Backtraces are not used, and a failure must have a short message.
    config.wasm_backtrace_max_frames(None);
    config
}
