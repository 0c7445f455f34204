//! The NIC of a process of the raw layer: one engine, whose lock guards all queues.

use remora_host::connect::{ROUTE_PATIENCE, Uplink};
use remora_host::{Adapter, DriverCounters, Engine, EventHook, OpenError, PortFacts, PortKind};
use remora_memory::{AccessError, ForkMark, Key, Pd, Table};
use remora_nic::{AddressVector, Command, QueuePairFacts, Ring};
use remora_port::udp::SharedEndpoint;
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Route};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use super::introduce::Links;
use crate::{CreateError, Device};

/// The NIC of a process (IBTA's channel adapter), with one engine.
#[derive(Debug)]
pub struct ChannelAdapter {
    adapter: Adapter,
    fork: ForkMark,
    links: OnceLock<Links>,
}

impl ChannelAdapter {
    /// Opens the port, and starts the thread that serves the NIC while the program does not poll.
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn open(device: &Device) -> Result<Arc<ChannelAdapter>, OpenError> {
        let adapter = Adapter::open(&device.clone().engines(1).into_config())?;
        Ok(Arc::new(ChannelAdapter { adapter, fork: ForkMark::get(), links: OnceLock::new() }))
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
        match (self.is_child(), self.engine().has_caller()) {
            (true, _) => Err(CreateError::Forked),
            (_, true) => Err(CreateError::Reentered),
            _ => Ok(()),
        }
    }

    /// Returns whether the thread that serves the NIC has failed.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.adapter.has_failed()
    }

    /// Stops the NIC for good, when its place on the network is lost. All queue pairs enter the error state,
    /// and every context gets an event.
    pub fn fail(&self) {
        self.adapter.fail();
    }

    /// Ends the recording of the NIC, if there is one, for a process that ends without closing the NIC. No
    /// effect in a forked child and in a signal handler that interrupted a call on this NIC.
    pub fn close_recording(&self) {
        if self.refuse_child().is_ok() {
            self.engine().close_recording();
        }
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.adapter.engines()[0]
    }

    /// The table of the NIC's protection domains, regions, windows and on-NIC memory.
    pub fn table(&self) -> &Arc<Table> {
        self.adapter.table()
    }

    /// The kind, address and path MTU of the port.
    pub fn facts(&self) -> PortFacts {
        self.engine().facts()
    }

    /// The NIC's counters; zeros in a forked child.
    pub fn counters(&self) -> crate::Counters {
        if self.is_child() { crate::Counters::default() } else { self.engine().counters() }
    }

    /// The number of times that a queue pair waited for a receive work request of its peer (RNR NAK) since it
    /// was connected. 0 if there is no queue pair with this number.
    pub fn rnr_waits(&self, number: Qpn) -> u32 {
        if self.is_child() {
            return 0;
        }
        self.engine().ask(Command::QueryQp(number)).map_or(0, |facts: QueuePairFacts| facts.rnr_waits)
    }

    /// The NIC's clock in nanoseconds; 0 in a forked child and in a signal handler that interrupted a call on
    /// this NIC.
    pub fn now(&self) -> u64 {
        if self.is_child() { 0 } else { self.engine().inside(|inside| inside.now().0).unwrap_or(0) }
    }

    /// Drives the NIC one step, for a thread that is about to wait for packets itself and to be the only one
    /// woken. Puts descriptors into `out` that become readable with the next packet, and returns their
    /// number, or 0 if the port has no descriptors that report each packet. Returns `None` if work is waiting
    /// already, so that the thread must not sleep.
    pub fn await_packets(&self, out: &mut [RawFd]) -> Option<usize> {
        if self.is_child() || self.facts().kind != PortKind::Udp {
            return Some(0);
        }
        let mut descriptors = Vec::new();
        let waits = self.engine().inside(|inside| inside.await_port(&mut descriptors));
        if descriptors.len() > out.len() {
            // The driving thread waits for all of the descriptors instead.
            self.engine().end_await(false);
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
        if !self.is_child() {
            self.engine().end_await(woken);
        }
    }

    /// The wakes of all threads that drove the NIC.
    pub fn driver_counters(&self) -> DriverCounters {
        if self.is_child() { DriverCounters::default() } else { self.engine().driver_counters() }
    }

    /// Sets the source of links to neighbours for connections. Only the first call has an effect.
    pub fn use_links(&self, links: Links) {
        let _ = self.links.set(links);
    }

    pub(super) fn links(&self) -> Option<&Links> {
        self.links.get()
    }

    /// Passes all asynchronous events to `hook` from now on. The hook runs inside the engine's lock and may
    /// not call the NIC.
    pub fn on_event(&self, hook: EventHook) {
        self.engine().hook_events(hook);
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
        let peer = self
            .engine()
            .reach(address, destination, ROUTE_PATIENCE)
            .map_err(|error| CreateError::Unreachable(error.to_string()))?;
        // A queue pair or address handle that is given the vector becomes a user of the peer itself.
        self.engine().release_peer(peer);
        let further = self.engine().further_address(address);
        let source = further.map_or(self.facts().source, |(source, _)| source);
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
        let added = self.engine().add_address(share);
        added.map_err(|error| CreateError::Unreachable(error.to_string()))
    }

    /// Tells the port the addresses of this host, from which neighbours send.
    pub fn learn_local(&self, addresses: &[Address]) {
        if !self.is_child() {
            self.engine().learn_local(addresses);
        }
    }

    /// The largest path MTU whose packets have at most `transport_bytes` bytes from BTH to ICRC.
    pub fn path_mtu_of(transport_bytes: usize) -> u32 {
        remora_host::path_mtu(transport_bytes)
    }

    /// The largest path MTU in bytes of connections from the NIC's address with this number.
    pub fn path_mtu_from(&self, address: u8) -> u32 {
        let further = self.engine().further_address(address);
        let own = self.facts().path_mtu;
        further.map_or(own, |(_, bytes)| remora_host::path_mtu(bytes).min(own))
    }

    /// Allocates an XRC domain and returns its number.
    ///
    /// # Errors
    /// `Nic(Full)`; `Forked` in a forked child.
    pub fn alloc_xrc_domain(&self) -> Result<u32, CreateError> {
        self.refuse_child()?;
        Ok(self.engine().ask::<u32>(Command::AllocXrcDomain)?)
    }

    /// Frees an XRC domain.
    ///
    /// # Errors
    /// `Nic(Busy)` while a queue pair or shared receive queue uses it; `Forked` in a forked child.
    pub fn free_xrc_domain(&self, domain: u32) -> Result<(), CreateError> {
        self.refuse_child()?;
        Ok(self.engine().ask::<()>(Command::FreeXrcDomain { domain })?)
    }

    /// Checks that the NIC may read these bytes by this local key.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn check_bytes(&self, pd: Pd, key: Key, addr: u64, len: u32) -> Result<(), AccessError> {
        self.engine().probe(pd, key, addr, len as usize)
    }

    /// Allocates a queue of at least `slots` slots.
    pub(super) fn ring(&self, slots: u32) -> Result<Ring, CreateError> {
        Ok(Ring::heap(slots)?)
    }
}
