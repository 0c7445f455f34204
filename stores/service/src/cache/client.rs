//! A client of the cache's chains. It asks the server's NIC, and uses memcached's protocol for all other
//! requests.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use remora_store::cache::{ANSWER, Directory, Item};
use remora_transport::Instant;
use remora_verbs::{
    Access, Call, CompletionKind, CompletionQueue, Context, EMPTY, Flags, MemoryRegion, QpOptions, QueuePair,
    ReceiveRequest, Status, WorkRequest, work,
};

use super::chains::PROGRAM;
use super::memcached::Memcached;
use crate::error::{Context as _, Result, ensure, need};

/// Maximum time for a chain to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which the client polls without sleeping, and the time between two polls after that.
const SPIN: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(200);

/// The answer of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainAnswer {
    /// The value of the key.
    Value(Vec<u8>),
    /// The chain found no value that fits; the server may have one.
    Nothing,
}

/// A client with a chain of its own.
pub struct Client {
    pair: QueuePair,
    cq: CompletionQueue,
    reply: MemoryRegion,
    directory: Directory,
    tcp: SocketAddr,
    memcached: Option<Memcached>,
    _context: Context,
}

impl Client {
    /// Connects to a server's address for chains, `host:port`.
    ///
    /// # Errors
    /// `Connect`: no cache accepts clients there. `Peer`: another kind of server does.
    pub fn connect(context: Context, address: &str) -> Result<Client> {
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let reply = domain.allocate(ANSWER, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let call = Call { program: PROGRAM.to_owned(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = crate::connect::connect(&domain, &cq, &options, address)?;
        let parts = pair.peer_private_data().split_at_checked(Directory::LEN);
        let read = parts.and_then(|(directory, port)| {
            Some((Directory::from_bytes(directory)?, u16::from_le_bytes(port.try_into().ok()?)))
        });
        let (directory, port) = need!(read, Peer, "whoever answers is no cache");
        let mut tcp = need!(address.to_socket_addrs()?.next(), Config, "no address");
        tcp.set_port(port);
        Ok(Client { pair, cq, reply, directory, tcp, memcached: None, _context: context })
    }

    /// Returns the value of a key by asking the chain. Returns `None` if the chain found no value that fits;
    /// the server may have one.
    pub fn ask(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.begin(key)?;
        let started = Clock::now();
        loop {
            match self.look(key)? {
                Some(ChainAnswer::Value(value)) => return Ok(Some(value)),
                Some(ChainAnswer::Nothing) => return Ok(None),
                None => {}
            }
            let spent = started.elapsed();
            ensure!(
                spent < PATIENCE,
                Silent,
                "the chain has not answered for {} seconds",
                PATIENCE.as_secs()
            );
            match spent < SPIN {
                true => std::thread::yield_now(),
                false => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Sends a request to the chain. Only one request may be under way.
    pub fn begin(&mut self, key: &[u8]) -> Result<()> {
        let question = self.directory.ask(key);
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[] })?;
        let quiet = WorkRequest { flags: Flags::default(), ..work::send_inline(2, &question) };
        Ok(self.pair.post_send(&quiet)?)
    }

    /// Returns the chain's answer if it has arrived; see [`ask`](Client::ask).
    pub fn look(&mut self, key: &[u8]) -> Result<Option<ChainAnswer>> {
        let mut done = [EMPTY; 2];
        let came = self.cq.poll(&mut done)?;
        let mut answered = None;
        for completion in &done[..came] {
            let status = completion.status;
            ensure!(
                status == Status::Success,
                Silent,
                "the chain on the server's NIC has failed: {}",
                status.explain()
            );
            let is_answer = completion.kind == CompletionKind::ReceiveWriteImm;
            answered = is_answer.then_some(completion.byte_len).or(answered);
        }
        let Some(len) = answered else { return Ok(None) };
        let mut answer = vec![0; len as usize];
        self.reply.read(0, &mut answer)?;
        let item = Item::of(&answer, key, now()?);
        Ok(Some(item.map_or(ChainAnswer::Nothing, |item| ChainAnswer::Value(item.value.to_vec()))))
    }

    /// Returns the value of a key by memcached's protocol.
    pub fn fall_back(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let value = self.memcached()?.get(key);
        value.with_context(|| format!("asking the cache at {}", self.tcp))
    }

    /// Stores a value by memcached's protocol.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let stored = self.memcached()?.set(key, value);
        stored.with_context(|| format!("telling the cache at {}", self.tcp))
    }

    fn memcached(&mut self) -> Result<&mut Memcached> {
        let connected = match self.memcached.take() {
            Some(connected) => connected,
            None => Memcached::connect(self.tcp).with_context(|| format!("connecting to {}", self.tcp))?,
        };
        Ok(self.memcached.insert(connected))
    }
}

/// Returns the time since 1970, which the server's expiry times use.
fn now() -> Result<Instant> {
    let now =
        need!(SystemTime::now().duration_since(UNIX_EPOCH).ok(), Config, "the clock stands before 1970");
    Ok(Instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1)))
}
