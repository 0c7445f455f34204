//! Where the result of an operation goes.

use remora_transport::rc::prism::{Answer, Output};
use remora_wire::prism::Verdict;

/// Takes the result of an operation that has ended. Passed by reference: returning it by value costs a
/// store-forwarding stall.
pub(super) trait ResultSink {
    /// How the operation ended, and what it gives back.
    fn put(&mut self, verdict: Verdict, output: Output);
}

impl ResultSink for Option<Answer> {
    #[inline(always)]
    fn put(&mut self, verdict: Verdict, output: Output) {
        *self = Some(Answer { verdict, output });
    }
}
