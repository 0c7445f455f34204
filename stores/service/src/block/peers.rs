//! The other replicas, as one of them sees them: it asks all of them at once, each over a connection that
//! ends with the answer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remora_store::QueueNeeds;
use remora_store::block::{Design, Hello, Layout, Purpose, State};
use remora_verbs::{Context, ProtectionDomain};

use super::connector::Connector;
use super::replica::Shared;
use super::servers::Servers;
use crate::error::{Result, ensure};

/// What a queue pair holds that nothing is sent on.
const NOTHING: QueueNeeds = QueueNeeds { send: 1, receive: 1, sges: 1, completions: 1 };
/// Time between two looks at the numbers that are left.
const LOOK: Duration = Duration::from_millis(50);
/// The same, after an error.
const AGAIN: Duration = Duration::from_secs(5);

/// The others.
pub struct Peers {
    connector: Connector,
    servers: Servers,
    own: usize,
    /// What they must be like.
    design: Design,
    layout: Layout,
    /// Questions that are not answered yet.
    open: usize,
    answers: Vec<State>,
    faults: Vec<String>,
}

impl Peers {
    /// Of the replica at place `own`.
    pub fn new(
        context: Context,
        domain: ProtectionDomain,
        servers: Servers,
        own: usize,
        design: Design,
        layout: Layout,
    ) -> Peers {
        let connector = Connector::new(context, domain, NOTHING);
        Peers { connector, servers, own, design, layout, open: 0, answers: Vec::new(), faults: Vec::new() }
    }

    /// How many replicas there are, with this one.
    pub fn replicas(&self) -> usize {
        self.servers.addresses().len()
    }

    /// Asks all others.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn begin(&mut self, purpose: Purpose) -> Result<()> {
        self.servers.changed()?;
        self.answers.clear();
        self.faults.clear();
        let hello = Hello { replicas: self.replicas(), purpose };
        for at in (0..self.replicas()).filter(|at| *at != self.own) {
            self.connector.begin(at, self.servers.addresses()[at], hello, Duration::ZERO)?;
            self.open += 1;
        }
        Ok(())
    }

    /// Has everybody answered, or failed to?
    ///
    /// # Errors
    /// Somebody is there who is no replica of this store.
    pub fn poll(&mut self) -> Result<bool> {
        while let Some(attempt) = self.connector.next() {
            self.open -= 1;
            match attempt.result {
                Err(error) => self.faults.push(error.chain()),
                Ok((_, welcome)) => {
                    let address = self.servers.addresses()[attempt.at];
                    ensure!(
                        welcome.state.replica == attempt.at,
                        Config,
                        "the replica at {address} is number {} and not {}: name all replicas in the same order everywhere",
                        welcome.state.replica,
                        attempt.at
                    );
                    let same = welcome.grant.design == self.design && welcome.grant.layout == self.layout;
                    ensure!(same, Peer, "the replica at {address} has another design or other blocks");
                    self.answers.push(welcome.state);
                }
            }
        }
        Ok(self.open == 0)
    }

    /// Asks all others, and waits for what they say.
    ///
    /// # Errors
    /// As [`Peers::poll`].
    pub fn ask(&mut self, purpose: Purpose) -> Result<&[State]> {
        self.begin(purpose)?;
        while !self.poll()? {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(&self.answers)
    }

    /// What was answered last.
    pub fn answers(&self) -> &[State] {
        &self.answers
    }

    /// Why somebody did not answer.
    pub fn fault(&self) -> &str {
        self.faults.first().map_or("nothing came back", String::as_str)
    }

    /// Where those are that have not answered.
    pub fn missing(&self) -> Vec<SocketAddr> {
        let all = self.servers.addresses().iter().copied().enumerate();
        let answered = |at: usize| self.answers.iter().any(|answer| answer.replica == at);
        all.filter(|(at, _)| *at != self.own && !answered(*at)).map(|(_, address)| address).collect()
    }

    /// Tells the others how far this replica goes with its numbers, if it is time; it may when f know.
    ///
    /// # Errors
    /// As [`Peers::poll`].
    pub fn move_mark(&mut self, membership: &Shared) -> Result<()> {
        let (wanted, state) = {
            let membership = membership.lock();
            (membership.wanted_mark(), membership.state())
        };
        let Some(mark) = wanted else { return Ok(()) };
        let purpose = Purpose::Mark { replica: self.own, incarnation: state.incarnation(), mark };
        if self.ask(purpose)?.len() >= self.replicas() / 2 {
            membership.lock().mark(mark);
        }
        Ok(())
    }

    /// Does so until it is over.
    pub fn keep_marks(mut self, membership: &Shared, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let mut pause = LOOK;
            if let Err(error) = self.move_mark(membership) {
                tracing::warn!("no more numbers for writers: {}", error.chain());
                pause = AGAIN;
            }
            let began = Instant::now();
            while began.elapsed() < pause && !over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
        }
    }
}
