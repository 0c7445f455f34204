//! The probe of a client's NIC.

use remora_verbs::{Flags, Operation, Payload, Remote, WorkRequest};

/// Id of the probe, an empty WRITE that makes a client's NIC send an acknowledgement. No store's id begins
/// with 15.
pub(super) const PROBE: u64 = 15 << 44;

/// Returns an empty WRITE that makes the peer's NIC send an acknowledgement.
pub(crate) fn probe() -> WorkRequest<'static> {
    WorkRequest {
        id: PROBE,
        operation: Operation::Write(Remote { addr: 0, rkey: remora_verbs::Key::new(0) }),
        payload: Payload::Inline(&[]),
        flags: Flags { signaled: true, ..Flags::default() },
    }
}
