//! The thread of a dedicated engine: takes doorbells, makes passes, and sleeps when nothing has happened
//! for a while.

use mio::{Events, Poll};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::attendant::LONGEST;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::watch::{Begun, WAKER};

/// Number of empty passes between two readings of the clock.
const LOOK_EVERY: u32 = 64;
/// Length of the first sleep after traffic; each further sleep is twice as long.
const SHORTEST: Duration = Duration::from_millis(1);

/// Drives `engine` until it is stopped. The engine sleeps after `spin` without traffic.
pub(crate) fn run(
    engine: &Engine,
    mut poll: Poll,
    clock: &Clock,
    stop: &Arc<AtomicBool>,
    spin: Duration,
) -> io::Result<()> {
    let mut events = Events::with_capacity(16);
    let mut sleep = SHORTEST;
    while !stop.load(Ordering::Acquire) {
        if spin_while_busy(engine, clock, stop, spin) {
            sleep = SHORTEST;
        }
        // From here on a ring of a doorbell wakes this thread; earlier rings are seen by the check below.
        engine.asleep.store(true, Ordering::SeqCst);
        let rest = if engine.doorbells.any() { None } else { engine.rest(false) };
        if let Some((begun @ (Begun::Watching | Begun::Refused), deadline)) = rest {
            let wait_ns = deadline.since(clock.now()).min(sleep.as_nanos() as u64);
            if begun == Begun::Watching {
                sleep = (sleep * 2).min(LONGEST);
            }
            if !stop.load(Ordering::Acquire) {
                // The sleep has whole milliseconds; a closer deadline is awaited by one short sleep.
                doze(
                    engine,
                    &mut poll,
                    &mut events,
                    Duration::from_millis(wait_ns.div_ceil(1_000_000).max(1)),
                )?;
            }
        }
        engine.asleep.store(false, Ordering::SeqCst);
        engine.end_watch();
        // This pass runs timers that became due during the sleep.
        engine.visit(true);
    }
    Ok(())
}

/// Makes passes until there was no traffic for `spin`. Returns whether there was any.
fn spin_while_busy(engine: &Engine, clock: &Clock, stop: &AtomicBool, spin: Duration) -> bool {
    let mut busy = clock.now();
    let mut traffic = false;
    let mut turn = 0u32;
    while !stop.load(Ordering::Relaxed) {
        turn = turn.wrapping_add(1);
        if engine.serve() {
            traffic = true;
            turn = 0;
        } else if turn.is_multiple_of(LOOK_EVERY) {
            let now = clock.now();
            if turn == LOOK_EVERY {
                busy = now;
            } else if now.since(busy) > spin.as_nanos() as u64 {
                break;
            }
        }
    }
    traffic
}

fn doze(engine: &Engine, poll: &mut Poll, events: &mut Events, time: Duration) -> io::Result<()> {
    match poll.poll(events, Some(time)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    let stats = &engine.stats;
    if events.is_empty() {
        stats.timer_wakes.fetch_add(1, Ordering::Relaxed);
    }
    for event in events.iter() {
        let counter = if event.token() == WAKER { &stats.calls } else { &stats.packet_wakes };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
