//! A WQE becomes a request to a kernel of the peer's NIC.

use remora_transport::Status;
use remora_transport::rc::Kind;
use remora_wire::strom::{HEAD_LEN, TAG_MASK};

use crate::queue_pair::{List, QueuePair};
use crate::reliable::Requests;
use crate::wqe::{Wqe, WqeOpcode, flag};

impl QueuePair {
    /// Takes a request to a kernel; one that the peer has not agreed to, or that makes no sense, fails here.
    #[cold]
    #[inline(never)]
    pub(crate) fn submit_strom<R: Requests>(&mut self, wqe: &Wqe, index: u64, slots: u64) {
        let (opcode, tag) = (wqe.remote, wqe.rkey());
        let found = match wqe.flags() & flag::INLINE {
            0 => self.list(wqe, index),
            _ => Some((wqe.len, List::Inline)),
        };
        let Some((len, list)) = found.filter(|_| self.strom.is_some() && tag <= TAG_MASK) else {
            return self.submit_failing::<R>(wqe, index, slots, Status::LocalQpOperation);
        };
        let params = wqe.opcode() == WqeOpcode::RPC;
        let fits = match params {
            true => (HEAD_LEN as u64..=u64::from(self.attributes.parameters.mtu)).contains(&len),
            false => len <= 1 << 31,
        };
        if !fits {
            return self.submit_failing::<R>(wqe, index, slots, Status::LocalLength);
        }
        let kind = if params { Kind::Rpc { opcode, tag } } else { Kind::RpcWrite { opcode, tag } };
        let message = self.message(wqe, kind, len, list, index, slots);
        if let Some(requester) = R::of(self) {
            requester.submit(message);
        }
    }
}
