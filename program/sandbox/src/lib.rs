//! Runs StRoM kernels that users supply as WebAssembly modules.
//!
//! A module imports nothing. It exports its memory, which contains a *mailbox* (layout in `mailbox.rs`).
//! Before a step the NIC copies the state of the kernel's streams into the mailbox; after the step it reads
//! the kernel's requests from there. A kernel can therefore only compute and use its streams. A step that
//! takes too long, a trap, or an invalid mailbox ends the request with an error.
//!
//! `program/sandbox/template` has an example kernel in Rust and in C; `docs/reference/strom.md` describes the
//! commands.
//!
//! ```
//! # let wasm = wat::parse_str(r#"(module
//! #   (memory (export "memory") 1)
//! #   (data (i32.const 0) "\01")
//! #   (func (export "mailbox") (result i32) i32.const 0)
//! #   (func (export "reset"))
//! #   (func (export "step") (result i32) i32.const 0))"#)?;
//! use remora_sandbox::{Limits, Module};
//!
//! let module = Module::new(&wasm, Limits::default())?;
//! // Two lanes, to be deployed like any other kernel's.
//! let lanes: Vec<Box<dyn remora_nic::kernel::Kernel>> = module.lanes(2)?;
//! assert_eq!(lanes.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bounds;
mod error;
mod guest;
mod limits;
mod mailbox;
mod module;

pub use error::SandboxError;
pub use limits::Limits;
pub use module::{Module, load};
