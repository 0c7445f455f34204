//! The attendant: a thread of an inline adapter that serves its engines while no caller polls them, so that
//! one-sided verbs reach a program that sleeps.
//!
//! | an engine is | the attendant | until |
//! |---|---|---|
//! | polled | checks its heartbeat every [`TICK`] | the heartbeat stood still for one tick |
//! | watched | sleeps on the port's descriptors and a timer that backs off | a packet, or a caller returns |
//! | served | makes pass after pass | [`SPIN`] without traffic, or a caller returns |
//! | awaited | stands by: a caller waits for packets itself | that caller has returned |
//!
//! A program may spin on memory until its peer has written there. It calls the engine a few times for each
//! message, but does not poll it. Once such a program is [noticed](spinner), its port stays watched in
//! addition to its calls: packets wake the attendant, which takes them and goes back to sleep at once. The
//! program may spin on the same core, where the scheduler gives the attendant half of the time at most.
//! Packets that arrive while a caller is inside the engine are left to that caller.
//!
//! A caller never waits for the attendant's sleep, because the engine's lock is free then. While a caller
//! polls, the port is not watched, so packets do not wake the attendant (which would take half of a
//! two-core machine).

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

/// Time after which a heartbeat that has not moved means that no caller polls.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// Time without traffic after which the attendant sleeps: waking a core costs as much.
pub const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep. It bounds the delay after a missed wake of a port, and of a timer that was set meanwhile.
pub const LONGEST: Duration = Duration::from_millis(50);
/// Time slice of the attendant: it is so short that a program that spins on the same core is preempted when
/// a packet arrives.
const SLICE: Duration = Duration::from_micros(100);
/// Time for which a packet is left to a program, to find out whether the program polls.
const PROBE: Duration = Duration::from_micros(20);
/// Number of empty passes between two readings of the clock.
const LOOK_EVERY: u32 = 16;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Callers poll the engine: its heartbeat at the last check, and the time since when it has not moved.
    Polled { heartbeat: u64, since: Instant },
    /// The port is watched: the time of the next check, the length of the present sleep, and the heartbeat.
    Watched { until: Instant, sleep: u64, heartbeat: u64 },
    /// The attendant makes pass after pass: the heartbeat that results from them, and the time of the last
    /// traffic.
    Served { heartbeat: u64, busy: Instant, turn: u32 },
    /// A packet arrived for a program that spins on memory: the attendant takes it, and watches the port
    /// again.
    Woken,
    /// A caller waits for packets itself: the heartbeat at the last check, and the length of the present
    /// sleep.
    Awaited { heartbeat: u64, sleep: u64 },
}

struct Charge {
    engine: Arc<Engine>,
    state: State,
    /// True if frames had been waiting for a tick after the last caller left.
    had_waiting_frames: bool,
    /// State of a program that spins on memory, once it was noticed.
    spinner: Option<Spinner>,
}

/// The state of the attendant's thread.
pub(crate) struct Attendant {
    charges: Vec<Charge>,
    poll: Poll,
    clock: Clock,
    stop: Arc<AtomicBool>,
    /// Time of the next check that the page fault handlers are still installed.
    handlers_due: Instant,
}

impl Attendant {
    pub(crate) fn new(engines: &[Arc<Engine>], poll: Poll, clock: Clock, stop: Arc<AtomicBool>) -> Attendant {
        let now = clock.now();
        let charge = |engine: &Arc<Engine>| {
            let state = State::Polled { heartbeat: engine.heartbeat(), since: now };
            Charge { engine: Arc::clone(engine), state, had_waiting_frames: false, spinner: None }
        };
        Attendant { charges: engines.iter().map(charge).collect(), poll, clock, stop, handlers_due: now }
    }

    /// Serves the engines until the thread is stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        if let Err(error) = remora_port::ask_for_time_slice(SLICE) {
            tracing::debug!(%error, "the attendant has the system's time slice");
        }
        // With the default timer slack a probe would take 50 µs longer, while the program may be waiting
        // for the packet.
        if let Err(error) = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN)) {
            tracing::debug!(%error, "the attendant has the system's timer slack");
        }
        let mut events = Events::with_capacity(64);
        while !self.stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            let mut wanted = now.after(LONGEST.as_nanos() as u64);
            let mut serving = false;
            for charge in &mut self.charges {
                match charge.step(now, &self.clock) {
                    Some(time) => wanted = wanted.min(time),
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
        // epoll_wait counts whole milliseconds; 0 would mean not to sleep at all.
        let sleep = Duration::from_millis(ns.div_ceil(1_000_000).max(1));
        match self.poll.poll(events, Some(sleep)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = self.clock.now();
        if now >= self.handlers_due {
            // The program may have installed a handler since. This is not checked at each wake, because it
            // takes two system calls.
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
    /// Does the work that is due. Returns the time of the next check; `None` if there is more work at once.
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

    /// Begins (or renews) the watch for at most `sleep` nanoseconds. If the program spins on memory and a
    /// caller is inside, that caller takes the waiting packets when it leaves.
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
                self.had_waiting_frames |= matches!(self.state, State::Polled { .. });
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

    /// Handles a wake by the port. If a caller has polled meanwhile, the engine is left to it.
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

    /// Handles a wake by a call: a caller ended a watch or has taken enough of what was left to it, or the
    /// attendant must stop.
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

    /// Handles the return of a caller. If frames had been waiting for a tick, the program may spin on
    /// memory.
    fn visited(&mut self, now: Instant) -> Option<Instant> {
        if !self.had_waiting_frames {
            return self.leave(now);
        }
        self.had_waiting_frames = false;
        // From now on callers take what the attendant leaves to them.
        self.engine.attended.store(true, Ordering::Release);
        self.spinner = Some(Spinner::new(now));
        self.state = State::Woken;
        None
    }

    /// Serves an engine whose caller waits for packets itself. The attendant runs timers, and takes frames
    /// that have waited during its whole sleep: the caller does not wait any more then.
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
        (self.had_waiting_frames, self.spinner) = (false, None);
        self.state = State::Polled { heartbeat: self.engine.heartbeat(), since: now };
        Some(now.after(TICK.as_nanos() as u64))
    }
}

/// Returns whether callers take the waiting frames while this thread sleeps for `time`.
fn is_taken_during(time: Duration, engine: &Engine) -> bool {
    let before = engine.heartbeat();
    std::thread::sleep(time);
    engine.heartbeat() != before && !matches!(engine.rest(true), Some((Begun::Work, _)))
}
