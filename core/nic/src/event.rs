//! Asynchronous events, as `ibv_get_async_event` reports them. Port and address events
//! (IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE and similar) are not generated here, but by the program that
//! opened the port.

use remora_wire::Qpn;
use serde::{Deserialize, Serialize};

/// An asynchronous event of a resource.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AsyncEvent {
    /// A request of this queue pair failed and the queue pair entered the error state (IBV_EVENT_QP_FATAL).
    QpFatal(Qpn),
    /// The peer sent an invalid request to this queue pair (IBV_EVENT_QP_REQ_ERR).
    QpRequest(Qpn),
    /// The peer accessed memory without the required permission (IBV_EVENT_QP_ACCESS_ERR).
    QpAccess(Qpn),
    /// The first packet arrived before the queue pair was ready to send (IBV_EVENT_COMM_EST). Connected
    /// services only.
    CommunicationEstablished(Qpn),
    /// All outstanding requests of a queue pair in state SQD have completed (IBV_EVENT_SQ_DRAINED).
    SqDrained(Qpn),
    /// The queue pair is in the error state and takes no further work request of its shared receive queue
    /// (IBV_EVENT_QP_LAST_WQE_REACHED).
    LastWqe(Qpn),
    /// Fewer work requests than the armed limit are left in the shared receive queue of this number
    /// (IBV_EVENT_SRQ_LIMIT_REACHED).
    SrqLimit(Qpn),
    /// A completion was lost because the completion queue of this number was full (IBV_EVENT_CQ_ERR).
    CqOverrun(u32),
    /// The NIC has stopped because a process that owned a part of it has ended (IBV_EVENT_DEVICE_FATAL).
    DeviceFatal,
}
