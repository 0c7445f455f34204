//! The NIC's commands of a tenant. Each names objects of the tenant only, and what it creates is claimed.

use remora_nic::kernel::KernelFacts;
use remora_nic::{BellOwner, Command, ObjectName, Service};
use remora_transport::state::State;
use remora_wire::Qpn;
use remora_wire::frame::Endpoint;

use super::super::message::Refusal;
use super::super::message::Reply;
use super::super::users::{Amounts, Claim, Resource};
use super::{Held, LentMemory, Program, ReplyResult, Tenant, bells, place, unknown, words};
use crate::kernels::answer_bytes;

/// Upper limit of the steps of a kernel for one packet of input, whatever limit the program requests.
const STEPS: u64 = 1 << 20;
/// Bytes that the NIC needs for each buffer of a free list.
const BYTES_OF_BUFFER: u64 = 16;

/// Returns the reason why no tenant may use a command; `None` if tenants may.
fn reserved(command: &Command) -> Option<&'static str> {
    match command {
        Command::CreateGsiQp(_) => Some("queue pair 1 belongs to the daemon"),
        Command::SetTenant { .. } => Some("the daemon itself divides the bandwidth among its programs"),
        Command::Fail | Command::QueryRma => Some("only the daemon's owner may do this"),
        Command::AttachMulticast { .. } | Command::DetachMulticast { .. } => {
            Some("the daemon has a request of its own for multicast groups")
        }
        _ => None,
    }
}

/// The places that a command takes if it succeeds.
fn amounts(command: &Command) -> Amounts {
    match command {
        Command::CreateCq { .. } => Amounts::of(Resource::Queue, 1),
        Command::CreateQp(_) | Command::CreateLoopback(_) | Command::CreateXrcTarget { .. } => {
            // The connection of its set-up may be left with the daemon.
            Amounts::of(Resource::Pair, 1).and(Resource::Descriptor, 1)
        }
        Command::CreateSrq(_) => Amounts::of(Resource::SharedQueue, 1),
        Command::AllocXrcDomain => Amounts::of(Resource::XrcDomain, 1),
        Command::CreateAddressHandle { .. } => Amounts::of(Resource::AddressHandle, 1),
        Command::CreateFreeList(init) => {
            Amounts::of(Resource::FreeList, 1).and(Resource::Byte, u64::from(init.count) * BYTES_OF_BUFFER)
        }
        Command::DeployKernel(init) => Amounts::of(Resource::Kernel, 1)
            .and(Resource::Byte, answer_bytes(init.answers.into(), init.longest)),
        Command::CreatePortal(init) => Amounts::of(Resource::Portal, 1)
            .and(Resource::Slot, init.slots.into())
            .and(Resource::LatencySlot, if init.bulk_only { 0 } else { init.slots.into() }),
        _ => Amounts::default(),
    }
}

/// The memory and the claims of a command's parts.
type Taken = (Vec<LentMemory>, Vec<Claim>);

impl Tenant {
    /// Executes a command that names objects of this tenant.
    pub(super) fn command(&mut self, mut command: Command) -> ReplyResult {
        self.admit(&command)?;
        let claim = self.claim_all(amounts(&command))?;
        self.restrict(&mut command)?;
        let (memory, mut claims) = self.take_parts(&mut command)?;
        let replied = self.engine.execute(command.clone());
        if let Ok(reply) = &replied {
            claims.push(claim);
            self.executed(&command, reply, memory, claims)?;
        }
        let reply = match replied {
            Ok(remora_nic::Reply::Kernels(kernels)) => Ok(self.own_kernels(kernels)),
            replied => replied,
        };
        Ok((reply.map_or_else(Reply::RefusedByNic, Reply::Executed), Vec::new()))
    }

    /// Checks that this tenant may execute a command.
    fn admit(&self, command: &Command) -> Result<(), Refusal> {
        let mut refusal = reserved(command).map(Refusal::from);
        command.names(|name| refusal = refusal.take().or_else(|| self.refusal_of(name)));
        refusal.map_or(Ok(()), Err)
    }

