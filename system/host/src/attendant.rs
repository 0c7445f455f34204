//! The attendant: one thread of an inline adapter that serves its engines while no caller polls them. So
//! one-sided verbs reach a program that sleeps.
//!
//! | an engine is | the attendant | until |
//! |---|---|---|
//! | polled | looks at its heartbeat each [`TICK`] | it stood still for one tick |
//! | watched | sleeps on the port's descriptors, and on a timer that backs off | a packet, or a caller |
//! | served | makes pass after pass | [`SPIN`] without traffic, or a caller comes |
//! | awaited | stands by: a caller waits for packets itself | that caller has come back |
//!
//! A program that spins on memory for what its peer writes calls the engine a few times for each message, and
//! does not poll it. Once it is [noticed](spinner), its port stays watched beside its calls: packets wake the
//! attendant, which takes them and goes back to sleep at once. The program may spin on the same core, where
//! the scheduler gives the attendant half of the time at most. What comes while a caller is inside is left to
//! that caller.
//!
//! A caller never waits for the attendant's sleep: the engine's lock is free then. While a caller polls, the
//! port is not watched, so packets do not wake the attendant (which would take half of a two-core machine).

use mio::{Events, Poll};
use remora_memory::page_fault;
use remora_transport::Instant;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::watch::{Begun, WAKER};
use spinner::Spinner;

mod spinner;

/// A heartbeat that stands still for so long means that nobody polls.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// Time without traffic after which the attendant sleeps: waking a core costs as much.
pub const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep: what a port's missed wake, or a timer set meanwhile, waits at most.
pub const LONGEST: Duration = Duration::from_millis(50);
/// Its time slice: a program that spins on the same core is preempted when a packet comes.
const SLICE: Duration = Duration::from_micros(100);
/// How long a packet is left to a program, to see whether it polls.
const PROBE: Duration = Duration::from_micros(20);
/// Empty passes between two looks at the clock.
const LOOK_EVERY: u32 = 16;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Callers poll it: its heartbeat at the last look.
    Polled { heartbeat: u64, since: Instant },
    /// Its port is watched: the time of the next look, and the sleep after that.
    Watched { until: Instant, sleep: u64, heartbeat: u64 },
    /// It is served pass after pass: the heartbeat that follows from them, and the time of the last traffic.
    Served { heartbeat: u64, busy: Instant, turn: u32 },
    /// A packet came to a program that spins on memory: it is taken, and the port is watched again.
    Woken,
    /// A caller waits for packets itself: its heartbeat at the last look, and the sleep until the next.
    Awaited { heartbeat: u64, sleep: u64 },
}

struct Charge {
    engine: Arc<Engine>,
    state: State,
    /// Frames lay there for a tick after its last caller.
    found: bool,
    /// A program that spins on memory was noticed.
    spinner: Option<Spinner>,
}

/// The thread's own state.
pub(crate) struct Attendant {
    charges: Vec<Charge>,
    poll: Poll,
    clock: Clock,
    stop: Arc<AtomicBool>,
    /// When the handlers of page faults are looked after again.
    handlers_due: Instant,
}

impl Attendant {
    pub fn new(engines: &[Arc<Engine>], poll: Poll, clock: Clock, stop: Arc<AtomicBool>) -> Attendant {
        let now = clock.now();
        let charge = |engine: &Arc<Engine>| {
            let state = State::Polled { heartbeat: engine.heartbeat(), since: now };
            Charge { engine: Arc::clone(engine), state, found: false, spinner: None }
        };
        Attendant { charges: engines.iter().map(charge).collect(), poll, clock, stop, handlers_due: now }
    }

