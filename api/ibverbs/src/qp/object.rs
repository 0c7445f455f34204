//! The object of a queue pair.

use remora_abi::objects::{Absent, IbvQp};
use remora_abi::queue_pair::{IbvAhAttr, IbvQpCap, IbvQpEx};
use remora_verbs::raw::Qp;
use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex};

use super::builder::Builder;
use crate::faults::FaultyQp;
use crate::handles::{Acknowledged, Kind, Object};
use crate::nic::Watcher;

/// A queue pair. Its structure always includes the fields that `ibv_qp_to_qp_ex` reads.
#[repr(C)]
pub(crate) struct QpObject {
    pub verbs: UnsafeCell<IbvQpEx>,
    /// Functions that newer programs know (FLUSH).
    pub(super) _newer: [Absent; 3],
    pub raw: Arc<Qp>,
    /// True if the queue pair was created for posting by `ibv_wr_*` functions.
    pub is_ex: bool,
    pub xrc_domain: Option<u32>,
    pub builder: Builder,
    pub(super) cap: IbvQpCap,
    pub(super) signal_all: bool,
    /// The faults of this queue pair.
    pub faults: Option<Arc<FaultyQp>>,
    /// The address vector that was set last.
    pub(super) address: Mutex<Option<IbvAhAttr>>,
    pub(super) watcher: Watcher,
}

impl Object for QpObject {
    type C = IbvQp;
    const KIND: Kind = Kind::Qp;
}

impl QpObject {
    /// The count of acknowledged asynchronous events.
    pub(crate) fn events_acknowledged(&self) -> Acknowledged {
        let verbs = self.verbs.get();
        // SAFETY: parts of this object.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*verbs).qp_base.mutex,
                cond: &raw mut (*verbs).qp_base.cond,
                count: &raw mut (*verbs).qp_base.events_completed,
            }
        }
    }
}
