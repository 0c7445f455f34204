//! The questions that a packet or a turn of a reliable connection asks beside its machine. Functions over
//! [`Extras`] are compiled once for each set of questions.

/// A set of questions.
pub(crate) trait Extras {
    /// True for XRC, congestion control, CNPs and PRISM.
    const ANY: bool;
    /// True for StRoM kernels, whose answers are requests, and which check and delay the data of READs.
    const KERNELS: bool;
}

/// No question: RC on which [nothing else](crate::machine::Machine::Plain) was agreed.
pub(crate) struct Plain;

impl Extras for Plain {
    const ANY: bool = false;
    const KERNELS: bool = false;
}

/// A queue pair with anything except StRoM.
pub(crate) struct WithoutKernels;

impl Extras for WithoutKernels {
    const ANY: bool = true;
    const KERNELS: bool = false;
}

/// Any queue pair.
pub(crate) struct All;

impl Extras for All {
    const ANY: bool = true;
    const KERNELS: bool = true;
}
