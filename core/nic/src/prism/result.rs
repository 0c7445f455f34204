//! The destination of an operation's result.

use remora_transport::rc::prism::{Answer, Output};
use remora_wire::prism::Verdict;

/// A receiver of operation results. It is passed by reference, because returning the result by value costs a
/// store-forwarding stall.
pub(super) trait ResultSink {
    /// Stores the verdict and the output of a completed operation.
    fn put(&mut self, verdict: Verdict, output: Output);
}

impl ResultSink for Option<Answer> {
    #[inline(always)]
    fn put(&mut self, verdict: Verdict, output: Output) {
        *self = Some(Answer { verdict, output });
    }
}
