//! The bits of an op-code that name its service (IBTA vol. 1 §9.2.1).

/// The bits of an op-code that are its service; the others are the operation, the same in all services.
pub(crate) const SERVICE: u8 = 0xe0;
/// The bits that name the operation.
pub(crate) const OPERATION: u8 = !SERVICE;
/// Service bits of XRC.
pub(crate) const XRC: u8 = 0xa0;
/// Service bits of UC.
pub(crate) const UC: u8 = 0x20;
