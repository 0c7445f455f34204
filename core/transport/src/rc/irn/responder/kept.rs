//! The packets that an IRN responder keeps for a kernel.

use crate::rc::irn::Bitmap;

/// The packets after a gap that are kept for a kernel.
pub(super) struct Kept {
    pub bits: Bitmap,
    /// True if the kernel of the first packet had no capacity.
    pub stalled: bool,
}
