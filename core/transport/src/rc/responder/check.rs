//! The invariants of a go-back-N responder between two events.

use super::{MessageInProgress, Responder};

/// Maximum length of a message in bytes (IBTA vol. 1 §9.7.7).
const LONGEST: u32 = 1 << 31;

impl Responder {
    /// Asserts the invariants. Debug builds call this method after every event.
    pub fn check(&self) {
        assert!(self.pending.is_none(), "each action was concluded");
        assert!(self.msn <= 0x00ff_ffff, "a message sequence number has 24 bits");
        self.replay.check(self.receiver.rcv_nxt);
        match self.in_progress {
            MessageInProgress::Nothing => {}
            MessageInProgress::Send { offset } => {
                assert!(
                    offset > 0 && offset.is_multiple_of(self.mtu),
                    "all packets but the last have the path MTU"
                );
                assert!(offset <= LONGEST, "a SEND has at most 2^31 bytes");
            }
            MessageInProgress::Write { left, total, .. } => {
                assert!(0 < left && left < total && total <= LONGEST, "0 < bytes left < bytes of the WRITE");
            }
            MessageInProgress::Prism(in_progress) => {
                assert!(self.prism, "the peer agreed on PRISM");
                assert!(
                    in_progress.offset > 0 && in_progress.offset < in_progress.total,
                    "0 < bytes that arrived < bytes of the operation: {in_progress:?}"
                );
            }
            MessageInProgress::Rpc(_) => assert!(self.strom, "the peer agreed on StRoM"),
        }
    }
}
