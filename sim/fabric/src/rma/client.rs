//! A program with the command executor, for transfers of any length.

use remora_nic::rma::Completion;
use remora_transport::Instant;
use remora_transport::rma::executor::{CongestionSettings, Executor, OnFailure, Transfer, TransferEnd};
use remora_wire::rma::{Class, Kind};

use super::path::{MakeCipher, Nodes, Path, Wanted};

/// A read transfer.
#[derive(Copy, Clone, Debug)]
pub(super) struct Read {
    pub id: u64,
    pub server: usize,
    pub class: Class,
    pub size: u64,
}

/// A command that has ended.
#[derive(Copy, Clone, Debug)]
pub(super) struct Ended {
    pub server: usize,
    pub completion: Completion,
    /// End of the transfer, if this was its last command.
    pub transfer: Option<TransferEnd>,
}

/// The client program. It takes no simulated time: it reacts in the instant in which a command ends.
pub(super) struct Client {
    pub nodes: Nodes,
    pub executor: Executor,
    reads: Vec<Option<Read>>,
    /// For each slot: server of the command in it.
    issued: Vec<Option<usize>>,
}

impl Client {
    pub(crate) fn new(
        path: &Path,
        slots: u16,
        congestion: &CongestionSettings,
        make: MakeCipher<'_>,
    ) -> Client {
        let transfers = 256;
        Client {
            nodes: Nodes::new(path, slots, make),
            executor: Executor::new(slots, transfers, congestion),
            reads: vec![None; transfers as usize],
            issued: vec![None; usize::from(slots)],
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.nodes.world.now()
    }

    /// Starts a read. Failed commands are retried without limit.
    pub(crate) fn submit(&mut self, read: Read) {
        let server = self.nodes.world.endpoint(read.server + 1).address;
        let transfer = Transfer {
            id: read.id,
            kind: Kind::Read,
            class: read.class,
            server,
            size: read.size,
            fence: false,
            on_failure: OnFailure::RetryUntil(Instant::NEVER),
        };
        let place = self.executor.submit(self.now(), transfer).expect("fewer transfers than places");
        self.reads[place as usize] = Some(read);
    }

    /// Issues all commands that the executor allows now.
    fn issue(&mut self) {
        let now = self.now();
        while let Some(chunk) = self.executor.next(now) {
            let Read { server, class, .. } = self.reads[chunk.place as usize].expect("a read in progress");
            let size = chunk.size;
            let offset = chunk.offset;
            self.nodes.issue(chunk.slot, &Wanted { server, kind: Kind::Read, class, size, offset });
            self.issued[usize::from(chunk.slot)] = Some(server);
        }
    }

    fn poll(&mut self) -> Option<Ended> {
        let completion = self.nodes.poll()?;
        let server = self.issued[usize::from(completion.slot)].take()?;
        let Completion { slot, status, issue_delay, total_delay, .. } = completion;
        let transfer = self.executor.completed(self.now(), slot, status, issue_delay, total_delay);
        Some(Ended { server, completion, transfer })
    }

    /// Advances the time until a command ends, or until `until` (returns `None`).
    pub(crate) fn advance(&mut self, until: Instant) -> Option<Ended> {
        loop {
            if let Some(ended) = self.poll() {
                return Some(ended);
            }
            self.issue();
            let now = self.now();
            let due = self.executor.deadline();
            let limit = if due > now { until.min(due) } else { until };
            if !self.nodes.world.step_until(limit) && self.now() >= until {
                return None;
            }
        }
    }
}
