//! The NIC of a process of the raw layer: one engine, whose lock guards all queues.

use remora_host::connect::{ROUTE_PATIENCE, Uplink};
use remora_host::{Adapter, CqHook, DriverCounters, Engine, EventHook, OpenError, PortFacts, PortKind};
use remora_memory::{ForkMark, Table};
use remora_nic::{AddressVector, Command, QueuePairFacts};
use remora_port::udp::SharedEndpoint;
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Peer, Route};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use super::inside::Locked;
use super::introduce::Links;
use super::reports::Reports;
use crate::engine_handle::EngineHandle;
use crate::nicd::Attachment;
use crate::{CreateError, Device};

/// The NIC of a process (IBTA's channel adapter), with one engine: a NIC of the process itself, or one that a
/// daemon lends.
#[derive(Debug)]
pub struct ChannelAdapter {
    engine: Locked,
    home: Home,
    fork: ForkMark,
    links: OnceLock<Links>,
}

/// The place of a NIC.
#[derive(Debug)]
enum Home {
    Own(Box<Adapter>),
    /// A daemon, whose reports of completions and events come to this process.
    Nicd(Reports),
}

/// The text of refusals of what a daemon's NIC does not offer to its programs.
const ONE_ADDRESS: &str = "the NIC of a daemon has one address, and no links to neighbours";

impl ChannelAdapter {
    /// Opens the port, and starts the thread that serves the NIC while the program does not poll.
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn open(device: &Device) -> Result<Arc<ChannelAdapter>, OpenError> {
        let adapter = Adapter::open(&device.clone().engines(1).into_config())?;
        let engine = Locked::own(&adapter.engines()[0]);
        Ok(ChannelAdapter::with(engine, Home::Own(Box::new(adapter))))
    }

    /// Attaches to the NIC of a daemon. The queue pairs of a kept tenant outlive the process once they can
    /// send.
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn attach(attachment: &Attachment) -> Result<Arc<ChannelAdapter>, OpenError> {
        let daemon = Arc::new(attachment.client()?);
        if daemon.facts().kind == PortKind::Shm {
            let words = "the NIC daemon has port shm, whose NICs programs of libibverbs cannot address: \
                start it with --port udp or xdp";
            return Err(OpenError::Port(words.to_owned()));
        }
        if daemon.keeps() && daemon.has_kept() {
            let words = "an earlier program has left objects under this name: end them by \
                `remora nic end NAME`, or choose another name";
            return Err(OpenError::Port(words.to_owned()));
        }
        let reports = Reports::new(&daemon)?;
        let engine = Locked::nicd(daemon).map_err(OpenError::Memory)?;
        Ok(ChannelAdapter::with(engine, Home::Nicd(reports)))
    }

    fn with(engine: Locked, home: Home) -> Arc<ChannelAdapter> {
        Arc::new(ChannelAdapter { engine, home, fork: ForkMark::get(), links: OnceLock::new() })
    }