    /// Replaces what a program may not choose itself, and prepares the NIC for the command.
    fn restrict(&self, command: &mut Command) -> Result<(), Refusal> {
        let source = self.engine.facts().source;
        match command {
            Command::CreatePortal(init) => {
                // The NIC writes both into each request, and no command can change them.
                let Program { pid, incarnation } = self.program;
                (init.pid, init.incarnation) = (pid, incarnation);
                self.rma.open().map_err(words)?;
            }
            Command::DeployKernel(init) => init.limit = init.limit.min(STEPS),
            Command::CreateAddressHandle { address, .. } => address.route.source = source,
            Command::ModifyQp { change, .. } => {
                change.address.iter_mut().for_each(|address| address.route.source = source);
                if change.prism == Some(true) {
                    self.table().use_wide().map_err(words)?;
                }
                if change.state == Some(State::Err) {
                    self.engine.step();
                }
            }
            // Work that was posted before counts, as on hardware, although its doorbell was not looked at
            // yet.
            Command::ResizeCq { .. } => self.engine.step(),
            // The IP header that precedes each received datagram is built from these fields.
            Command::CreateQp(init) if init.service == Service::Ud => self.engine.show_ip_fields(),
            _ => {}
        }
        Ok(())
    }

    /// Hands the parts of a command to the engine, and returns their memory and claims.
    fn take_parts(&mut self, command: &mut Command) -> Result<Taken, Refusal> {
        let mut memory = Vec::new();
        let mut claims = Vec::new();
        let mut missing = None;
        command.parts(|number| match self.parts.take(*number) {
            Some(part) => {
                *number = self.engine.hand(part.handed);
                memory.extend(part.memory);
                claims.extend(part.claim);
            }
            None => missing = Some(unknown("memory with number", number.0)),
        });
        missing.map_or(Ok((memory, claims)), Err)
    }

