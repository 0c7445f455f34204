//! Connecting to replicas, each in a thread of its own: one that does not answer holds up nobody.

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
pub struct Link {
    /// It.
    pub pair: QueuePair<Ready>,
    /// Of it alone.
    pub cq: CompletionQueue,
}

/// What became of an attempt.
pub struct Attempt {
    /// The place among the addresses.
    pub at: usize,
    /// The replica that answered, or why none did.
    pub result: Result<(Link, Welcome)>,
}

/// Makes connections.
pub struct Connector {
    context: Context,
    domain: ProtectionDomain,
    needs: QueueNeeds,
    sender: Sender<Attempt>,
    attempts: Receiver<Attempt>,
}

/// Time that connecting may take.
const TIMEOUT: Duration = Duration::from_secs(3);

impl Connector {
    /// Of this NIC, for queue pairs that hold so much.
    pub fn new(context: Context, domain: ProtectionDomain, needs: QueueNeeds) -> Connector {
        let (sender, attempts) = channel();
        Connector { context, domain, needs, sender, attempts }
    }

    /// Begins to connect to a replica, after a while.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn begin(&self, at: usize, address: SocketAddr, hello: Hello, pause: Duration) -> Result<()> {
        let (context, domain, needs) = (self.context.clone(), self.domain.clone(), self.needs);
        let sender = self.sender.clone();
        let attempt = move || {
            thread::sleep(pause);
            let result = connect(&context, &domain, needs, address, hello)
                .with_context(|| format!("the replica at {address}"));
            // Who does not wait any more needs no connection.
            let _ = sender.send(Attempt { at, result });
        };
        thread::Builder::new().name("connect".into()).spawn(attempt).context("a thread to connect in")?;
        Ok(())
    }

    /// The next attempt that is over.
    pub fn next(&self) -> Option<Attempt> {
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
        private_data: hello.encode().to_vec(),
        max_rd_atomic: READS,
        max_dest_rd_atomic: READS,
        // A replica of ABDLOCK declines it, which is well.
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
