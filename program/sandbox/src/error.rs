//! Why a module is no kernel, in words that say how to mend it.

use std::fmt;

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
