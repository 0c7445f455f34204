//! Events in a channel's socket that the program has not read. They are removed when their id is destroyed
//! or moves, so that the descriptor is readable only while there is an event.

use remora_broker::{IdEvent, IdEventKind, Posted};
use rustix::net::RecvFlags;

use crate::channel::ChannelObject;

/// The code of a posted event, called a marker, that stands for the first entry of [`ChannelObject::moved`].
const MOVED: u32 = u32::MAX;

/// Returns the id that an event belongs to: for a request, the listener.
pub(crate) fn target(event: &IdEvent) -> u64 {
    match event.kind {
        IdEventKind::ConnectRequest { listener, .. } | IdEventKind::DatagramRequest { listener, .. } => {
            listener
        }
        _ => event.id,
    }
}

fn is_marker(event: &IdEvent) -> bool {
    matches!(event.kind, IdEventKind::Posted(Posted { code: MOVED, .. }))
}

/// Returns the event to be delivered when `event` arrived from the socket: the oldest one. `None` if `event`
/// is a marker whose event was removed.
pub(crate) fn oldest(channel: &ChannelObject, event: IdEvent) -> Option<IdEvent> {
    let mut moved = channel.moved();
    if !is_marker(&event) {
        if moved.is_empty() {
            return Some(event);
        }
        moved.push_back(event);
    }
    moved.pop_front()
}

/// Appends events to the channel to which their id has moved. A request has an id of its own, which moves
/// too.
pub(crate) fn append(channel: &ChannelObject, events: Vec<IdEvent>) {
    for event in events {
        let is_request = target(&event) != event.id;
        if is_request && channel.manager.client.migrate(event.id, &channel.socket).is_err() {
            continue;
        }
        channel.moved().push_back(event.clone());
        mark(channel, &event);
    }
}

/// Makes the descriptor readable for an event of [`ChannelObject::moved`]. If the event's id was destroyed,
/// the event is removed.
fn mark(channel: &ChannelObject, event: &IdEvent) {
    let posted = Posted { code: MOVED, ..Posted::default() };
    if channel.manager.client.post(event.id, posted).is_err() {
        let mut moved = channel.moved();
        if let Some(place) = moved.iter().rposition(|other| other == event) {
            moved.remove(place);
        }
    }
}

/// Removes the unread events of an id from a channel, including requests to it. All others keep their order.
pub(crate) fn take_out(channel: &ChannelObject, id: u64) -> Vec<IdEvent> {
    let mut moved = channel.moved();
    let (markers, came) = drain(channel);
    // The number of markers that are still on their way to the socket.
    let coming = moved.len().saturating_sub(markers);
    let all = moved.drain(..).chain(came);
    let (taken, kept): (Vec<IdEvent>, Vec<IdEvent>) = all.partition(|event| target(event) == id);
    moved.extend(kept.iter().cloned());
    drop(moved);
    for event in kept.iter().skip(coming) {
        mark(channel, event);
    }
    taken
}

/// Reads everything in the socket. Returns the number of markers, and the other events.
fn drain(channel: &ChannelObject) -> (usize, Vec<IdEvent>) {
    let mut markers = 0;
    let mut events = Vec::new();
    let mut packet = [0_u8; IdEvent::MAX_LEN];
    while let Ok((len, _)) = rustix::net::recv(&channel.socket, &mut packet[..], RecvFlags::DONTWAIT)
        && let Some(event) = IdEvent::parse(&packet[..len])
    {
        if is_marker(&event) {
            markers += 1;
        } else {
            events.push(event);
        }
    }
    (markers, events)
}
