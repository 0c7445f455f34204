//! The other replicas, as one replica sees them. It asks all of them concurrently, each over a connection
//! that is closed after the answer.

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

/// The sizes of a queue pair on which nothing is sent.
const NOTHING: QueueNeeds = QueueNeeds { send: 1, receive: 1, sges: 1, completions: 1 };
/// Time between two checks of the remaining client numbers.
const LOOK: Duration = Duration::from_millis(50);
/// Time until the next check after an error.
const AGAIN: Duration = Duration::from_secs(5);

/// The other replicas of a store.
pub struct Peers {
    connector: Connector,
    servers: Servers,
    own: usize,
    /// The design and layout that the other replicas must have.
    design: Design,
    layout: Layout,
    /// Number of replicas that have not answered.
    open: usize,
    answers: Vec<State>,
    faults: Vec<String>,
}

impl Peers {
    /// Returns the peers of the replica at place `own`.
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

    /// Returns the number of replicas, including this one.
    pub fn replicas(&self) -> usize {
        self.servers.addresses().len()
    }

    /// Starts to ask all other replicas.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn begin(&mut self, purpose: Purpose) -> Result<()> {
        self.servers.changed()?;
        self.answers.clear();
        self.faults.clear();
        let hello = Hello { replicas: self.replicas(), purpose };
        for index in (0..self.replicas()).filter(|index| *index != self.own) {
            self.connector.begin(index, self.servers.addresses()[index], hello, Duration::ZERO)?;
            self.open += 1;
        }
        Ok(())
    }

    /// Returns true if every replica has answered or failed to.
    ///
    /// # Errors
    /// A peer is not a replica of this store.
    pub fn poll(&mut self) -> Result<bool> {
        while let Some(attempt) = self.connector.next() {
            self.open -= 1;
            match attempt.result {
                Err(error) => self.faults.push(error.chain()),
                Ok((_, welcome)) => {
                    let address = self.servers.addresses()[attempt.index];
                    ensure!(
                        welcome.state.replica == attempt.index,
                        Config,
                        "the replica at {address} is number {} and not {}: name all replicas in the same order everywhere",
                        welcome.state.replica,
                        attempt.index
                    );
                    let same = welcome.grant.design == self.design && welcome.grant.layout == self.layout;
                    ensure!(same, Peer, "the replica at {address} has another design or other blocks");
                    self.answers.push(welcome.state);
                }
            }
        }
        Ok(self.open == 0)
    }

    /// Asks all other replicas, and waits for their answers.
    ///
    /// # Errors
    /// The errors of [`Peers::poll`].
    pub fn ask(&mut self, purpose: Purpose) -> Result<&[State]> {
        self.begin(purpose)?;
        while !self.poll()? {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(&self.answers)
    }

    /// Returns the answers of the last round.
    pub fn answers(&self) -> &[State] {
        &self.answers
    }

    /// Returns the failure of a replica that did not answer.
    pub fn fault(&self) -> &str {
        self.faults.first().map_or("nothing came back", String::as_str)
    }

    /// Returns the addresses of the replicas that have not answered.
    pub fn missing(&self) -> Vec<SocketAddr> {
        let all = self.servers.addresses().iter().copied().enumerate();
        let answered = |index: usize| self.answers.iter().any(|answer| answer.replica == index);
        all.filter(|(index, _)| *index != self.own && !answered(*index)).map(|(_, address)| address).collect()
    }

    /// Moves the mark of this replica's client numbers if it is time, after f other replicas have
    /// acknowledged it.
    ///
    /// # Errors
    /// The errors of [`Peers::poll`].
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

    /// Moves marks whenever it is time, until `over` is true.
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
