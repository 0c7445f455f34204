//! Conversion of the broker's events to events of the program.

use remora_abi::cma::{RdmaCmEvent, RdmaConnParam, RdmaUdParam, event_type};
use remora_abi::queue_pair::{QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV};
use remora_broker::{ConnParam, ConnectedService, IdEvent, IdEventKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::channel::ChannelObject;
use crate::event::{EventDetail, NewEvent};
use crate::id::{IDS, IdObject, Made, Phase};
use crate::{address, errno, ibverbs, multicast, qp_state, registry, unread};

/// Returns the event for the program, or `None` if it belongs to no id.
pub(crate) fn hand_out(channel: &Arc<ChannelObject>, event: IdEvent) -> Option<*mut RdmaCmEvent> {
    let event = unread::oldest(channel, event)?;
    let target = unread::target(&event);
    let Some(id) = registry::deliver_to(&channel.manager, target) else {
        if target != event.id {
            // The listener was destroyed, so the peer is refused.
            let _ = channel.manager.client.destroy(event.id);
        }
        return None;
    };
    let new_event = if is_elsewhere(channel, &id, &event) { None } else { report(&id, event) };
    if new_event.is_none() {
        id.outstanding.acknowledge();
    }
    new_event
}

/// Returns whether the id has moved to another channel after the broker had sent the event here. The event
/// is then delivered there.
fn is_elsewhere(channel: &Arc<ChannelObject>, id: &IdObject, event: &IdEvent) -> bool {
    let there = Arc::clone(&id.state().channel);
    if Arc::ptr_eq(&there, channel) {
        return false;
    }
    unread::append(&there, vec![event.clone()]);
    true
}

fn report(id: &Arc<IdObject>, event: IdEvent) -> Option<*mut RdmaCmEvent> {
    let IdEvent { id: number, kind, private_data } = event;
    let new_event = match kind {
        IdEventKind::ConnectRequest { local, remote, service, param, .. } => {
            let qp_type = match service {
                ConnectedService::Uc => QPT_UC,
                ConnectedService::Xrc => QPT_XRC_RECV,
                _ => QPT_RC,
            };
            let new_event = NewEvent {
                event: event_type::CONNECT_REQUEST,
                status: 0,
                detail: conn_detail(&param),
                private_data,
            };
            let depths = [param.responder_resources, param.initiator_depth];
            return request(id, &Request { number, qp_type, ends: [local, remote], depths }, new_event);
        }
        IdEventKind::DatagramRequest { local, remote, .. } => {
            let detail = EventDetail::Datagrams(ibverbs::zeroed());
            let new_event = NewEvent { event: event_type::CONNECT_REQUEST, status: 0, detail, private_data };
            let ends = [local, remote];
            return request(id, &Request { number, qp_type: QPT_UD, ends, depths: [0; 2] }, new_event);
        }
        IdEventKind::Posted(posted) if posted.code == event_type::MULTICAST_JOIN as u32 => {
            return multicast::joined(id, posted.subject);
        }
        IdEventKind::Posted(posted) if posted.code == event_type::USER as u32 => {
            let detail = EventDetail::Argument(posted.subject);
            NewEvent { detail, ..NewEvent::plain(event_type::USER, posted.status) }
        }
        IdEventKind::Posted(posted) => NewEvent::plain(posted.code as i32, posted.status),
        IdEventKind::ConnectResponse(param) => responded(id, &param, private_data),
        IdEventKind::Established => NewEvent::plain(event_type::ESTABLISHED, 0),
        IdEventKind::Rejected(reason) => {
            qp_state::fail(id);
            let new_event = NewEvent::plain(event_type::REJECTED, reason.into());
            NewEvent { private_data, ..new_event }
        }
        IdEventKind::Disconnected => NewEvent::plain(event_type::DISCONNECTED, 0),
        IdEventKind::Unreachable => {
            qp_state::fail(id);
            NewEvent::plain(event_type::UNREACHABLE, -libc::ETIMEDOUT)
        }
        IdEventKind::TimewaitExit => NewEvent::plain(event_type::TIMEWAIT_EXIT, 0),
        IdEventKind::DatagramResponse { status: 0, qpn, qkey } => {
            let ah_attr = qp_state::address_vector(id);
            let ud = RdmaUdParam { ah_attr, qp_num: qpn.get(), qkey, ..ibverbs::zeroed() };
            NewEvent {
                event: event_type::ESTABLISHED,
                status: 0,
                detail: EventDetail::Datagrams(ud),
                private_data,
            }
        }
        IdEventKind::DatagramResponse { status, .. } => {
            NewEvent { private_data, ..NewEvent::plain(event_type::UNREACHABLE, status.into()) }
        }
    };
    Some(new_event.give(id, None, &id.outstanding))
}

/// Converts the peer's parameters of its queue pair.
fn conn_detail(param: &ConnParam) -> EventDetail {
    EventDetail::Connection(RdmaConnParam {
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control.into(),
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: param.srq.into(),
        qp_num: param.qpn.get(),
        ..ibverbs::zeroed()
    })
}

/// Handles the peer's acceptance. The program of an id without a queue pair does the rest itself.
fn responded(id: &IdObject, param: &ConnParam, private_data: Vec<u8>) -> NewEvent {
    let new_event =
        NewEvent { event: event_type::CONNECT_RESPONSE, status: 0, detail: conn_detail(param), private_data };
    if id.shown().qp.is_null() {
        return new_event;
    }
    match finish(id) {
        Ok(()) => NewEvent { event: event_type::ESTABLISHED, ..new_event },
        Err(errno) => NewEvent::plain(event_type::CONNECT_ERROR, -errno),
    }
}

/// Moves the id's queue pair to RTS after the peer's acceptance, and notifies the peer.
fn finish(id: &IdObject) -> Result<(), i32> {
    let finished = qp_state::connect(id, None)
        .and_then(|()| id.manager.client.ready_to_use(id.number, &[]).map_err(|error| errno::of_io(&error)));
    if finished.is_err() {
        qp_state::fail(id);
        let _ = id.manager.client.reject(id.number, &[]);
    }
    finished
}

/// A peer's request.
struct Request {
    number: u64,
    qp_type: i32,
    /// The address that the peer called, and the peer's own.
    ends: [SocketAddr; 2],
    /// The numbers of READs and atomics that this side holds, and has outstanding.
    depths: [u8; 2],
}

/// Creates an id for a request, with the listener's channel or, if that is hidden, with a channel of its
/// own.
fn request(listener: &Arc<IdObject>, request: &Request, new_event: NewEvent) -> Option<*mut RdmaCmEvent> {
    let Request { number, qp_type, ends: [local, remote], depths } = *request;
    let client = &listener.manager.client;
    // As in Linux, the backlog counts requests whose event the program has not read.
    let _ = client.taken(number);
    let refuse = || {
        let _ = client.destroy(number);
    };
    let (is_sync, options, mut channel) = {
        let state = listener.state();
        (state.is_sync, state.options, Arc::clone(&state.channel))
    };
    let gids = listener.manager.gids();
    let Ok(gid) = address::own(&gids, local) else {
        refuse();
        return None;
    };
    if is_sync {
        let hidden = ChannelObject::open().ok().filter(|own| client.migrate(number, &own.socket).is_ok());
        let Some(hidden) = hidden else {
            refuse();
            return None;
        };
        channel = hidden;
    }
    if listener.manager.default_pd().is_err() {
        refuse();
        return None;
    }
    let shown = listener.shown();
    let id = IdObject::new(Made { number, channel, is_sync, context: shown.context, ps: shown.ps, qp_type });
    {
        let mut state = id.state();
        [state.responder_resources, state.initiator_depth] = depths;
        (state.phase, state.options) = (Phase::Requested, options);
        // Cannot fail, because the domain exists.
        let _ = id.at_device(&mut state, gid);
        id.set_local(&mut state, local);
        id.set_remote(&mut state, remote);
    }
    id.set_path(options.tos);
    registry::add(&id);
    let event = new_event.give(&id, Some(listener), &listener.outstanding);
    IDS.give(id);
    Some(event)
}

/// Called when the broker is gone, and the device with it. Returns the event for one id of the channel that
/// was not notified, or `None` if all were.
pub(crate) fn bereft(channel: &Arc<ChannelObject>) -> Option<*mut RdmaCmEvent> {
    let id = registry::next_bereft(channel)?;
    Some(NewEvent::plain(event_type::DEVICE_REMOVAL, 0).give(&id, None, &id.outstanding))
}
