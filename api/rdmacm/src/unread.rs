//! Events that lie in a channel's socket and that the program has not read. They leave it when their id ends
//! or moves, so that the descriptor is readable only while there is something to read.

use remora_broker::{IdEvent, IdEventKind, Posted};
use rustix::net::RecvFlags;

use crate::channel::ChannelObject;

/// The code of a posted event that stands for the first one of [`ChannelObject::moved`].
const MOVED: u32 = u32::MAX;

/// The id that an event is about: of a request it is the listener.
pub fn target(event: &IdEvent) -> u64 {
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

/// The event that the program reads when this one came by the socket: the oldest one. `None`: the event that
/// a marker stood for is gone.
pub fn oldest(channel: &ChannelObject, event: IdEvent) -> Option<IdEvent> {
    let mut moved = channel.moved();
    if !is_marker(&event) {
        if moved.is_empty() {
            return Some(event);
        }
        moved.push_back(event);
    }
    moved.pop_front()
}

/// Appends events to a channel, to which their ids have moved. A request comes with an id of its own, which
/// moves there, too.
pub fn append(channel: &ChannelObject, events: Vec<IdEvent>) {
    for event in events {
        let is_request = target(&event) != event.id;
        if is_request && channel.manager.client.migrate(event.id, &channel.socket).is_err() {
            continue;
        }
        channel.moved().push_back(event.clone());
        mark(channel, &event);
    }
}

/// Makes the descriptor readable for an event of [`ChannelObject::moved`]. An event whose id has ended goes.
fn mark(channel: &ChannelObject, event: &IdEvent) {
    let posted = Posted { code: MOVED, ..Posted::default() };
    if channel.manager.client.post(event.id, posted).is_err() {
        let mut moved = channel.moved();
        if let Some(place) = moved.iter().rposition(|other| other == event) {
            moved.remove(place);
        }
    }
}

/// Takes the unread events about an id out of a channel, those of requests to it among them. All others stay
/// in their order.
pub fn take_out(channel: &ChannelObject, id: u64) -> Vec<IdEvent> {
    let mut moved = channel.moved();
    let (markers, came) = drain(channel);
    // Markers that are on their way.
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

/// Reads what lies in the socket: the number of markers, and the other events.
fn drain(channel: &ChannelObject) -> (usize, Vec<IdEvent>) {
    let (mut markers, mut events) = (0, Vec::new());
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
