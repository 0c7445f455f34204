//! The congestion windows of servers, one per direction and class. They are software state that the NIC does
//! not have. Outstanding bulk commands do not delay the latency class.

use remora_wire::frame::Address;
use remora_wire::rma::{Class, MAX_OPERATION};

use super::control::{CongestionSettings, Control, Scope, Signal};
use crate::Instant;

/// The server, direction and class of a window.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct WindowKey {
    pub server: Address,
    pub inbound: bool,
    pub class: Class,
}

struct Destination<C> {
    key: WindowKey,
    window: C,
    /// Bytes of outstanding commands.
    outstanding: u64,
    /// Number of transfers in progress; an entry without transfers may be reused for another server.
    users: u32,
    /// Time from which the rate allows the next command.
    next: Instant,
    used: Instant,
}

/// A bounded table of windows. A new window replaces the least recently used one without transfers.
pub(super) struct Destinations<C> {
    all: Vec<Destination<C>>,
    settings: CongestionSettings,
}

impl<C: Control> Destinations<C> {
    pub(crate) fn new(settings: &CongestionSettings) -> Destinations<C> {
        Destinations { all: Vec::with_capacity(settings.destinations), settings: *settings }
    }

    /// Returns the index of a window for one more transfer, or `None` if all entries are in use.
    pub(crate) fn of(&mut self, now: Instant, key: WindowKey) -> Option<usize> {
        let known = self.all.iter().position(|known| known.key == key);
        let place = match known {
            Some(place) => place,
            None => self.make(key)?,
        };
        let destination = &mut self.all[place];
        destination.users += 1;
        destination.used = now;
        Some(place)
    }

    fn make(&mut self, key: WindowKey) -> Option<usize> {
        let fresh = Destination {
            key,
            window: C::new(&self.settings, Scope::Remote),
            outstanding: 0,
            users: 0,
            next: Instant(0),
            used: Instant(0),
        };
        if self.all.len() < self.settings.destinations {
            self.all.push(fresh);
            return Some(self.all.len() - 1);
        }
        let idle = self.all.iter().enumerate().filter(|(_, known)| known.users == 0);
        let (place, _) = idle.min_by_key(|(_, known)| known.used)?;
        self.all[place] = fresh;
        Some(place)
    }

    /// Records the end of a transfer.
    pub(crate) fn leave(&mut self, place: usize) {
        self.all[place].users -= 1;
    }

    /// Returns true if one more command may be issued at `now`. Outstanding commands must fit the smaller
    /// window; a window below one command still allows one.
    pub(crate) fn allows(&self, now: Instant, place: usize, local: &C) -> bool {
        let destination = &self.all[place];
        self.fits(destination, local) && destination.next <= now.after(self.settings.burst)
    }

    fn fits(&self, destination: &Destination<C>, local: &C) -> bool {
        let window = destination.window.size().min(local.size());
        destination.outstanding == 0
            || (destination.outstanding + u64::from(MAX_OPERATION)) as f64
                <= window * f64::from(MAX_OPERATION)
    }

    /// Records that a command of `size` bytes was issued.
    pub(crate) fn issued(&mut self, now: Instant, place: usize, size: u32, local: &C) {
        let destination = &mut self.all[place];
        destination.outstanding += u64::from(size);
        // The rate of the smaller window: `size x CWND / RTT`.
        let window = destination.window.size().min(local.size());
        let trips = f64::from(size) / f64::from(MAX_OPERATION) / window;
        // Idle time is not credited, so commands after a pause are paced too.
        destination.next = destination.next.max(now).after((trips * self.settings.rtt as f64) as u64);
    }

    /// Records the completion of a command.
    pub(crate) fn completed(&mut self, now: Instant, place: usize, size: u32, signal: &Signal) {
        let destination = &mut self.all[place];
        destination.outstanding -= u64::from(size);
        destination.window.completed(now, signal);
    }

    /// Returns the time at which the rate allows the next command, or `None` if the window is full and a
    /// completion must come first.
    pub(crate) fn due(&self, place: usize, local: &C) -> Option<Instant> {
        let destination = &self.all[place];
        let due = Instant(destination.next.0.saturating_sub(self.settings.burst));
        self.fits(destination, local).then_some(due)
    }

    pub(crate) fn window(&self, key: WindowKey) -> Option<f64> {
        let known = self.all.iter().find(|known| known.key == key);
        known.map(|known| known.window.size())
    }
}
