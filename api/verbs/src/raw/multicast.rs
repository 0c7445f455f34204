//! Attaching to multicast groups. The NIC knows the attached queue pairs, the port the joined groups.

use remora_host::{AttachRefusal, Engine};
use remora_wire::Qpn;
use remora_wire::frame::Endpoint;
use std::sync::Arc;

use crate::CreateError;

/// Attaches a queue pair to a group, and makes the port join the group.
pub(crate) fn attach(engine: &Arc<Engine>, number: Qpn, group: Endpoint) -> Result<(), CreateError> {
    engine.attach_multicast(number, group).map_err(|refusal| match refusal {
        AttachRefusal::Nic(error) => error.into(),
        AttachRefusal::Port(error) => CreateError::Group(error.to_string()),
        AttachRefusal::Link(error) => CreateError::Group(error.to_string()),
    })
}

/// Detaches a queue pair from a group that it is attached to.
pub(crate) fn leave(engine: &Arc<Engine>, number: Qpn, group: Endpoint) {
    let left = engine.detach_multicast(number, group);
    debug_assert!(left.is_ok(), "the caller knows that the queue pair is attached");
}
