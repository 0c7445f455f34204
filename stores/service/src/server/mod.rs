//! The event loop of servers whose clients connect queue pairs: one thread that polls for all clients,
//! accepts new ones, and detects departed ones.

mod admission;
mod adopt;
mod heap;
mod joining;
mod lists;
mod probe;
mod program;
mod service;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remora_verbs::{CompletionQueue, Context, CqOptions, EMPTY, Listener, Notify, Status, WorkCompletion};

use crate::Result;
use crate::post::{Batched, Direct};
use joining::Admission;
use probe::{PROBE, probe};
use service::{Client, Life};

#[cfg(test)]
pub(crate) use tests::StopOnDrop;

pub use admission::READS;
pub use adopt::Left;
pub use heap::{BufferTable, HeapServer, Sizes, shared};
pub use lists::Posted;
pub use program::{Memory, Program};
pub use service::{Extensions, Service};

/// Time between two checks for departed clients.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Maximum time for which other clients wait for a silent one.
const PATIENCE: Duration = Duration::from_secs(5);

/// The behaviour of a server's loop.
#[derive(Copy, Clone, Debug, Default)]
pub struct Pace {
    /// True to poll without ever sleeping.
    pub spin: bool,
    /// True to end when the parent process does.
    pub child: bool,
}

/// The state of a server's loop between turns.
pub struct Watch {
    done: [WorkCompletion; 64],
    polls: u32,
    busy: Instant,
    probed: Instant,
    /// True if the program has more work that should not wait.
    more: bool,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { done: [EMPTY; 64], polls: 0, busy: Instant::now(), probed: Instant::now(), more: false }
    }
}

/// Time without work after which the server sleeps.
const SPIN: Duration = Duration::from_millis(1);
/// Number of polls between two checks for new clients while there is work.
const LOOK_EVERY: u32 = 4096;