    /// Serves the engines until it is stopped.
    pub fn run(mut self) -> io::Result<()> {
        if let Err(error) = remora_port::ask_for_time_slice(SLICE) {
            tracing::debug!(%error, "the attendant has the system's time slice");
        }
        // By default a probe takes 50 us more, in which a program may wait for the packet.
        if let Err(error) = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN)) {
            tracing::debug!(%error, "the attendant has the system's timer slack");
        }
        let mut events = Events::with_capacity(64);
        while !self.stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            let (mut wanted, mut serving) = (now.after(LONGEST.as_nanos() as u64), false);
            for charge in &mut self.charges {
                match charge.step(now, &self.clock) {
                    Some(at) => wanted = wanted.min(at),
                    None => serving = true,
                }
            }
            if serving {
                // A gap in which a caller can take the lock.
                std::hint::spin_loop();
                continue;
            }
            self.sleep(&mut events, wanted.since(now))?;
        }
        for charge in &self.charges {
            charge.engine.attended.store(false, Ordering::Release);
            charge.engine.end_watch();
        }
        Ok(())
    }

    fn sleep(&mut self, events: &mut Events, ns: u64) -> io::Result<()> {
        // epoll_wait counts whole milliseconds, and rounds down to "at once".
        let sleep = Duration::from_millis(ns.div_ceil(1_000_000).max(1));
        match self.poll.poll(events, Some(sleep)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = self.clock.now();
        if now >= self.handlers_due {
            // The program may have installed a handler since. Not at each wake: it is two system calls.
            page_fault::reinstall();
            self.handlers_due = now.after(TICK.as_nanos() as u64);
        }
        for charge in &mut self.charges {
            let stats = &charge.engine.stats;
            if events.is_empty() {
                stats.timer_wakes.fetch_add(1, Ordering::Relaxed);
            }
            if events.iter().any(|event| event.token() == WAKER) {
                stats.calls.fetch_add(1, Ordering::Relaxed);
                charge.called(now);
            }
        }
        for event in events.iter().filter(|event| event.token() != WAKER) {
            if let Some(charge) = self.charges.get_mut(event.token().0) {
                charge.engine.stats.packet_wakes.fetch_add(1, Ordering::Relaxed);
                charge.woken(now);
            }
        }
        Ok(())
    }
}

impl Charge {
    /// Does the work that is due. Returns the time of the next look; None: at once.
    fn step(&mut self, now: Instant, clock: &Clock) -> Option<Instant> {
        if self.engine.awaited.load(Ordering::SeqCst) {
            return self.stand_by(now);
        }
        match self.state {
            State::Polled { heartbeat, since } => {
                let tick = TICK.as_nanos() as u64;
                let seen = self.engine.heartbeat();
                if seen != heartbeat {
                    self.state = State::Polled { heartbeat: seen, since: now };
                    return Some(now.after(tick));
                }
                if now < since.after(tick) {
                    return Some(since.after(tick));
                }
                self.watch(now, tick)
            }
            State::Watched { until, .. } if now < until => Some(until),
            State::Watched { .. } if self.spinner.is_some_and(|spinner| spinner.is_forgotten(now)) => {
                self.engine.end_watch();
                self.leave(now)
            }
            State::Watched { sleep, .. } => self.watch(now, (sleep * 2).min(LONGEST.as_nanos() as u64)),
            State::Served { heartbeat, busy, turn } => self.serve(now, clock, heartbeat, busy, turn),
            State::Woken => self.watch(now, TICK.as_nanos() as u64),
            State::Awaited { .. } => {
                self.engine.stands_by.store(false, Ordering::SeqCst);
                self.leave(now)
            }
        }
    }

    /// Begins (or renews) the watch, for at most `sleep` nanoseconds. Beside a program that spins on memory,
    /// a caller that is inside takes what has come when it leaves.
    fn watch(&mut self, now: Instant, sleep: u64) -> Option<Instant> {
        let stays = self.spinner.is_some();
        let (begun, until) = match self.engine.rest(stays) {
            Some((begun, deadline)) => (begun, now.after(sleep).min(deadline)),
            None if !stays => return self.leave(now),
            None if self.engine.leave_to_caller() => (Begun::Watching, now.after(sleep)),
            None => (Begun::Work, now),
        };
        let heartbeat = self.engine.heartbeat();
        match begun {
            Begun::Work if stays => {
                self.state = State::Woken;
                None
            }
            Begun::Work => {
                self.found |= matches!(self.state, State::Polled { .. });
                self.engine.attended.store(true, Ordering::Release);
                self.state = State::Served { heartbeat, busy: now, turn: 0 };
                None
            }
            Begun::Watching => {
                self.state = State::Watched { until, sleep, heartbeat };
                Some(until)
            }
            Begun::Refused => self.leave(now),
        }
    }

