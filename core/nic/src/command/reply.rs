//! The replies to commands.

use remora_wire::Qpn;
use serde::{Deserialize, Serialize};

use crate::attributes::QueuePairFacts;
use crate::kernel::KernelFacts;
use crate::prism::FreeListFacts;
use crate::rma::{self, PortalFacts};
use crate::shared_receive_queue::SrqFacts;

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The command has no result.
    Done,
    /// The number of a created object, or a count.
    Number(u64),
    /// A queue pair's attributes and measures.
    QueuePair(Box<QueuePairFacts>),
    /// A shared receive queue's state.
    SharedReceiveQueue(SrqFacts),
    /// A free list's state.
    FreeList(FreeListFacts),
    /// The bits of a free list's buffers.
    Buffers(Vec<u64>),
    /// The deployed kernels.
    Kernels(Vec<KernelFacts>),
    /// A created portal.
    Portal(PortalFacts),
    /// The state of 1RMA; `None` if 1RMA is not enabled.
    Rma(Option<rma::Facts>),
}

/// A value that a reply carries, such as the number of a created object.
pub trait FromReply: Sized {
    /// Returns the value; `None` if this is the reply to another command.
    fn from_reply(reply: Reply) -> Option<Self>;
}

macro_rules! carried {
    ($($kind:ty: $value:ident => $reply:expr, $pattern:pat => $carried:expr;)*) => {
        $(
            impl From<$kind> for Reply {
                fn from($value: $kind) -> Reply {
                    $reply
                }
            }

            impl FromReply for $kind {
                fn from_reply(reply: Reply) -> Option<Self> {
                    match reply {
                        $pattern => $carried,
                        _ => None,
                    }
                }
            }
        )*
    };
}

carried! {
    (): _value => Reply::Done, Reply::Done => Some(());
    u64: number => Reply::Number(number), Reply::Number(number) => Some(number);
    u32: number => Reply::Number(number.into()), Reply::Number(number) => number.try_into().ok();
    Qpn: qpn => Reply::Number(qpn.get().into()), Reply::Number(number) => number.try_into().ok().map(Qpn::new);
    QueuePairFacts: facts => Reply::QueuePair(Box::new(facts)), Reply::QueuePair(facts) => Some(*facts);
    SrqFacts: facts => Reply::SharedReceiveQueue(facts), Reply::SharedReceiveQueue(facts) => Some(facts);
    FreeListFacts: facts => Reply::FreeList(facts), Reply::FreeList(facts) => Some(facts);
    Vec<u64>: words => Reply::Buffers(words), Reply::Buffers(words) => Some(words);
    Vec<KernelFacts>: kernels => Reply::Kernels(kernels), Reply::Kernels(kernels) => Some(kernels);
    PortalFacts: facts => Reply::Portal(facts), Reply::Portal(facts) => Some(facts);
    Option<rma::Facts>: facts => Reply::Rma(facts), Reply::Rma(facts) => Some(facts);
}