impl<P: Program> Service<P> {
    /// Returns a service of a program with its memory, for at most `clients` clients.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn new(
        context: Context,
        program: P,
        memory: Memory,
        clients: u32,
        extensions: Extensions,
    ) -> Result<Service<P>> {
        Service::over(context, program, memory, None, clients, extensions)
    }

    /// Returns a service that continues with the completion queue of a previous server, if `queue` is given.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn over(
        context: Context,
        program: P,
        memory: Memory,
        queue: Option<CompletionQueue>,
        clients: u32,
        extensions: Extensions,
    ) -> Result<Service<P>> {
        let channel = context.create_channel()?;
        // The queue also has space for one probe of each client.
        let depth = (program.needs().completions + 1) * clients;
        let cq = match queue {
            Some(queue) => queue,
            None => context.create_cq_with(&CqOptions { depth, ..CqOptions::default() })?,
        };
        cq.set_channel(&channel)?;
        let admission = Admission::new()?;
        Ok(Service { program, context, cq, channel, clients: Vec::new(), admission, extensions, memory })
    }

    /// Serves clients until `stop` is true.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn work(&mut self, pace: Pace, listener: &Listener, stop: &AtomicBool) -> Result<()> {
        let mut watch = Watch::default();
        let parent = rustix::process::getppid();
        while !stop.load(Ordering::Relaxed) {
            let looked = self.turn(&mut watch, pace, listener)?;
            if looked && pace.child && rustix::process::getppid() != parent {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Polls once, and occasionally also does the work besides answering, in which case it returns true.
    /// Unless `pace` says to spin, the loop then sleeps while there is no work.
    ///
    /// # Errors
    /// The NIC failed.
    #[inline]
    pub fn turn(&mut self, watch: &mut Watch, pace: Pace, listener: &Listener) -> Result<bool> {
        let got = self.cq.poll(&mut watch.done)?;
        self.handle(&watch.done[..got]);
        watch.polls = watch.polls.wrapping_add(1);
        let looks = watch.polls.is_multiple_of(LOOK_EVERY);
        if watch.more {
            watch.more = self.program.tidy();
        }
        if got > 0 && !looks {
            watch.busy = Instant::now();
            return Ok(false);
        }
        if !looks && (pace.spin || watch.busy.elapsed() <= SPIN) {
            return Ok(false);
        }
        self.admit(listener)?;
        watch.more = self.tidy();
        if watch.probed.elapsed() > PROBE_EVERY {
            watch.probed = Instant::now();
            self.probe();
        }
        if !pace.spin && !watch.more && watch.busy.elapsed() > SPIN {
            self.sleep(listener)?;
        }
        Ok(true)
    }

    /// Sleeps until a completion arrives, or a client arrives or leaves, for a limited time.
    fn sleep(&mut self, listener: &Listener) -> Result<()> {
        self.cq.arm(Notify::Any)?;
        let mut done = [EMPTY; 64];
        let got = self.cq.poll(&mut done)?;
        if got == 0 {
            let mut waited = self.admission.descriptors(listener);
            waited.push(self.channel.as_fd());
            remora_host::wait_any(&waited, Duration::from_millis(20))?;
            match self.channel.wait(Some(Duration::ZERO)) {
                Ok(_) | Err(remora_verbs::PollError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.handle(&done[..got]);
        Ok(())
    }

    /// Processes completions. Consecutive completions of one client are answered with one doorbell.
    #[inline]
    fn handle(&mut self, done: &[WorkCompletion]) {
        for run in done.chunk_by(|one, next| one.qp_num == next.qp_num) {
            let position = self.clients.iter().position(|client| client.pair.number() == run[0].qp_num);
            let Some(index) = position else { continue };
            if let Err(why) = self.answer_run(index, run) {
                tracing::info!(qp = run[0].qp_num, why, "a client is gone");
                self.end(index);
            }
        }
    }

    /// Disconnects a client.
    fn end(&mut self, index: usize) {
        let Client { pair, connection, .. } = self.clients.swap_remove(index);
        self.admission.forget(&pair);
        // The queue pair is destroyed first, so that the dead client's NIC has no more access.
        drop(pair);
        self.program.disconnect(connection);
    }

    /// Performs the program's work besides answering, and sends its messages. Returns true if there is more
    /// to do at once.
    fn tidy(&mut self) -> bool {
        let more = self.program.tidy();
        for Client { pair, connection, .. } in &mut self.clients {
            // A failure is also reported by a completion.
            if let Err(broken) = self.program.tell(*connection, &mut Direct(pair)) {
                tracing::debug!(%broken, "a client was not told");
            }
        }
        self.end_late();
        more
    }

    /// Disconnects clients for which others have waited too long: the client's NIC answers, but its program
    /// does not. Also disconnects clients that the program wants ended.
    fn end_late(&mut self) {
        self.admission.end_over(&self.program);
        for index in (0..self.clients.len()).rev() {
            let client = &mut self.clients[index];
            if self.program.is_over(client.connection) {
                tracing::info!(qp = client.pair.number(), "another server wants a client ended");
                self.end(index);
                continue;
            }
            client.late = match self.program.is_late(client.connection) {
                true => client.late.or_else(|| Some(Instant::now())),
                false => None,
            };
            if client.late.is_some_and(|since| since.elapsed() > PATIENCE) {
                tracing::info!(qp = client.pair.number(), "a client does not answer, and is ended");
                self.end(index);
            }
        }
    }

    #[inline]
    fn answer_run(&mut self, index: usize, run: &[WorkCompletion]) -> Result<(), String> {
        let Client { pair, connection, life, .. } = &mut self.clients[index];
        *life = Life::Seen;
        let mut batch = pair.batch().map_err(|error| error.to_string())?;
        for completion in run {
            if completion.id == PROBE && completion.status == Status::Success {
                continue;
            }
            self.program
                .handle(*connection, completion, &mut Batched(&mut batch))
                .map_err(|broken| broken.to_string())?;
        }
        batch.ring();
        Ok(())
    }

    /// Probes the NICs of quiet clients. A client that is gone fails with exhausted retries, and the error
    /// frees its place.
    fn probe(&mut self) {
        for client in &mut self.clients {
            client.life = match client.life {
                Life::Seen => Life::Quiet,
                Life::Asked => Life::Asked,
                // If the send queue is full now, the client is probed the next time.
                Life::Quiet => client.pair.post_send(&probe()).map_or(Life::Quiet, |()| Life::Asked),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicBool, Ordering};

    /// Stops a server's thread, even if its test panics.
    pub(crate) struct StopOnDrop<'a>(pub &'a AtomicBool);

    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
