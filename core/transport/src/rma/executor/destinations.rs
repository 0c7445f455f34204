//! The windows of servers, one for each direction and class, in software: the NIC has none of this. What is
//! outstanding of the bulk class keeps no operation of the latency class from leaving.

use remora_wire::frame::Address;
use remora_wire::rma::{Class, MAX_OPERATION};

use super::control::{CongestionSettings, Control, Scope, Signal};
use crate::Instant;

/// What one window is for.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct WindowKey {
    pub server: Address,
    pub inbound: bool,
    pub class: Class,
}

struct Destination<C> {
    key: WindowKey,
    window: C,
    /// Bytes of commands outstanding.
    outstanding: u64,
    /// Transfers in progress; with none, its place may go to another server.
    users: u32,
    /// When the pace lets the next command be issued.
    next: Instant,
    used: Instant,
}

/// As many windows as the settings allow. The window that was not used for longest makes place for a new one.
pub(super) struct Destinations<C> {
    all: Vec<Destination<C>>,
    settings: CongestionSettings,
}

impl<C: Control> Destinations<C> {
    pub fn new(settings: &CongestionSettings) -> Destinations<C> {
        Destinations { all: Vec::with_capacity(settings.destinations), settings: *settings }
    }

    /// The place of a window, for one more transfer. None: all places are in use.
    pub fn of(&mut self, now: Instant, key: WindowKey) -> Option<usize> {
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

    /// A transfer has ended.
    pub fn leave(&mut self, place: usize) {
        self.all[place].users -= 1;
    }

    /// May one more command be issued at `now`? What is outstanding stays within the smaller window; of a
    /// window below one command, one is.
    pub fn allows(&self, now: Instant, place: usize, local: &C) -> bool {
        let destination = &self.all[place];
        self.fits(destination, local) && destination.next <= now.after(self.settings.burst)
    }

    fn fits(&self, destination: &Destination<C>, local: &C) -> bool {
        let window = destination.window.size().min(local.size());
        destination.outstanding == 0
            || (destination.outstanding + u64::from(MAX_OPERATION)) as f64
                <= window * f64::from(MAX_OPERATION)
    }

    /// A command of `size` bytes is issued.
    pub fn issued(&mut self, now: Instant, place: usize, size: u32, local: &C) {
        let destination = &mut self.all[place];
        destination.outstanding += u64::from(size);
        // The pace of the smaller window: `size x CWND / RTT`.
        let window = destination.window.size().min(local.size());
        let trips = f64::from(size) / f64::from(MAX_OPERATION) / window;
        // A pause is not saved up: what follows it leaves at the pace, too.
        destination.next = destination.next.max(now).after((trips * self.settings.rtt as f64) as u64);
    }

    /// A command has ended.
    pub fn completed(&mut self, now: Instant, place: usize, size: u32, signal: &Signal) {
        let destination = &mut self.all[place];
        destination.outstanding -= u64::from(size);
        destination.window.completed(now, signal);
    }

    /// When the pace allows the next command; None: the window is full, and a completion must come first.
    pub fn due(&self, place: usize, local: &C) -> Option<Instant> {
        let destination = &self.all[place];
        let due = Instant(destination.next.0.saturating_sub(self.settings.burst));
        self.fits(destination, local).then_some(due)
    }

    pub fn window(&self, key: WindowKey) -> Option<f64> {
        let known = self.all.iter().find(|known| known.key == key);
        known.map(|known| known.window.size())
    }
}
