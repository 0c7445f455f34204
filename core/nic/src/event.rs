//! Asynchronous events: what the verbs report beside completions (`ibv_get_async_event`). Those of the port
//! and its addresses (IBV_EVENT_PORT_ACTIVE, GID_CHANGE and their like) are not the NIC's: who
//! opened it knows them.

use remora_wire::Qpn;

/// Something happened to a resource.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A request of this queue pair failed, and it is in the error state (IBV_EVENT_QP_FATAL).
    QpFatal(Qpn),
    /// The peer asked for something invalid (IBV_EVENT_QP_REQ_ERR).
    QpRequest(Qpn),
    /// The peer asked for memory that it may not touch (IBV_EVENT_QP_ACCESS_ERR).
    QpAccess(Qpn),
    /// The first packet arrived before the queue pair was ready to send (IBV_EVENT_COMM_EST). Connected
    /// services only.
    CommunicationEstablished(Qpn),
    /// SQD: all requests under way have ended (IBV_EVENT_SQ_DRAINED).
    SqDrained(Qpn),
    /// The queue pair is in the error state and takes no further work request of its shared receive queue
    /// (IBV_EVENT_QP_LAST_WQE_REACHED).
    LastWqe(Qpn),
    /// Fewer work requests than the armed limit are left in the shared receive queue of this number
    /// (IBV_EVENT_SRQ_LIMIT_REACHED).
    SrqLimit(Qpn),
    /// A completion found its queue full (IBV_EVENT_CQ_ERR).
    CqOverrun(u32),
    /// The NIC can work no more: whoever owned a part of it is gone (IBV_EVENT_DEVICE_FATAL).
    DeviceFatal,
}
