//! The errors of loading a module as a kernel, whose messages say how to fix the module.

use std::fmt;

use crate::mailbox;

/// The reason why a module cannot be used as a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxError {
    /// The module is not valid WebAssembly, or uses features that are not allowed. Holds the compiler's
    /// message.
    NotWasm(String),
    /// A size of the module exceeds its bound.
    TooMuch {
        /// Name of the bounded size.
        what: &'static str,
        /// Size in the module.
        has: u64,
        /// Bound of the size.
        most: u64,
        /// Instruction to fix the module.
        mend: &'static str,
    },
    /// The module imports this name, but a kernel may not import anything.
    Imports(String),
    /// The module does not export this name.
    Lacks(&'static str),
    /// The mailbox is not inside the memory of the module.
    Mailbox,
    /// The module was built for this other version of the mailbox.
    Version(u32),
    /// The module failed before its first step. Holds the reason.
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
