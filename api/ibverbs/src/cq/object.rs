//! The object of a completion queue.

use remora_abi::completion::IbvCqEx;
use remora_abi::objects::{IbvCompChannel, IbvContext, IbvCq};
use remora_verbs::raw::{Cq, EventQueue};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::polling::Polling;
use crate::faults::Faults;
use crate::handles::{Acknowledged, Kind, Object};
use crate::nic::Watcher;

/// A completion queue, for both ways of polling.
#[repr(C)]
pub(crate) struct CqObject {
    pub verbs: UnsafeCell<IbvCqEx>,
    pub raw: Arc<Cq>,
    pub(super) channel: *mut IbvCompChannel,
    pub(super) reports: Option<Arc<EventQueue<u64>>>,
    /// The number of reports that the program has read.
    pub delivered: AtomicU32,
    pub(super) watcher: Watcher,
    pub polling: Polling,
    /// The faults, if any may change a completion.
    pub(super) faults: Option<Arc<Faults>>,
}

impl Object for CqObject {
    type C = IbvCq;
    const KIND: Kind = Kind::Cq;
}

impl CqObject {
    /// The context that the queue was created on.
    pub(crate) fn context(&self) -> *mut IbvContext {
        // SAFETY: the field never changes.
        unsafe { (*self.verbs.get()).context }
    }

    /// The count of acknowledged completion events.
    pub(crate) fn completions_acknowledged(&self) -> Acknowledged {
        let verbs = self.verbs.get();
        // SAFETY: parts of this object.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*verbs).mutex,
                cond: &raw mut (*verbs).cond,
                count: &raw mut (*verbs).comp_events_completed,
            }
        }
    }

    /// The count of acknowledged asynchronous events.
    pub(crate) fn events_acknowledged(&self) -> Acknowledged {
        let verbs = self.verbs.get();
        // SAFETY: parts of this object.
        unsafe {
            Acknowledged {
                count: &raw mut (*verbs).async_events_completed,
                ..self.completions_acknowledged()
            }
        }
    }
}
