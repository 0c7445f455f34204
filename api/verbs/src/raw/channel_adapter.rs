//! The NIC of a process: one engine, whose lock guards all queues.

use remora_host::{Adapter, DriverCounters, Engine, EventHook, OpenError, PortFacts, PortKind};
use remora_memory::{Access, AccessError, ForkMark, Key, Pd, Table};
use remora_nic::{AddressVector, NicError, Ring};
use remora_port::udp::SharedEndpoint;
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Route};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use super::introduce::Links;
use crate::{Bytes, CreateError, Device};

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
    /// One line with the fault and its mend.
    pub fn open(device: &Device) -> Result<Arc<ChannelAdapter>, OpenError> {
        let adapter = Adapter::open(&device.clone().engines(1).into_config())?;
        Ok(Arc::new(ChannelAdapter { adapter, fork: ForkMark::get(), links: OnceLock::new() }))
    }

    /// Is this a forked child of the process that opened it? Then nothing of it may be used.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.fork.is_child()
    }

    /// # Errors
    /// `Forked`; `Reentered`.
    pub fn refuse_child(&self) -> Result<(), CreateError> {
        match (self.is_child(), self.engine().has_caller()) {
            (true, _) => Err(CreateError::Forked),
            (_, true) => Err(CreateError::Reentered),
            _ => Ok(()),
        }
    }

    /// Has the thread that serves it failed?
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.adapter.has_failed()
    }

    /// Ends its work for good: its place on the network is lost. All queue pairs enter the error state, and
    /// every context is told.
    pub fn fail(&self) {
        self.adapter.fail();
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.adapter.engines()[0]
    }

    /// Its protection domains, regions, windows and on-NIC memory.
    pub fn table(&self) -> &Arc<Table> {
        self.adapter.table()
    }

    /// Kind, address and path MTU of its port.
    pub fn facts(&self) -> PortFacts {
        self.engine().facts()
    }

    /// The NIC's counters; zeros in a forked child.
    pub fn counters(&self) -> crate::Counters {
        if self.is_child() { crate::Counters::default() } else { self.engine().counters() }
    }

    /// How often a queue pair waited for a receive of its peer (RNR NAK), since it was connected. 0 if there
    /// is none of this number.
    pub fn rnr_waits(&self, number: Qpn) -> u32 {
        if self.is_child() {
            return 0;
        }
        self.engine().control(|control| control.nic.rnr_waits(number)).unwrap_or(0)
    }

    /// Nanoseconds of the NIC's clock.
    pub fn now(&self) -> u64 {
        if self.is_child() { 0 } else { self.engine().inside(|inside| inside.now().0).unwrap_or(0) }
    }

    /// Makes a pass, for a thread that is about to wait for packets itself: it is woken once, and by nobody
    /// else. Puts descriptors into `out` that become readable with the next packet, and returns their number;
    /// 0 where the port has none that show each packet by themselves. None: there is work already, so wait
    /// for nothing.
    pub fn await_packets(&self, out: &mut [RawFd]) -> Option<usize> {
        if self.is_child() || self.facts().kind != PortKind::Udp {
            return Some(0);
        }
        let mut descriptors = Vec::new();
        let waits = self.engine().inside(|inside| inside.await_port(&mut descriptors));
        if descriptors.len() > out.len() {
            // Another thread waits for all of them.
            self.engine().end_await(false);
            return Some(0);
        }
        let count = descriptors.len().min(out.len());
        out[..count].copy_from_slice(&descriptors[..count]);
        // A signal handler inside the engine waits for what comes by itself.
        match waits {
            Ok(waits) => waits.then_some(count),
            Err(_) => Some(0),
        }
    }

    /// A thread that waited for packets itself waits no more; `woken`: something had come.
    pub fn end_await(&self, woken: bool) {
        if !self.is_child() {
            self.engine().end_await(woken);
        }
    }

    /// Wakes of all threads that drove the NIC.
    pub fn driver_counters(&self) -> DriverCounters {
        if self.is_child() { DriverCounters::default() } else { self.engine().driver_counters() }
    }

    /// How connections to neighbours find their links; at most once.
    pub fn use_links(&self, links: Links) {
        let _ = self.links.set(links);
    }

    pub(super) fn links(&self) -> Option<&Links> {
        self.links.get()
    }

    /// From now on `hook` gets all asynchronous events, inside the engine's lock: it may not call the NIC.
    pub fn on_event(&self, hook: EventHook) {
        self.engine().control(|control| control.hook_events(hook));
    }

    /// The way to the NIC, or to the multicast group, of this name. The port keeps it for queue pairs and
    /// address handles that are given it.
    ///
    /// # Errors
    /// `Unreachable`: the port's text; `Forked`.
    pub fn address_vector(
        &self,
        to: Endpoint,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Result<AddressVector, CreateError> {
        self.address_vector_from(0, to, traffic_class, hop_limit)
    }

    /// The same, from the address with this number.
    ///
    /// # Errors
    /// As there; `Unreachable` also if there is no such address.
    pub fn address_vector_from(
        &self,
        address: u8,
        to: Endpoint,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Result<AddressVector, CreateError> {
        self.refuse_child()?;
        let peer = remora_host::connect::reach_from(self.engine(), address, to)
            .map_err(|error| CreateError::Unreachable(error.to_string()))?;
        let further = self.engine().control(|control| {
            // What is given the vector becomes a user of the peer itself.
            control.release_peer(peer);
            control.port.further_address(address)
        });
        let source = further.map_or(self.facts().source, |(source, _)| source);
        let route = Route { traffic_class, hop_limit, ..Route::new(source, to) };
        Ok(AddressVector::new(peer, route))
    }

    /// Gives the NIC a share of a further address, with the same QPN range; the number of that address. Its
    /// own is 0.
    ///
    /// # Errors
    /// `Unreachable`: the port's text; `Forked`.
    pub fn add_address(&self, share: &SharedEndpoint) -> Result<u8, CreateError> {
        self.refuse_child()?;
        let added = self.engine().control(|control| control.port.add_address(share));
        added.map_err(|error| CreateError::Unreachable(error.to_string()))
    }

    /// Learns which addresses this host has: neighbours send from them.
    pub fn learn_local(&self, addresses: &[Address]) {
        if !self.is_child() {
            self.engine().control(|control| control.port.learn_local(addresses));
        }
    }

    /// Largest path MTU whose packets have so many bytes at most, from BTH to ICRC.
    pub fn path_mtu_of(transport_bytes: usize) -> u32 {
        remora_host::path_mtu(transport_bytes)
    }

    /// Largest path MTU of connections from the address with this number, in bytes.
    pub fn path_mtu_from(&self, address: u8) -> u32 {
        let further = self.engine().control(|control| control.port.further_address(address));
        let own = self.facts().path_mtu;
        further.map_or(own, |(_, bytes)| remora_host::path_mtu(bytes).min(own))
    }

    /// A new XRC domain; its number.
    ///
    /// # Errors
    /// `Nic(Full)`, `Forked`.
    pub fn alloc_xrc_domain(&self) -> Result<u32, CreateError> {
        self.refuse_child()?;
        Ok(self.engine().control(|control| control.nic.alloc_xrc_domain())?)
    }

    /// Ends an XRC domain.
    ///
    /// # Errors
    /// `Nic(Busy)` while a queue pair or shared receive queue is in it; `Forked`.
    pub fn free_xrc_domain(&self, domain: u32) -> Result<(), CreateError> {
        self.refuse_child()?;
        Ok(self.engine().control(|control| control.nic.free_xrc_domain(domain))?)
    }

    /// May the NIC read these bytes by this local key?
    ///
    /// # Errors
    /// The check's reason to refuse.
    pub fn check_bytes(&self, pd: Pd, key: Key, addr: u64, len: u32) -> Result<(), AccessError> {
        self.engine().control(|control| control.mem.probe(pd, key, addr, len as usize, Access::NONE))
    }

    /// A queue of at least so many slots.
    pub(super) fn ring(&self, slots: u32) -> Result<Ring, CreateError> {
        Ring::new(Bytes::heap(Ring::size(slots))?).ok_or(CreateError::Nic(NicError::TooSmall))
    }
}