    /// Returns whether the calling process is a forked child of the process that opened the NIC. A child must
    /// not use it.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.fork.is_child()
    }

    /// Checks that the caller may use the NIC.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Reentered` in a signal handler that interrupted a call on this NIC.
    pub fn refuse_child(&self) -> Result<(), CreateError> {
        match (self.is_child(), self.engine.has_caller()) {
            (true, _) => Err(CreateError::Forked),
            (_, true) => Err(CreateError::Reentered),
            _ => Ok(()),
        }
    }

    /// Returns whether the NIC has failed: the thread that serves it, or the daemon that lends it.
    #[inline]
    pub fn has_failed(&self) -> bool {
        match (&self.home, self.handle()) {
            (Home::Own(adapter), _) => adapter.has_failed(),
            (_, EngineHandle::Nicd(daemon)) => daemon.is_gone(),
            _ => false,
        }
    }

    /// Stops the NIC for good, when its place on the network is lost. All queue pairs enter the error state,
    /// and every context gets an event. No effect on the NIC of a daemon.
    pub fn fail(&self) {
        if let Home::Own(adapter) = &self.home {
            adapter.fail();
        }
    }

    /// Ends the recording of the NIC, if there is one, for a process that ends without closing the NIC. No
    /// effect in a forked child and in a signal handler that interrupted a call on this NIC.
    pub fn close_recording(&self) {
        if let Some(engine) = self.own().filter(|_| self.refuse_child().is_ok()) {
            engine.close_recording();
        }
    }

    /// The engine and the lock of its queues.
    #[inline]
    pub(super) fn engine(&self) -> &Locked {
        &self.engine
    }

    #[inline]
    pub(super) fn handle(&self) -> &EngineHandle {
        self.engine.handle()
    }

    /// The engine, if it belongs to this process and the process was not forked from the engine's.
    fn own(&self) -> Option<&Arc<Engine>> {
        match self.handle() {
            EngineHandle::Own(engine) if !self.is_child() => Some(engine),
            _ => None,
        }
    }

    /// The table of the NIC's memory; `None` if a daemon has it.
    pub(super) fn table(&self) -> Option<&Arc<Table>> {
        match &self.home {
            Home::Own(adapter) => Some(adapter.table()),
            Home::Nicd(_) => None,
        }
    }

    /// Returns whether a daemon lends the NIC.
    pub fn is_lent(&self) -> bool {
        matches!(self.home, Home::Nicd(_))
    }

    /// The kind, address and path MTU of the port.
    pub fn facts(&self) -> PortFacts {
        self.handle().facts()
    }

    /// The NIC's counters; zeros in a forked child and for the NIC of a daemon, which reports its counters to
    /// its owner.
    pub fn counters(&self) -> crate::Counters {
        self.own().map(|engine| engine.counters()).unwrap_or_default()
    }

    /// The number of times that a queue pair waited for a receive work request of its peer (RNR NAK) since it
    /// was connected. 0 if there is no queue pair with this number.
    pub fn rnr_waits(&self, number: Qpn) -> u32 {
        if self.is_child() {
            return 0;
        }
        self.handle().ask(Command::QueryQp(number)).map_or(0, |facts: QueuePairFacts| facts.rnr_waits)
    }

    /// The NIC's clock in nanoseconds; 0 in a forked child, in a signal handler that interrupted a call on
    /// this NIC, and for the NIC of a daemon.
    pub fn now(&self) -> u64 {
        self.own().map_or(0, |engine| engine.inside(|inside| inside.now().0).unwrap_or(0))
    }

    /// Drives the NIC one step, for a thread that is about to wait for packets itself and to be the only one
    /// woken. Puts descriptors into `out` that become readable with the next packet, and returns their
    /// number, or 0 if the port has no descriptors that report each packet. Returns `None` if work is waiting
    /// already, so that the thread must not sleep.
    pub fn await_packets(&self, out: &mut [RawFd]) -> Option<usize> {
        let Some(engine) = self.own().filter(|_| self.facts().kind == PortKind::Udp) else {
            return Some(0);
        };
        let mut descriptors = Vec::new();
        let waits = engine.inside(|inside| inside.await_port(&mut descriptors));
        if descriptors.len() > out.len() {
            // The driving thread waits for all of the descriptors instead.
            engine.end_await(false);
            return Some(0);
        }
        let count = descriptors.len().min(out.len());
        out[..count].copy_from_slice(&descriptors[..count]);
        // A signal handler that interrupted the engine waits only for its own event.
        match waits {
            Ok(waits) => waits.then_some(count),
            Err(_) => Some(0),
        }
    }

    /// Ends the wait that [`await_packets`](ChannelAdapter::await_packets) began. `woken`: a packet had come.
    pub fn end_await(&self, woken: bool) {
        if let Some(engine) = self.own() {
            engine.end_await(woken);
        }
    }

    /// The wakes of all threads of this process that drove the NIC.
    pub fn driver_counters(&self) -> DriverCounters {
        self.own().map(|engine| engine.driver_counters()).unwrap_or_default()
    }

    /// Sets the source of links to neighbours for connections. Only the first call has an effect.
    pub fn use_links(&self, links: Links) {
        let _ = self.links.set(links);
    }

    pub(super) fn links(&self) -> Option<&Links> {
        self.links.get()
    }

    /// Passes all asynchronous events to `hook` from now on. The hook may run inside the engine's lock, and
    /// may not call the NIC.
    pub fn on_event(&self, hook: EventHook) {
        match (&self.home, self.handle()) {
            (Home::Nicd(reports), _) => reports.on_event(hook),
            (_, EngineHandle::Own(engine)) => engine.hook_events(hook),
            _ => {}
        }
    }

    /// Sets the channel that reports the completions of a queue while it is armed.
    pub(super) fn hook(&self, cq: u32, hook: Option<CqHook>) -> Result<(), CreateError> {
        match (&self.home, self.handle()) {
            (Home::Nicd(reports), EngineHandle::Nicd(daemon)) => reports.hook(daemon, cq, hook),
            (_, EngineHandle::Own(engine)) => {
                engine.hook(cq, hook);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the way to the NIC, or to the multicast group, at this address. Queue pairs and address
    /// handles that are given the address vector keep the port's entry for it.
    ///
    /// # Errors
    /// `Unreachable` with the port's text; `Forked` in a forked child.
    pub fn address_vector(
        &self,
        destination: Endpoint,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Result<AddressVector, CreateError> {
        self.address_vector_from(0, destination, traffic_class, hop_limit)
    }

    /// Like [`address_vector`](ChannelAdapter::address_vector), from the NIC's address with this number.
    ///
    /// # Errors
    /// The errors of [`address_vector`](ChannelAdapter::address_vector); `Unreachable` also if there is no
    /// such address.
    pub fn address_vector_from(
        &self,
        address: u8,
        destination: Endpoint,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Result<AddressVector, CreateError> {
        self.refuse_child()?;
        // A queue pair or address handle that is given the vector becomes a user of the peer itself.
        let Some(engine) = self.own() else {
            let route = Route::new(self.facts().source, destination);
            let route = Route { traffic_class, hop_limit, ..route };
            return Ok(AddressVector::new(Peer(0), route));
        };
        let peer = engine
            .reach(address, destination, ROUTE_PATIENCE)
            .map_err(|error| CreateError::Unreachable(error.to_string()))?;
        engine.release_peer(peer);
        let source = engine.further_address(address).map_or(self.facts().source, |(source, _)| source);
        let route = Route { traffic_class, hop_limit, ..Route::new(source, destination) };
        Ok(AddressVector::new(peer, route))
    }

    /// Gives the NIC a share of a further address, with the same QPN range. Returns the number of that
    /// address; the number of the NIC's own address is 0.
    ///
    /// # Errors
    /// `Unreachable` with the port's text; `Forked` in a forked child.
    pub fn add_address(&self, share: &SharedEndpoint) -> Result<u8, CreateError> {
        self.refuse_child()?;
        let engine = self.own().ok_or_else(|| CreateError::Unreachable(ONE_ADDRESS.to_owned()))?;
        engine.add_address(share).map_err(|error| CreateError::Unreachable(error.to_string()))
    }

    /// Tells the port the addresses of this host, from which neighbours send.
    pub fn learn_local(&self, addresses: &[Address]) {
        if let Some(engine) = self.own() {
            engine.learn_local(addresses);
        }
    }

    /// The largest path MTU whose packets have at most `transport_bytes` bytes from BTH to ICRC.
    pub fn path_mtu_of(transport_bytes: usize) -> u32 {
        remora_host::path_mtu(transport_bytes)
    }

    /// The largest path MTU in bytes of connections from the NIC's address with this number.
    pub fn path_mtu_from(&self, address: u8) -> u32 {
        let further = self.own().and_then(|engine| engine.further_address(address));
        let own = self.facts().path_mtu;
        further.map_or(own, |(_, bytes)| remora_host::path_mtu(bytes).min(own))
    }

    /// Allocates an XRC domain and returns its number.
    ///
    /// # Errors
    /// `Nic(Full)`; `Forked` in a forked child.
    pub fn alloc_xrc_domain(&self) -> Result<u32, CreateError> {
        self.refuse_child()?;
        self.handle().ask::<u32>(Command::AllocXrcDomain)
    }

    /// Frees an XRC domain.
    ///
    /// # Errors
    /// `Nic(Busy)` while a queue pair or shared receive queue uses it; `Forked` in a forked child.
    pub fn free_xrc_domain(&self, domain: u32) -> Result<(), CreateError> {
        self.refuse_child()?;
        self.handle().ask::<()>(Command::FreeXrcDomain { domain })
    }

    /// Makes the program with this QPN range of the NIC's addresses a neighbour, to which frames go by
    /// `link`.
    ///
    /// # Errors
    /// `Unreachable` with the port's text; `Forked` in a forked child.
    pub fn add_neighbour(&self, range: u8, link: remora_port::shm::Link) -> Result<(), CreateError> {
        self.refuse_child()?;
        let engine = self.own().ok_or_else(|| CreateError::Unreachable(ONE_ADDRESS.to_owned()))?;
        let added = engine.add_neighbour(range, link);
        added.map(|_| ()).map_err(|error| CreateError::Unreachable(error.to_string()))
    }

    /// Returns whether a link leads to this QPN range.
    pub fn has_neighbour(&self, range: u8) -> bool {
        self.own().is_some_and(|engine| engine.has_neighbour(range))
    }

    /// The number of links to neighbours, and their counters. `None` if the NIC has no neighbours, and in a
    /// forked child.
    pub fn neighbours(&self) -> Option<(usize, crate::PortCounters)> {
        self.own()?.neighbours()
    }

    /// Returns the link to this QPN range with its window. The link has one user more.
    pub(super) fn use_neighbour(&self, range: u8) -> Option<(Peer, Option<u32>)> {
        self.own()?.use_neighbour(range)
    }
}