    /// The port woke the attendant. If a caller polls meanwhile, the engine is left to it.
    fn woken(&mut self, now: Instant) {
        let State::Watched { heartbeat, .. } = self.state else { return };
        if let Some(spinner) = &mut self.spinner {
            if spinner.packet(now) && !spinner.probed(is_taken_during(PROBE, &self.engine)) {
                self.engine.end_watch();
                self.leave(now);
            } else {
                self.state = State::Woken;
            }
            return;
        }
        let seen = self.engine.heartbeat();
        self.engine.end_watch();
        if seen != heartbeat {
            self.visited(now);
            return;
        }
        self.engine.attended.store(true, Ordering::Release);
        self.state = State::Served { heartbeat: self.engine.heartbeat(), busy: now, turn: 0 };
    }

    /// A caller ended a watch or has taken enough of what was left to it, or the attendant is to stop.
    fn called(&mut self, now: Instant) {
        if !matches!(self.state, State::Watched { .. }) {
            return;
        }
        if self.spinner.is_some() {
            self.state = State::Woken;
        } else if self.engine.is_watched() != Some(true) {
            self.visited(now);
        }
    }

    fn serve(
        &mut self,
        now: Instant,
        clock: &Clock,
        heartbeat: u64,
        busy: Instant,
        turn: u32,
    ) -> Option<Instant> {
        let ours = self.engine.heartbeat() == heartbeat && self.engine.callers.load(Ordering::SeqCst) == 0;
        let (true, Some(worked)) = (ours, self.engine.visit(false)) else {
            return self.visited(now);
        };
        // A pass moves the heartbeat twice: when it begins and when it ends.
        let heartbeat = heartbeat.wrapping_add(2);
        let mut busy = busy;
        if worked {
            busy = now;
        } else if turn.is_multiple_of(LOOK_EVERY) && clock.now().since(busy) > SPIN.as_nanos() as u64 {
            self.engine.attended.store(false, Ordering::Release);
            return self.watch(now, TICK.as_nanos() as u64);
        }
        self.state = State::Served { heartbeat, busy, turn: turn.wrapping_add(1) };
        None
    }

    /// A caller has come. If frames lay there for a tick, it may spin on memory.
    fn visited(&mut self, now: Instant) -> Option<Instant> {
        if !self.found {
            return self.leave(now);
        }
        self.found = false;
        // It takes what is left to it.
        self.engine.attended.store(true, Ordering::Release);
        self.spinner = Some(Spinner::new(now));
        self.state = State::Woken;
        None
    }

    /// A caller waits for packets itself. The attendant runs timers, and takes what lay there for as long as
    /// it slept: that caller waits no more.
    fn stand_by(&mut self, now: Instant) -> Option<Instant> {
        let tick = TICK.as_nanos() as u64;
        let seen = self.engine.heartbeat();
        let (idle, sleep) = match self.state {
            State::Awaited { heartbeat, sleep } if heartbeat == seen => {
                (true, (sleep * 2).min(LONGEST.as_nanos() as u64))
            }
            State::Awaited { .. } => (false, tick),
            _ => {
                self.engine.end_watch();
                self.leave(now);
                (false, tick)
            }
        };
        let mut next = now.after(sleep);
        if let Some((worked, deadline)) = self.engine.stand_by() {
            if worked && idle {
                self.engine.awaited.store(false, Ordering::SeqCst);
            }
            next = next.min(deadline);
        }
        self.state = State::Awaited { heartbeat: self.engine.heartbeat(), sleep };
        self.engine.stands_by.store(sleep > tick, Ordering::SeqCst);
        Some(next)
    }

    /// Leaves the engine to its callers.
    fn leave(&mut self, now: Instant) -> Option<Instant> {
        self.engine.attended.store(false, Ordering::Release);
        (self.found, self.spinner) = (false, None);
        self.state = State::Polled { heartbeat: self.engine.heartbeat(), since: now };
        Some(now.after(TICK.as_nanos() as u64))
    }
}

/// Do callers take what has come while this thread sleeps?
fn is_taken_during(time: Duration, engine: &Engine) -> bool {
    let before = engine.heartbeat();
    std::thread::sleep(time);
    engine.heartbeat() != before && !matches!(engine.rest(true), Some((Begun::Work, _)))
}
