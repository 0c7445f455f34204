//! The engine that serves a queue: one of this process, or the daemon's.

use remora_host::connect::{ROUTE_PATIENCE, Uplink};
use remora_host::{AttachRefusal, Engine, PortFacts};
use remora_memory::{Bytes, MemoryCommand, MemoryReply, Owner, Pd, Reentered};
use remora_nic::kernel::Shipped;
use remora_nic::{
    AddressVector, AsyncEvent, BellOwner, Command, Device, DeviceError, Doorbell, FromReply, HandedPart,
    Modify, PartNumber, Reply, Ring,
};
use remora_wire::Qpn;
use remora_wire::frame::{Endpoint, Peer};
use std::sync::Arc;

use crate::nicd::DaemonClient;
use crate::{CreateError, KernelModule};

/// The engine of a queue. A clone shares it.
#[derive(Clone, Debug)]
pub(crate) enum EngineHandle {
    /// An engine of this process.
    Own(Arc<Engine>),
    /// The daemon's engine.
    Nicd(Arc<DaemonClient>),
}

impl EngineHandle {
    fn device(&self) -> &dyn Device {
        match self {
            EngineHandle::Own(engine) => &**engine,
            EngineHandle::Nicd(daemon) => &**daemon,
        }
    }

    /// The engine's port, for setting up connections.
    pub(crate) fn uplink(&self) -> &dyn Uplink {
        match self {
            EngineHandle::Own(engine) => &**engine,
            EngineHandle::Nicd(daemon) => &**daemon,
        }
    }

    /// Called after a poll found nothing. Drives the engine, if it belongs to this process.
    #[inline]
    pub(crate) fn poll(&self) -> Result<(), Reentered> {
        match self {
            EngineHandle::Own(engine) => engine.poll()?,
            EngineHandle::Nicd(_) => std::hint::spin_loop(),
        }
        Ok(())
    }

    /// Rings the doorbell of a queue pair, after work was posted.
    #[inline]
    pub(crate) fn ring_qp(&self, number: Qpn, bell: Doorbell) -> Result<(), Reentered> {
        match self {
            EngineHandle::Own(engine) => engine.ring(number, bell.index)?,
            EngineHandle::Nicd(daemon) => daemon.ring_bell(bell.index),
        }
        Ok(())
    }

    /// Returns whether the calling thread runs a signal handler that interrupted a call on this engine.
    pub(crate) fn has_caller(&self) -> bool {
        match self {
            EngineHandle::Own(engine) => engine.has_caller(),
            EngineHandle::Nicd(_) => false,
        }
    }

    /// Executes a command and returns the value that its reply carries.
    pub(crate) fn ask<T: FromReply>(&self, command: Command) -> Result<T, CreateError> {
        Ok(Device::ask(self, command)?)
    }

    /// Allocates memory for a queue of at least `slots` slots, which the next command names by this number.
    pub(crate) fn queue(&self, slots: u32) -> Result<(Ring, PartNumber), CreateError> {
        Ok(Device::queue(self, slots)?)
    }

