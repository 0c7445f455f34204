//! The errors of loading a module as a kernel, whose messages say how to fix the module.

use crate::mailbox;

/// The reason why a module cannot be used as a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The module is not valid WebAssembly, or uses features that are not allowed. Holds the compiler's
    /// message.
    #[error("this is no WebAssembly that a kernel may be: {0}: build it as program/sandbox/template does")]
    NotWasm(String),
    /// A size of the module exceeds its bound.
    #[error("the module has {has} {what}, and a kernel may have {most}: {mend}")]
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
    #[error("the module imports {0}, and a kernel imports nothing: build it for wasm32-unknown-unknown")]
    Imports(String),
    /// The module does not export this name.
    #[error("the module does not export `{0}`: begin with program/sandbox/template")]
    Lacks(&'static str),
    /// The mailbox is not inside the memory of the module.
    #[error("the module's mailbox is not inside its memory")]
    Mailbox,
    /// The module was built for this other version of the mailbox.
    #[error(
        "the module speaks version {0} of the mailbox, and this is {ours}: build it again",
        ours = mailbox::VERSION
    )]
    Version(u32),
    /// The module failed before its first step. Holds the reason.
    #[error("the kernel failed before its first step: {0}")]
    Failed(String),
}
