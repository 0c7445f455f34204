//! The requester of a reliable queue pair, as its send queue sees it: that of go-back-N or that of IRN. Whoever handles a
//! packet knows which of the two it is for, so that neither pays for the other.

use remora_transport::Status;
use remora_transport::rc::{self, Message, Retired, irn};

use crate::queue_pair::{QueuePair, WqeContext};

/// What the send queue needs of a requester.
pub(crate) trait Requests: Sized {
    /// The queue pair's, if it has one of this kind.
    fn of(qp: &mut QueuePair) -> Option<&mut Self>;
    /// Messages under way, if another one may be submitted with so many packets ahead of transmission at most.
    fn may_submit(&self, ahead: u64) -> Option<usize>;
    /// Is there room for a message?
    fn has_room(&self) -> bool;
    /// Number of the oldest message that has not ended, and of the next that enters.
    fn numbers(&self) -> (u64, u64);
    /// A message enters.
    fn submit(&mut self, message: Message<WqeContext>);
    /// An operation of PRISM enters.
    fn submit_prism(&mut self, message: Message<WqeContext>);
    /// A message enters that cannot be executed.
    fn submit_failing(&mut self, message: Message<WqeContext>, status: Status);
    /// The next message that ended.
    fn retire(&mut self) -> Option<Retired<WqeContext>>;
}

/// Go-back-N's.
pub(crate) type GoBackN = rc::Requester<WqeContext>;
/// IRN's.
pub(crate) type Irn = irn::Requester<WqeContext>;

macro_rules! requests {
    ($requester:ty, $submit_prism:ident, $qp:ident => $of:expr) => {
        impl Requests for $requester {
            #[inline(always)]
            fn of($qp: &mut QueuePair) -> Option<&mut Self> {
                $of
            }
            #[inline(always)]
            fn may_submit(&self, ahead: u64) -> Option<usize> {
                (self.has_room() && self.backlog() < ahead).then(|| self.outstanding())
            }
            fn has_room(&self) -> bool {
                self.has_room()
            }
            fn numbers(&self) -> (u64, u64) {
                self.numbers()
            }
            #[inline(always)]
            fn submit(&mut self, message: Message<WqeContext>) {
                self.submit(message);
            }
            #[inline(always)]
            fn submit_prism(&mut self, message: Message<WqeContext>) {
                self.$submit_prism(message);
            }
            fn submit_failing(&mut self, message: Message<WqeContext>, status: Status) {
                self.submit_failing(message, status);
            }
            #[inline(always)]
            fn retire(&mut self) -> Option<Retired<WqeContext>> {
                self.retire()
            }
        }
    };
}

requests!(GoBackN, submit_prism, qp => qp.connection.as_mut().map(|connection| &mut connection.requester));
requests!(Irn, submit, qp => qp.irn.as_mut().map(|irn| &mut irn.requester));