    /// Records what a command has changed.
    fn executed(
        &mut self,
        command: &Command,
        reply: &remora_nic::Reply,
        memory: Vec<LentMemory>,
        claims: Vec<Claim>,
    ) -> Result<(), Refusal> {
        if let Some(name) = command.created(reply) {
            return self.keep(command, name, memory, claims);
        }
        if let Some(name) = command.destroyed() {
            self.forget(name);
            return Ok(());
        }
        match command {
            Command::ResizeCq { cq, .. } => self.replace_memory(ObjectName::Cq(*cq), memory, claims),
            Command::ResizeSrq { srq, .. } => self.replace_memory(ObjectName::Srq(*srq), memory, claims),
            Command::ReplaceKernel { kernel, .. } => {
                let held = self.held_mut(ObjectName::Kernel(*kernel))?;
                // The claim on the lanes that are replaced ends.
                held.claims.retain(|claim| claim.get(Resource::Kernel) > 0);
                held.claims.extend(claims);
                Ok(())
            }
            Command::ModifyQp { qp, change } => {
                let held = self.held_mut(ObjectName::Qp(*qp))?;
                if let Some(address) = &change.address {
                    held.peer = Some(address.peer);
                } else if change.state == Some(State::Reset) {
                    held.peer = None;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records an object that a command has created.
    fn keep(
        &mut self,
        command: &Command,
        name: ObjectName,
        memory: Vec<LentMemory>,
        claims: Vec<Claim>,
    ) -> Result<(), Refusal> {
        let mut domain = None;
        let mut peer = None;
        command.names(|named| match named {
            ObjectName::Domain(pd) => domain = Some(pd),
            ObjectName::Peer(named) => peer = Some(named),
            _ => {}
        });
        // The table knows the domain: the tenant has it.
        let domain = domain.filter(|pd| self.table().retain_pd(*pd).is_ok());
        self.events.own(name);
        let held = Held {
            name,
            memory,
            claims,
            domain,
            bell: None,
            peer,
            groups: Vec::new(),
            note: None,
            connection: None,
        };
        self.objects.insert(place(name), held);
        match name {
            ObjectName::Qp(qp) => self.engine.assign_tenant(self.set, qp).map_err(words),
            _ => Ok(()),
        }
    }

    /// Replaces the memory of a queue that was moved to another ring.
    fn replace_memory(
        &mut self,
        name: ObjectName,
        memory: Vec<LentMemory>,
        claims: Vec<Claim>,
    ) -> Result<(), Refusal> {
        let held = self.held_mut(name)?;
        held.memory = memory;
        // The first claim of a queue is that of its memory.
        let rest = held.claims.split_off(1.min(held.claims.len()));
        held.claims = claims.into_iter().chain(rest).collect();
        Ok(())
    }

    /// Returns the kernels of this tenant.
    fn own_kernels(&self, mut kernels: Vec<KernelFacts>) -> remora_nic::Reply {
        kernels.retain(|facts| self.objects.contains_key(&place(ObjectName::Kernel(facts.number))));
        kernels.into()
    }

    /// Assigns a doorbell to a queue pair or portal of this tenant.
    pub(super) fn assign_bell(&mut self, owner: BellOwner) -> ReplyResult {
        let name = match owner {
            BellOwner::QueuePair(qp) => ObjectName::Qp(qp),
            BellOwner::Portal(portal) => ObjectName::Portal(portal),
        };
        let bell = match self.held(name)?.bell {
            Some(bell) => bell,
            None => self.engine.assign_shared_bell(self.set, owner).ok_or("the daemon has no doorbells")?,
        };
        debug_assert!((bell as usize) < bells(&self.limits), "there is one for each queue pair and portal");
        self.held_mut(name)?.bell = Some(bell);
        Ok((Reply::Number(bell), Vec::new()))
    }

    /// Attaches a queue pair to a multicast group.
    pub(super) fn join(&mut self, qp: Qpn, group: Endpoint) -> Result<(), Refusal> {
        self.held(ObjectName::Qp(qp))?;
        let claim = self.claim_all(Amounts::of(Resource::GroupMember, 1))?;
        self.engine.attach_multicast(qp, group).map_err(|refusal| match refusal {
            remora_host::AttachRefusal::Nic(error) => words(error),
            remora_host::AttachRefusal::Port(error) => words(error),
            remora_host::AttachRefusal::Link(error) => words(error),
        })?;
        self.held_mut(ObjectName::Qp(qp))?.groups.push((group, claim));
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    pub(super) fn leave(&mut self, qp: Qpn, group: Endpoint) -> Result<(), Refusal> {
        let groups = &mut self.held_mut(ObjectName::Qp(qp))?.groups;
        let place = groups.iter().position(|(known, _)| *known == group);
        groups.swap_remove(place.ok_or("the queue pair is not attached to this group")?);
        self.engine.detach_multicast(qp, group).map_err(words)
    }

    /// Returns the reason why this tenant may not name the object; `None` if it may.
    pub(super) fn refusal_of(&self, name: ObjectName) -> Option<Refusal> {
        let has = match name {
            ObjectName::Region(key) => self.regions.contains_key(&key.get()),
            ObjectName::Domain(pd) => self.domains.contains_key(&pd.get()),
            ObjectName::Peer(peer) => self.peers.has(peer),
            ObjectName::Part(part) => self.parts.has(part),
            name => self.objects.contains_key(&place(name)),
        };
        let kind = match name {
            ObjectName::Cq(_) => "completion queue",
            ObjectName::Kernel(_) => "kernel",
            ObjectName::Portal(_) => "command portal",
            ObjectName::Region(_) => "region with key",
            ObjectName::Qp(_) => "queue pair",
            ObjectName::Peer(_) => "peer",
            ObjectName::Srq(_) => "shared receive queue",
            ObjectName::XrcDomain(_) => "XRC domain",
            ObjectName::AddressHandle(_) => "address handle",
            ObjectName::FreeList(_) => "free list",
            ObjectName::Domain(_) => "protection domain",
            ObjectName::Part(_) => "memory with number",
        };
        (!has).then(|| unknown(kind, place(name).1))
    }
}
