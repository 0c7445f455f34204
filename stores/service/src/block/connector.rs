//! Connection attempts to replicas, each in its own thread, so that a replica that does not answer delays no
//! other.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use remora_store::QueueNeeds;
use remora_store::block::{Hello, Purpose, Welcome};
use remora_verbs::{CompletionQueue, Context, ProtectionDomain, QpOptions, QueuePair, Ready};

use crate::error::{Context as _, Result, ensure, need};
use crate::server::READS;

/// A connection to a replica.
pub(crate) struct Link {
    pub pair: QueuePair<Ready>,
    pub cq: CompletionQueue,
}

/// The result of a connection attempt.
pub(crate) struct Attempt {
    /// Index of the replica among the addresses.
    pub index: usize,
    /// The connection and the replica's answer, or the failure.
    pub result: Result<(Link, Welcome)>,
}

/// A connector, which makes connections in threads of their own.
pub(crate) struct Connector {
    context: Context,
    domain: ProtectionDomain,
    needs: QueueNeeds,
    sender: Sender<Attempt>,
    attempts: Receiver<Attempt>,
}

/// Maximum time of a connection attempt.
const TIMEOUT: Duration = Duration::from_secs(3);

impl Connector {
    /// Returns a connector for this NIC, whose queue pairs have the sizes `needs`.
    pub(crate) fn new(context: Context, domain: ProtectionDomain, needs: QueueNeeds) -> Connector {
        let (sender, attempts) = channel();
        Connector { context, domain, needs, sender, attempts }
    }

    /// Starts to connect to a replica after `pause`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn begin(
        &self,
        index: usize,
        address: SocketAddr,
        hello: Hello,
        pause: Duration,
    ) -> Result<()> {
        let context = self.context.clone();
        let domain = self.domain.clone();
        let needs = self.needs;
        let sender = self.sender.clone();
        let attempt = move || {
            thread::sleep(pause);
            let result = connect(&context, &domain, needs, address, hello)
                .with_context(|| format!("the replica at {address}"));
            // If the receiver is gone, nobody needs the connection.
            let _ = sender.send(Attempt { index, result });
        };
        thread::Builder::new().name("connect".into()).spawn(attempt).context("a thread to connect in")?;
        Ok(())
    }

    /// Returns the next attempt that has ended.
    pub(crate) fn next(&self) -> Option<Attempt> {
        self.attempts.try_recv().ok()
    }
}

fn connect(
    context: &Context,
    domain: &ProtectionDomain,
    needs: QueueNeeds,
    address: SocketAddr,
    hello: Hello,
) -> Result<(Link, Welcome)> {
    let cq = context.create_cq(needs.completions * 2)?;
    let options = QpOptions {
        max_send_wr: needs.send * 2,
        max_recv_wr: needs.receive,
        private_data: hello.encode(),
        max_rd_atomic: READS,
        max_dest_rd_atomic: READS,
        // A replica of ABDLOCK declines PRISM, which is correct.
        prism: true,
        connect_timeout: TIMEOUT,
        ..QpOptions::default()
    };
    let pair = crate::connect::connect(domain, &cq, &options, address)?;
    let welcome = Welcome::decode(pair.peer_private_data());
    let welcome = need!(welcome, Peer, "no replica of blocks answers there");
    let wants_number = hello.purpose == Purpose::Use { wants_number: true };
    ensure!(!wants_number || welcome.number.is_some(), Peer, "it gave no number to a writer");
    Ok((Link { pair, cq }, welcome))
}
