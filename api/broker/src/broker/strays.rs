//! Frames that reached a program or the broker and are for another program: frames for ranges that nobody
//! reads, frames that were steered wrongly, and all frames if the kernel cannot steer.

use remora_port::udp::{Arrival, SteeredBy, range_of};

use super::state::State;

/// Receive calls for one descriptor before the others have their turn.
const TURN: usize = 32;
/// Upper limit of the trains that can wait in a socket when it is lent.
const WAITING: usize = 1 << 16;

impl State {
    /// Processes the frames of a range's socket while no program reads it.
    pub(super) fn receive(&mut self, place: usize, range: u8) {
        for _ in 0..TURN {
            let Some(arrival) = self.fetch(place, range) else { return };
            self.route(place, &arrival, false);
        }
    }

    /// Empties the socket of a range before it is lent. The frames are for nobody, or for others.
    pub(super) fn drain(&mut self, place: usize, range: u8) {
        let group = self.addresses[place].group.as_ref();
        if group.is_none_or(|group| group.steered() == SteeredBy::Reader) {
            return;
        }
        for _ in 0..WAITING {
            let Some(arrival) = self.fetch(place, range) else { return };
            self.route(place, &arrival, false);
        }
    }

    /// Receives once from a socket. Errors caused by earlier datagrams (ICMP) give an empty arrival.
    fn fetch(&mut self, place: usize, range: u8) -> Option<Arrival> {
        let socket = self.addresses[place].group.as_ref()?.sockets().get(usize::from(range))?;
        match socket.recv_train(&mut self.buffer) {
            Ok(arrival) => arrival,
            Err(_) => Some(Arrival {
                len: 0,
                segment: 1,
                source: Default::default(),
                fields: None,
                truncated: false,
            }),
        }
    }

    /// Processes frames that reached a program and are for others. They mean that a program of the broker's
    /// user has changed the steering, which is therefore set up anew.
    pub(super) fn take_strays(&mut self, place: usize, number: u32) {
        for _ in 0..TURN {
            let Some(client) = self.clients.get(number) else { return };
            let Some(share) = client.share(place) else { return };
            match share.handover.take(&mut self.buffer) {
                // A guest reads no socket, so it cannot have received frames for others. Accepting them would
                // let it forge frames of any host.
                Ok(Some(_)) if client.user.is_guest() => {
                    self.tally.dropped += 1;
                    return self.hang_up(number);
                }
                Ok(Some(arrival)) => {
                    if let Some(group) = &self.addresses[place].group {
                        group.steer();
                    }
                    self.route(place, &arrival, true);
                }
                Ok(None) => return,
                // The program has closed its device on this address.
                Err(_) => return self.end_share(place, number),
            }
        }
    }

    /// Passes each run of frames for one range to the program that has it.
    fn route(&mut self, place: usize, arrival: &Arrival, strayed: bool) {
        if arrival.truncated || arrival.len == 0 {
            return;
        }
        let segment = arrival.segment.max(1);
        let mut start = 0;
        while start < arrival.len {
            let range = range_of(&self.buffer[start..arrival.len.min(start + segment)]);
            let mut end = (start + segment).min(arrival.len);
            while end < arrival.len && range_of(&self.buffer[end..arrival.len.min(end + segment)]) == range {
                end = (end + segment).min(arrival.len);
            }
            self.deliver(place, arrival, range, start..end, strayed);
            start = end;
        }
    }

    fn deliver(
        &mut self,
        place: usize,
        arrival: &Arrival,
        range: u8,
        run: std::ops::Range<usize>,
        strayed: bool,
    ) {
        let frames = &self.buffer[run.clone()];
        let count = frames.len().div_ceil(arrival.segment.max(1)) as u64;
        // A program that has the address alone hands over the broker's own frames, which do not count as
        // strays.
        self.tally.strays += if strayed && !self.options.alone { count } else { 0 };
        if range == 0 {
            return self.deliver_own(place, arrival, run);
        }
        let way = self.clients.of_range(range).and_then(|(_, client)| client.way(place));
        let destination = remora_wire::Address::from(self.addresses[place].local.ip());
        let counter = match way {
            None => &mut self.tally.unclaimed,
            Some(share) if !share.handover.give(arrival.source, destination, arrival.segment, frames) => {
                &mut self.tally.overflowed
            }
            Some(share) if !share.lent => &mut self.tally.relayed,
            Some(_) => &mut self.tally.forwarded,
        };
        *counter += count;
    }

    /// Processes a run of frames for range 0, the broker's own.
    fn deliver_own(&mut self, place: usize, arrival: &Arrival, run: std::ops::Range<usize>) {
        let segment = arrival.segment.max(1);
        for start in run.clone().step_by(segment) {
            let frame = start..run.end.min(start + segment);
            let bytes = &self.buffer[frame.clone()];
            let is_rma = bytes.first().is_some_and(|byte| byte & 0xf8 == 0xe0);
            match bytes.get(5..8) {
                _ if is_rma => self.tally.rma += 1,
                Some([0, 0, 1]) => self.receive_mad(place, arrival, frame),
                Some([0, 0, 0]) => self.tally.management += 1,
                _ => self.tally.unclaimed += 1,
            }
        }
    }
}
