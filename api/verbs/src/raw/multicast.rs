//! Attaching to multicast groups. The NIC knows the attached queue pairs, the port the joined groups.

use remora_host::Engine;
use remora_wire::Qpn;
use remora_wire::frame::Endpoint;
use std::sync::Arc;

use crate::CreateError;

/// Attaches a queue pair to a group, and makes the port join the group.
pub(crate) fn attach(engine: &Arc<Engine>, number: Qpn, group: Endpoint) -> Result<(), CreateError> {
    remora_host::connect::loop_back_multicast(engine)
        .map_err(|error| CreateError::Group(error.to_string()))?;
    engine.control(|control| {
        control.nic.attach_multicast(number, group.address)?;
        control.port.join(group).map_err(|error| {
            let undone = control.nic.detach_multicast(number, group.address);
            debug_assert!(undone.is_ok(), "the queue pair was attached above");
            CreateError::Group(error.to_string())
        })
    })
}

/// Detaches a queue pair from a group that it is attached to.
pub(crate) fn leave(engine: &Arc<Engine>, number: Qpn, group: Endpoint) {
    engine.control(|control| {
        let left = control.nic.detach_multicast(number, group.address);
        debug_assert!(left.is_ok(), "the caller knows that the queue pair is attached");
        control.port.leave(group);
    });
}
