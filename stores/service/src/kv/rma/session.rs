//! A client over 1RMA: one machine over the connections to all its servers.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use remora_grants::{Credential, Pin};
use remora_store::kv::farm::Farm;
use remora_store::kv::{Client, ClientConfig, CommandSlots, Cursor, Replicas};
use remora_verbs::rma::{Rights, Rma, RmaOptions};
use remora_verbs::{Access, Context, PortKind, ProtectionDomain, Status};

use super::ARENA;
use super::frame::block;
use super::link::{Connected, ServerLink, connect};
use super::network::Network;
use super::server::INDEX_NAME;
use crate::kv::listing::page;
use crate::kv::session::{Driver, Found, KvSession, PATIENCE, once, unstarted};
use crate::{Error, Result};

/// The address of a server, and the client's credential there.
#[derive(Clone, Debug)]
pub struct RmaServerAddress {
    /// Address of the server, and fingerprint of its certificate.
    pub pin: Pin,
    /// The server's token, or a certificate that the server lists.
    pub credential: Credential,
}

/// Number of command slots.
const SLOTS: u16 = 64;
/// Maximum number of consecutive outdated grants without a successful read in between.
const RENEWALS: u32 = 6;
/// Number of turns between two checks of connections from which no message is expected.
const LOOK_EVERY: u32 = 64;
/// Maximum time of a call while there is another server.
const CALL: Duration = Duration::from_secs(2);
/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(200);

/// The session's state of one server.
struct Server {
    address: RmaServerAddress,
    /// The result of a connection attempt that is under way.
    attempt: Option<Receiver<Result<Connected>>>,
    /// A new connection that is not used yet, because reads of an earlier one may still be under way.
    connected: Option<Connected>,
    tried: Instant,
    /// The failure of the last connection or attempt.
    fault: Option<Error>,
    /// Number of outdated grants, and the number of successful reads at that time.
    renewals: u32,
    landed: u64,
}

/// A client of one or several servers over 1RMA.
pub struct RmaSession {
    machine: Replicas<Farm>,
    network: Network,
    servers: Vec<Server>,
    config: ClientConfig,
    turns: u32,
}

impl RmaSession {
    /// Connects to all servers. If there are several, those that answer suffice, and the others are retried.
    ///
    /// # Errors
    /// `Grants`: no server answers, or one has another certificate, does not admit this client, or sees it
    /// at another address. `Refused`: a server accepts no further client. `Config`: the port is shm.
    pub fn connect(
        context: &Context,
        servers: &[RmaServerAddress],
        config: ClientConfig,
    ) -> Result<RmaSession> {
        if context.port().kind == PortKind::Shm {
            return Err(remora_grants::Error::Shm.into());
        }
        if !(1..=Replicas::<Farm>::MOST).contains(&servers.len()) {
            let most = Replicas::<Farm>::MOST;
            return Err(Error::Config(format!("a client has 1 to {most} servers, not {}", servers.len())));
        }
        let rma = context.open_rma(&RmaOptions::default())?;
        let domain = context.alloc_pd()?;
        let portal = rma.create_portal(&domain, SLOTS)?;
        let links = servers.iter().map(|_| link(&rma, &domain, &config)).collect::<Result<Vec<_>>>()?;
        let machine = Replicas::new(config, servers.len());
        let network = Network::new(rma, domain, portal, links, PATIENCE);
        let servers = servers.iter().cloned().map(Server::new).collect();
        let mut session = RmaSession { machine, network, servers, config, turns: 0 };
        session.connect_all()?;
        Ok(session)
    }

    /// Makes the first connection attempts, all concurrently.
    fn connect_all(&mut self) -> Result<()> {
        for number in 0..self.servers.len() {
            self.try_to_connect(number);
        }
        for number in 0..self.servers.len() {
            let attempt = self.servers[number].attempt.take();
            let outcome = attempt.and_then(|attempt| attempt.recv().ok());
            match outcome.unwrap_or_else(|| Err(gone())) {
                Ok(connected) => self.attach(number, connected)?,
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => self.servers[number].fault = Some(error),
            }
        }
        self.need_some()
    }

