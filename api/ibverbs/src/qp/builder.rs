//! The requests of a queue pair that are collected between start and complete.

use remora_abi::objects::IbvMw;
use remora_verbs::raw::Target;
use remora_verbs::{Operation, Sge};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::AtomicBool;

use crate::requests::{Work, flags};

/// The requests between start and complete. One thread at a time holds them.
#[derive(Default)]
pub(crate) struct Builder {
    pub(super) busy: AtomicBool,
    pub(super) requests: UnsafeCell<Requests>,
}

#[derive(Default)]
pub(super) struct Requests {
    pub(super) all: Vec<Request>,
    pub(super) sges: Vec<Sge>,
    pub(super) bytes: Vec<u8>,
    /// The errno of the first fault.
    pub(super) fault: Option<c_int>,
}

/// A request. Its list elements, or its inline bytes, are a range of those of all requests.
pub(super) struct Request {
    pub(super) work: Work,
    pub(super) inline: bool,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The window that the request binds, and the window's new key.
    pub(super) window: Option<(*mut IbvMw, u32)>,
}

impl Requests {
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.sges.clear();
        self.bytes.clear();
        self.fault = None;
    }

    pub(super) fn add(&mut self, id: u64, bits: u32, operation: Operation) {
        let work = Work { id, flags: flags(bits), operation, target: Target::Peer };
        let end = self.sges.len();
        self.all.push(Request { work, inline: false, start: end, end, window: None });
    }

    pub(super) fn fail(&mut self, errno: c_int) {
        self.fault.get_or_insert(errno);
    }

    /// Applies a setter to the last request. Without one, it is a fault of the program.
    pub(super) fn last(&mut self, change: impl FnOnce(&mut Request)) {
        match self.all.last_mut() {
            Some(request) => change(request),
            None => self.fail(libc::EINVAL),
        }
    }
}
