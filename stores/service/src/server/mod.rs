//! What servers whose clients connect queue pairs have in common: one thread that polls for them all, takes
//! new clients on, and finds out which are gone.

mod admission;
mod adopt;
mod heap;
mod lists;
mod program;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remora_verbs::{
    CompletionChannel, CompletionQueue, Context, CqOptions, EMPTY, Listener, Notify, QueuePair, Ready,
    Status, WorkCompletion,
};

use crate::Result;
use crate::post::{Batched, Direct};
use admission::Admission;
use adopt::probe;

#[cfg(test)]
pub(crate) use tests::StopOnDrop;

pub use adopt::Left;
pub use heap::{BufferTable, HeapServer, Sizes, shared};
pub use lists::Posted;
pub use program::{Memory, Program};

/// READs that a connection may have outstanding: a full window of two-READ lookups.
pub const READS: u8 = 128;

/// What queue pairs speak beside the verbs.
#[derive(Copy, Clone, Debug, Default)]
pub struct Extensions {
    /// PRISM's operations.
    pub prism: bool,
    /// StRoM's requests to kernels.
    pub strom: bool,
    /// IRN in place of go-back-N.
    pub irn: bool,
}

/// A client as the server knows it.
struct Client<C> {
    pair: QueuePair<Ready>,
    connection: C,
    life: Life,
    /// Since when others wait for it.
    late: Option<Instant>,
}

/// What is known of a client's being there. The end of its connection tells of most that leave or die; else,
/// as where a machine fails, its NIC must be asked.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Life {
    /// Something came from it lately.
    Seen,
    /// Nothing came for a while.
    Quiet,
    /// It was asked.
    Asked,
}

/// Id of the empty WRITE that asks a client's NIC for an acknowledgement; no store's id begins with 15.
const PROBE: u64 = 15 << 44;
/// Time between two looks for clients that are gone.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// How long others wait for a client that says nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// How hard a server works.
#[derive(Copy, Clone, Debug, Default)]
pub struct Pace {
    /// It polls without ever sleeping.
    pub spin: bool,
    /// It ends when its parent process does.
    pub child: bool,
}

/// What a server's loop remembers from turn to turn.
pub struct Watch {
    done: [WorkCompletion; 64],
    polls: u32,
    busy: Instant,
    probed: Instant,
    /// The program has more to do that should not wait.
    more: bool,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { done: [EMPTY; 64], polls: 0, busy: Instant::now(), probed: Instant::now(), more: false }
    }
}

/// A program, and its clients.
pub struct Service<P: Program> {
    /// It.
    pub program: P,
    /// Its NIC.
    pub context: Context,
    cq: CompletionQueue,
    channel: CompletionChannel,
    clients: Vec<Client<P::Connection>>,
    admission: Admission<P::Connection>,
    extensions: Extensions,
    /// Lives as long as the program.
    memory: Memory,
}

/// Time without work after which the server sleeps.
const SPIN: Duration = Duration::from_millis(1);
/// Polls between two looks for new clients while there is work.
const LOOK_EVERY: u32 = 4096;

impl<P: Program> Service<P> {
    /// A program with its memory, for so many clients.
    ///
    /// # Errors
    /// The NIC's.
    pub fn new(
        context: Context,
        program: P,
        memory: Memory,
        clients: u32,
        extensions: Extensions,
    ) -> Result<Service<P>> {
        Service::over(context, program, memory, None, clients, extensions)
    }

    /// One that goes on with the completions of the server before it.
    ///
    /// # Errors
    /// The NIC's.
    pub fn over(
        context: Context,
        program: P,
        memory: Memory,
        queue: Option<CompletionQueue>,
        clients: u32,
        extensions: Extensions,
    ) -> Result<Service<P>> {
        let channel = context.create_channel()?;
        // And one for the probe of each client.
        let depth = (program.needs().completions + 1) * clients;
        let cq = match queue {
            Some(queue) => queue,
            None => context.create_cq_with(&CqOptions { depth, ..CqOptions::default() })?,
        };
        cq.set_channel(&channel)?;
        let admission = Admission::new()?;
        Ok(Service { program, context, cq, channel, clients: Vec::new(), admission, extensions, memory })
    }

    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// The NIC's.
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

    /// One poll; now and then, and it says so, also what there is to do beside answers. Who does not spin
    /// sleeps then.
    ///
    /// # Errors
    /// The NIC's.
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

    /// Sleeps until a completion comes, or somebody comes or leaves; no longer than a while.
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

    /// Handles completions; those of one client that follow each other are answered together.
    #[inline]
    fn handle(&mut self, done: &[WorkCompletion]) {
        for run in done.chunk_by(|one, next| one.qp_num == next.qp_num) {
            let found = self.clients.iter().position(|client| client.pair.number() == run[0].qp_num);
            let Some(at) = found else { continue };
            if let Err(why) = self.answer_run(at, run) {
                tracing::info!(qp = run[0].qp_num, why, "a client is gone");
                self.end(at);
            }
        }
    }

    /// Ends a client.
    fn end(&mut self, at: usize) {
        let Client { pair, connection, .. } = self.clients.swap_remove(at);
        self.admission.forget(&pair);
        // What the dead client's NIC may still do ends first.
        drop(pair);
        self.program.disconnect(connection);
    }

    /// What there is to do beside answers, and to say; true if there is more to do at once.
    fn tidy(&mut self) -> bool {
        let more = self.program.tidy();
        for Client { pair, connection, .. } in &mut self.clients {
            // Of a failure its completion tells.
            if let Err(broken) = self.program.tell(*connection, &mut Direct(pair)) {
                tracing::debug!(%broken, "a client was not told");
            }
        }
        self.end_late();
        more
    }

    /// Ends clients for which others have waited long enough: it is there, its NIC answers, but its program
    /// does not. And those whose time is over.
    fn end_late(&mut self) {
        self.admission.end_over(&self.program);
        for at in (0..self.clients.len()).rev() {
            let client = &mut self.clients[at];
            if self.program.is_over(client.connection) {
                tracing::info!(qp = client.pair.number(), "another server wants a client ended");
                self.end(at);
                continue;
            }
            client.late = match self.program.is_late(client.connection) {
                true => client.late.or_else(|| Some(Instant::now())),
                false => None,
            };
            if client.late.is_some_and(|since| since.elapsed() > PATIENCE) {
                tracing::info!(qp = client.pair.number(), "a client does not answer, and is ended");
                self.end(at);
            }
        }
    }

    #[inline]
    fn answer_run(&mut self, at: usize, run: &[WorkCompletion]) -> Result<(), String> {
        let Client { pair, connection, life, .. } = &mut self.clients[at];
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

    /// Asks the NICs of quiet clients whether they are there. Of those that are not, the retries run out, and
    /// the error frees their places.
    fn probe(&mut self) {
        for client in &mut self.clients {
            client.life = match client.life {
                Life::Seen => Life::Quiet,
                Life::Asked => Life::Asked,
                // The queue is full now: asked next time.
                Life::Quiet => client.pair.post_send(&probe()).map_or(Life::Quiet, |()| Life::Asked),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicBool, Ordering};

    /// Stops a server's thread, also where its test panics.
    pub struct StopOnDrop<'a>(pub &'a AtomicBool);

    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