    fn try_to_connect(&mut self, number: usize) {
        let Server { address: RmaServerAddress { pin, credential }, tried, attempt, .. } =
            &mut self.servers[number];
        let client = self.network.portal.identity();
        let hello = self.network.links[number].hello;
        let pin = *pin;
        let credential = credential.clone();
        let (sender, receiver) = channel();
        // Connecting blocks until the server answers, which must not delay operations at other servers.
        std::thread::spawn(move || drop(sender.send(connect(pin, &credential, &client, &hello))));
        (*tried, *attempt) = (Instant::now(), Some(receiver));
    }

    fn attach(&mut self, number: usize, connected: Connected) -> Result<()> {
        let Connected { caller, grants, table } = connected;
        for granted in &grants {
            self.network.rma.reach(granted.grant.server)?;
        }
        let link = &mut self.network.links[number];
        let client: Client<Farm, CommandSlots> =
            Client::with_account(self.config, &table, link.block.clone())?;
        link.begin(caller, &grants)?;
        self.machine.attach(number, &table, client, &mut self.network)?;
        Ok(())
    }

    /// Returns an error unless a server is connected.
    fn need_some(&mut self) -> Result<()> {
        if (0..self.servers.len()).any(|number| self.machine.is_connected(number)) {
            return Ok(());
        }
        let fault = self.servers.iter_mut().find_map(|server| server.fault.take());
        Err(fault.unwrap_or_else(gone))
    }

    /// Processes the messages of servers, and reconnects to servers that are away.
    fn mend(&mut self) -> Result<()> {
        let looks = self.turns.is_multiple_of(LOOK_EVERY);
        self.turns = self.turns.wrapping_add(1);
        for number in 0..self.servers.len() {
            let link = &self.network.links[number];
            if link.caller.is_none() {
                if looks {
                    self.come_back(number)?;
                }
                continue;
            }
            if looks || link.is_calling() || link.asked {
                self.listen(number);
            }
            if self.machine.is_connected(number) && self.machine.failed(number).is_some() {
                self.renew(number)?;
            }
        }
        self.machine.advance(&mut self.network);
        for number in 0..self.servers.len() {
            // The machine has detached this server.
            let link = &self.network.links[number];
            if link.caller.is_some() && !self.machine.is_connected(number) {
                self.lose(number, gone());
            }
        }
        Ok(())
    }

    /// Processes the messages of one server.
    fn listen(&mut self, number: usize) {
        match self.network.come(number) {
            Ok(true) => self.machine.resume(number),
            Ok(false) if self.servers.len() > 1 && self.network.links[number].silent() > CALL => {
                let address = self.servers[number].address.pin.address;
                self.lose(number, remora_grants::Error::Silent(address).into());
            }
            Ok(false) => {}
            Err(error) => self.lose(number, error),
        }
    }

    /// Uses a key that was announced, or requests new grants.
    fn renew(&mut self, number: usize) -> Result<()> {
        let link = &mut self.network.links[number];
        if link.asked {
            return Ok(());
        }
        let server = &mut self.servers[number];
        if server.landed != self.network.landed {
            (server.renewals, server.landed) = (0, self.network.landed);
        }
        server.renewals += 1;
        if server.renewals > RENEWALS && self.machine.readable().next().is_none() {
            return Err(remora_grants::Error::KeyChanges(INDEX_NAME.to_owned()).into());
        }
        let outdated = self.machine.failed(number) == Some(Status::RemoteAccess);
        if outdated && link.use_announced() {
            self.machine.resume(number);
            return Ok(());
        }
        link.asked = true;
        let asked = link.caller.as_mut().map(|caller| caller.renew());
        if let Some(Err(error)) = asked {
            self.lose(number, error.into());
        }
        Ok(())
    }