    /// Applies several changes to a queue pair in order, up to the first one that is refused.
    pub(crate) fn modify(&self, qp: Qpn, changes: &[Modify]) -> Result<(), CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine.modify(qp, changes)?),
            EngineHandle::Nicd(_) => changes
                .iter()
                .try_for_each(|change| self.ask(Command::ModifyQp { qp, change: Box::new(*change) })),
        }
    }

    /// Changes a queue pair. The destination of its address vector becomes a peer of the port, unless `link`
    /// is the peer. Returns the peer that the queue pair uses, which the caller releases.
    pub(crate) fn modify_with_peer(
        &self,
        qp: Qpn,
        mut change: Modify,
        link: Option<Peer>,
    ) -> Result<Option<Peer>, CreateError> {
        if let EngineHandle::Own(engine) = self {
            return Ok(engine.modify_with_peer(qp, change, link)?);
        }
        let peer = change.address.as_mut().map(|address| self.reach(address)).transpose()?;
        let modified = self.ask::<()>(Command::ModifyQp { qp, change: Box::new(change) });
        modified.map(|()| peer).inspect_err(|_| {
            peer.into_iter().for_each(|peer| self.uplink().release_peer(peer));
        })
    }

    /// Creates an address handle. The destination becomes a peer of the port. Returns the number of the
    /// handle, and the peer, which the caller releases.
    pub(crate) fn create_address_handle(
        &self,
        pd: Pd,
        mut address: AddressVector,
    ) -> Result<(u32, Peer), CreateError> {
        if let EngineHandle::Own(engine) = self {
            return Ok(engine.create_address_handle(pd, address)?);
        }
        let peer = self.reach(&mut address)?;
        let number = self.ask(Command::CreateAddressHandle { pd, address });
        number.map(|number| (number, peer)).inspect_err(|_| self.uplink().release_peer(peer))
    }

    /// Makes the destination of an address vector a peer of the port.
    fn reach(&self, address: &mut AddressVector) -> Result<Peer, CreateError> {
        let reached = self.uplink().reach(0, address.route.destination, ROUTE_PATIENCE);
        address.peer = reached.map_err(|error| CreateError::Unreachable(error.to_string()))?;
        Ok(address.peer)
    }

    /// Destroys an object by this command, because its handle is dropped. The daemon keeps objects that the
    /// program leaves to it.
    pub(crate) fn end(&self, command: Command) {
        match self {
            EngineHandle::Own(engine) => {
                let kind = command.kind();
                let ended = engine.ask::<()>(command);
                debug_assert!(ended.is_ok(), "{kind}: other objects hold those that they use");
            }
            EngineHandle::Nicd(daemon) => daemon.release(command),
        }
    }

    /// Frees the doorbell of a queue pair that is about to end, and takes from the windows that the queue
    /// pair has bound their owner. A daemon does both itself.
    pub(crate) fn end_qp(&self, number: Qpn, bell: Doorbell) {
        if let EngineHandle::Own(engine) = self {
            engine.take_bell(None, bell.index);
        }
        self.end(Command::DestroyQp(number));
        if let EngineHandle::Own(engine) = self {
            engine.table().unbind_owner(Owner::new(engine.number() as u16, number.get()));
        }
    }

    /// Ends an object of the memory table, whose handle is dropped.
    pub(crate) fn end_memory(&self, command: MemoryCommand<'_>) {
        if self.daemon().is_some_and(|daemon| daemon.leaves()) {
            return;
        }
        let ended = self.memory(command);
        debug_assert!(
            ended.is_ok() || self.daemon().is_some(),
            "only the last handle ends an object: {ended:?}"
        );
    }

    /// Removes a kernel, whose handle is dropped. If answers are on their way, the NIC removes the kernel
    /// when they have arrived.
    pub(crate) fn end_kernel(&self, kernel: u32) {
        match self {
            EngineHandle::Own(engine) => drop(engine.ask::<()>(Command::RemoveKernel { kernel })),
            EngineHandle::Nicd(daemon) => daemon.release(Command::RemoveKernel { kernel }),
        }
    }

    /// Hands the code of a shipped kernel to the NIC, once for each of `lanes` lanes.
    pub(crate) fn hand_shipped(&self, kernel: Shipped, lanes: u32) -> Result<PartNumber, CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine.hand(kernel.lanes(lanes as usize))),
            EngineHandle::Nicd(daemon) => daemon.hand_shipped(kernel, lanes),
        }
    }

    /// Hands the lanes of a module to the NIC.
    pub(crate) fn hand_module(&self, module: &KernelModule<'_>) -> Result<PartNumber, CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine.hand(module.load()?)),
            EngineHandle::Nicd(daemon) => daemon.hand_module(module),
        }
    }

    /// Destroys a completion queue, whose handle is dropped.
    pub(crate) fn end_cq(&self, number: u32) {
        if let EngineHandle::Own(engine) = self {
            engine.hook(number, None);
        }
        self.end(Command::DestroyCq { cq: number });
    }

    /// Returns whether both are the same engine.
    #[inline]
    pub(crate) fn is(&self, other: &EngineHandle) -> bool {
        match (self, other) {
            (EngineHandle::Own(one), EngineHandle::Own(other)) => Arc::ptr_eq(one, other),
            (EngineHandle::Nicd(one), EngineHandle::Nicd(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The engine, if it belongs to this process.
    pub(crate) fn engine(&self) -> Result<&Arc<Engine>, CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine),
            EngineHandle::Nicd(_) => Err(CreateError::NotByDaemon),
        }
    }

    /// The client of the daemon, if the engine is a daemon's.
    pub(crate) fn daemon(&self) -> Option<&Arc<DaemonClient>> {
        match self {
            EngineHandle::Own(_) => None,
            EngineHandle::Nicd(daemon) => Some(daemon),
        }
    }

    /// The engine's number.
    pub(crate) fn number(&self) -> usize {
        match self {
            EngineHandle::Own(engine) => engine.number(),
            EngineHandle::Nicd(_) => 0,
        }
    }

    /// The facts about the engine's port.
    pub(crate) fn facts(&self) -> PortFacts {
        self.uplink().facts()
    }

    /// Makes the port show the fields of received frames' IP headers, from which the header of a received
    /// datagram is built. A daemon does so for each datagram queue pair.
    pub(crate) fn show_ip_fields(&self) {
        if let EngineHandle::Own(engine) = self {
            engine.show_ip_fields();
        }
    }

    /// Makes the atomic operations of PRISM possible. A daemon does so for each queue pair with PRISM.
    pub(crate) fn use_wide(&self) -> Result<(), CreateError> {
        match self {
            EngineHandle::Own(engine) => Ok(engine.table().use_wide()?),
            EngineHandle::Nicd(_) => Ok(()),
        }
    }

    /// Attaches a queue pair to a multicast group, and makes the port join the group.
    pub(crate) fn attach_multicast(&self, qp: Qpn, group: Endpoint) -> Result<(), CreateError> {
        match self {
            EngineHandle::Own(engine) => {
                engine.attach_multicast(qp, group).map_err(|refusal| match refusal {
                    AttachRefusal::Nic(error) => error.into(),
                    AttachRefusal::Port(error) => CreateError::Group(error.to_string()),
                    AttachRefusal::Link(error) => CreateError::Group(error.to_string()),
                })
            }
            EngineHandle::Nicd(daemon) => daemon.join(qp, group),
        }
    }

    /// Detaches a queue pair from a group that it is attached to.
    pub(crate) fn detach_multicast(&self, qp: Qpn, group: Endpoint) {
        match self {
            EngineHandle::Own(engine) => {
                let left = engine.detach_multicast(qp, group);
                debug_assert!(left.is_ok(), "the caller knows that the queue pair is attached");
            }
            EngineHandle::Nicd(daemon) => daemon.leave_group(qp, group),
        }
    }
}

impl Device for EngineHandle {
    fn execute(&self, command: Command) -> Result<Reply, DeviceError> {
        self.device().execute(command)
    }

    fn hand(&self, part: HandedPart) -> Result<PartNumber, DeviceError> {
        self.device().hand(part)
    }

    fn allocate(&self, len: usize) -> Result<Bytes, DeviceError> {
        self.device().allocate(len)
    }

    fn queue(&self, slots: u32) -> Result<(Ring, PartNumber), DeviceError> {
        self.device().queue(slots)
    }

    fn memory(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, DeviceError> {
        self.device().memory(command)
    }

    fn assign_bell(&self, owner: BellOwner) -> Result<Doorbell, DeviceError> {
        self.device().assign_bell(owner)
    }

    #[inline]
    fn ring(&self, bell: Doorbell) -> Result<(), Reentered> {
        self.device().ring(bell)
    }

    fn take_event(&self) -> Option<AsyncEvent> {
        self.device().take_event()
    }
}
