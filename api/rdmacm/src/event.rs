//! Events that programs receive and acknowledge.

use remora_abi::cma::{EventParam, RdmaCmEvent, RdmaConnParam, RdmaUdParam};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::errno;
use crate::id::IdObject;
use crate::live::Live;
use crate::outstanding::Outstanding;

/// An event in the hands of the program.
#[repr(C)]
pub(crate) struct EventObject {
    verbs: UnsafeCell<RdmaCmEvent>,
    /// The peer's private data, to which the event points.
    private_data: Box<[u8]>,
    /// The counter in which the event is acknowledged.
    outstanding: Arc<Outstanding>,
}

// SAFETY: programs only read the structure.
unsafe impl Send for EventObject {}
// SAFETY: as above.
unsafe impl Sync for EventObject {}

/// The events that programs have not acknowledged.
pub(crate) static EVENTS: Live<EventObject> = Live::new();

/// The parameters of an event, besides its kind.
pub(crate) enum EventDetail {
    Nothing,
    /// The parameters of a connection.
    Connection(RdmaConnParam),
    /// A number that the program chose.
    Argument(u64),
    /// The destination of datagrams.
    Datagrams(RdmaUdParam),
}

/// An event to be delivered.
pub(crate) struct NewEvent {
    pub event: c_int,
    pub status: c_int,
    pub detail: EventDetail,
    pub private_data: Vec<u8>,
}

impl NewEvent {
    /// Returns an event without parameters.
    pub(crate) fn plain(event: c_int, status: c_int) -> NewEvent {
        NewEvent { event, status, detail: EventDetail::Nothing, private_data: Vec::new() }
    }

    /// Delivers the event to the program. `listener` is the listening id if the event is a request.
    pub(crate) fn give(
        self,
        id: &IdObject,
        listener: Option<&IdObject>,
        outstanding: &Arc<Outstanding>,
    ) -> *mut RdmaCmEvent {
        let private_data = self.private_data.into_boxed_slice();
        // The bytes on the heap keep their address when the box moves.
        let begin = if private_data.is_empty() { std::ptr::null() } else { private_data.as_ptr().cast() };
        let begin: *const c_void = begin;
        let len: u8 = private_data.len().min(255) as u8;
        let param = match self.detail {
            EventDetail::Nothing => {
                let conn = RdmaConnParam { private_data: begin, ..crate::ibverbs::zeroed() };
                EventParam { conn: RdmaConnParam { private_data_len: len, ..conn } }
            }
            EventDetail::Connection(conn) => {
                EventParam { conn: RdmaConnParam { private_data: begin, private_data_len: len, ..conn } }
            }
            EventDetail::Argument(arg) => {
                let mut param = EventParam { conn: crate::ibverbs::zeroed() };
                param.arg = arg;
                param
            }
            // The event of a group has the program's context in this field.
            EventDetail::Datagrams(ud) if begin.is_null() => EventParam { ud },
            EventDetail::Datagrams(ud) => {
                EventParam { ud: RdmaUdParam { private_data: begin, private_data_len: len, ..ud } }
            }
        };
        let verbs = RdmaCmEvent {
            id: id.handle(),
            listen_id: listener.map_or(std::ptr::null_mut(), IdObject::handle),
            event: self.event,
            status: self.status,
            param,
        };
        let outstanding = Arc::clone(outstanding);
        EVENTS.give(Arc::new(EventObject { verbs: verbs.into(), private_data, outstanding })) as *mut _
    }
}

impl EventObject {
    /// The structure that programs see.
    pub(crate) fn shown(&self) -> RdmaCmEvent {
        debug_assert!(self.private_data.len() < 256, "private data of a message is shorter than 256 bytes");
        // SAFETY: programs only read the structure.
        unsafe { *self.verbs.get() }
    }
}

/// Acknowledges an event and frees it.
pub(crate) fn acknowledge(event: *const RdmaCmEvent) -> Result<(), c_int> {
    EVENTS.take(event).map(|event| event.outstanding.acknowledge())
}

/// Acknowledges an event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut RdmaCmEvent) -> c_int {
    errno::minus_one(acknowledge(event))
}