    /// Notes that a connection is lost.
    fn lose(&mut self, number: usize, fault: Error) {
        tracing::info!(server = %self.servers[number].address.pin.address, "is away: {}", fault.chain());
        self.network.links[number].end();
        self.machine.detach(number);
        self.servers[number].fault = Some(fault);
    }

    /// Tries to reconnect to a server that is away.
    fn come_back(&mut self, number: usize) -> Result<()> {
        let server = &mut self.servers[number];
        match server.attempt.as_ref().map(Receiver::try_recv) {
            Some(Ok(Ok(connected))) => (server.attempt, server.connected) = (None, Some(connected)),
            Some(Ok(Err(error))) => (server.attempt, server.fault) = (None, Some(error)),
            Some(Err(TryRecvError::Disconnected)) => server.attempt = None,
            Some(Err(TryRecvError::Empty)) => {}
            None if server.connected.is_none() && server.tried.elapsed() > AGAIN => {
                self.try_to_connect(number);
            }
            None => {}
        }
        // Reads of the earlier connection may still write to the arena, so they must end first.
        if self.network.links[number].reading == 0
            && let Some(connected) = self.servers[number].connected.take()
        {
            match self.attach(number, connected) {
                Ok(()) => {
                    tracing::info!(server = %self.servers[number].address.pin.address, "is back");
                }
                Err(error) => self.lose(number, error),
            }
        }
        Ok(())
    }
}

impl Server {
    fn new(address: RmaServerAddress) -> Server {
        let tried = Instant::now();
        Server { address, attempt: None, connected: None, tried, fault: None, renewals: 0, landed: 0 }
    }
}

fn link(rma: &Rma, domain: &ProtectionDomain, config: &ClientConfig) -> Result<ServerLink> {
    let memory = domain.allocate(config.arena_len::<Farm>(), Access::LOCAL_WRITE)?;
    let bytes = memory.bytes().expect("regions of the stores are allocated here").clone();
    let block = block(bytes, ARENA);
    let hello = config.hello::<Farm>(&block);
    Ok(ServerLink::new(rma.expose(memory, Rights::NONE, None)?, block, hello))
}

fn gone() -> Error {
    Error::Silent("no server is connected".to_owned())
}

/// Returns true if retrying at any server would only hide a mistake of the configuration.
fn is_final(error: &Error) -> bool {
    use remora_grants::Error::{Fingerprint, NotAdmitted, Translated};
    match error {
        Error::Grants(error) => matches!(error, Fingerprint(_) | NotAdmitted { .. } | Translated { .. }),
        _ => true,
    }
}

impl KvSession for RmaSession {
    #[inline]
    fn turn(&mut self, driver: &mut impl Driver) -> Result<()> {
        self.network.poll()?;
        while let Some(completion) = self.network.next_done() {
            if let Some(finished) = self.machine.complete(&completion, &mut self.network)? {
                driver.ended(&finished);
            }
        }
        self.mend()?;
        while let Some(finished) = self.machine.next_ended() {
            driver.ended(&finished);
        }
        self.need_some()?;
        while driver.wants(self.machine.in_flight()) {
            driver.start(&mut self.machine, &mut self.network).map_err(unstarted)?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.machine.in_flight()
    }

    fn list(&mut self, report: &mut Found<'_>) -> Result<()> {
        let mut cursor = Some(Cursor::START);
        while let Some(current) = cursor {
            self.machine.list(current, &mut self.network).map_err(unstarted)?;
            let (next, keys) = once(self, None, page)??;
            keys.iter().try_for_each(|key| report(key))?;
            cursor = next;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn who(&self) -> String {
        let all = self.servers.iter().map(|server| server.address.pin.address.to_string());
        all.collect::<Vec<_>>().join(" and ")
    }
}
