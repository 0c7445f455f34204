//! One tenant of the daemon: the objects of one program after another, and the execution of its requests. A
//! tenant can name only its own objects.

mod commands;
mod events;
mod exposed;
mod held_peers;
mod lent_memory;
mod links;
mod memory;
mod notes;
mod parts;
mod place;
mod regions;
mod reply;
mod rma;
mod state;
mod waiting_parts;

use remora_host::packet::PacketSocket;
use remora_host::{Channel, Doorbells, connect::Uplink};
use remora_memory::{Bytes, Table};
use remora_nic::{Command, ObjectName};
use remora_wire::frame::Peer;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use events::EventOwner;
pub(super) use events::EventRoutes;
use held_peers::HeldPeers;
pub(super) use lent_memory::Outliving;
use lent_memory::{LentMemories, LentMemory};
pub(super) use links::begin;
pub(super) use parts::load;
use regions::{Region, RetiredRegions};
use waiting_parts::Parts;

use super::limits::Limits;
use super::message::{Refusal, Reply, Request, TenantFacts};
use super::rma::RmaService;
use super::users::{Amounts, Claim, Resource, User};
use crate::{Context, CreateError, KernelLoader};
use place::place;
pub(super) use reply::ReplyResult;
use reply::{descriptor, sent_len, unknown, words};
pub(crate) use state::Tenant;
use state::{Held, LentChannel};
pub(super) use state::{Program, Shared};

impl Drop for Tenant {
    fn drop(&mut self) {
        self.exposed.clear();
        self.end_objects(|_| false);
        self.end_memory();
        self.peers.release_all(&self.engine);
        self.engine.unshare_bells(self.set);
    }
}

/// The parts of a daemon that all tenants share.
pub(crate) struct Services {
    pub limits: Limits,
    pub rma: Arc<RmaService>,
    pub events: Arc<EventRoutes>,
    pub outliving: Arc<Outliving>,
    pub loader: Option<KernelLoader>,
}

impl Tenant {
    pub(crate) fn new(context: &Context, services: &Services, user: User) -> Result<Tenant, CreateError> {
        let limits = services.limits;
        let places = bells(&limits);
        let doorbells = Bytes::memfd("remora-doorbells", Doorbells::size(places))?;
        let system = CreateError::system("descriptor for a tenant's doorbells");
        let wake = remora_host::packet::eventfd().map_err(system)?;
        let watched = wake.try_clone().map_err(system)?;
        let bells = Doorbells::over(doorbells.clone(), places);
        let [engine, ..] = context.own_engines() else { return Err(CreateError::NotByDaemon) };
        let set = engine.share_bells(bells, watched).map_err(system)?;
        Ok(Tenant {
            engine: Arc::clone(engine),
            limits,
            user,
            rma: Arc::clone(&services.rma),
            loader: services.loader,
            program: Program::default(),
            process: None,
            outliving: Arc::clone(&services.outliving),
            set,
            doorbells,
            wake,
            events: EventOwner::new(&services.events),
            channels: BTreeMap::new(),
            next_channel: 1,
            memories: LentMemories::default(),
            parts: Parts::default(),
            offers: BTreeMap::new(),
            peers: HeldPeers::default(),
            exposed: BTreeMap::new(),
            objects: BTreeMap::new(),
            windows: BTreeMap::new(),
            regions: BTreeMap::new(),
            retired: RetiredRegions::default(),
            domains: BTreeMap::new(),
        })
    }

    fn table(&self) -> &Arc<Table> {
        self.engine.table()
    }

    /// Attaches a program to this tenant and returns the reply to its first message.
    pub(crate) fn welcome(&mut self, program: Program, process: Option<Arc<OwnedFd>>) -> ReplyResult {
        self.program = program;
        self.process = process;
        for held in self.objects.values() {
            // The previous program may have posted work and died before it rang the doorbell.
            if let ObjectName::Qp(qp) = held.name {
                self.engine.doorbell(qp);
            }
        }
        let (here, there) = PacketSocket::pair().map_err(words)?;
        self.events.attach(Some(Channel::There(Arc::new(here.into()))));
        let reply = Reply::Attached {
            port: self.engine.facts(),
            engine: self.engine.id(),
            irn_reach: self.engine.irn_reach(),
            places: bells(&self.limits) as u32,
        };
        let wake = self.wake.try_clone().map_err(words)?;
        Ok((reply, vec![descriptor(&self.doorbells)?, wake, there.into()]))
    }

    /// Called when the program is gone. Ends the objects that are unfinished or useless to another program.
    pub(crate) fn farewell(&mut self) {
        self.events.attach(None);
        self.parts = Parts::default();
        self.offers.clear();
        self.exposed.clear();
        self.end_objects(|held| held.note.is_some());
        self.end_unlisted_memory();
        self.retired = RetiredRegions::default();
        for held in self.objects.values() {
            if let ObjectName::Cq(cq) = held.name {
                self.engine.hook(cq, None);
            }
        }
        self.channels.clear();
        let used: Vec<Peer> = self.objects.values().filter_map(|held| held.peer).collect();
        self.peers.release_unused(&self.engine, &used);
    }

    /// Returns whether the tenant has no objects that a later program could use.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.regions.is_empty() && self.domains.is_empty()
    }

    /// The numbers of the tenant's objects. User, name and attachment are left for the caller to fill in.
    pub(crate) fn facts(&mut self) -> TenantFacts {
        self.forget_ended_kernels();
        let count = |is: fn(&ObjectName) -> bool| self.objects.values().filter(|held| is(&held.name)).count();
        let objects = self.objects.values().flat_map(|held| &held.claims);
        TenantFacts {
            uid: 0,
            name: String::new(),
            attached: false,
            regions: self.regions.len(),
            queues: count(|name| matches!(name, ObjectName::Cq(_))),
            pairs: count(|name| matches!(name, ObjectName::Qp(_))),
            bytes: self.bytes(),
            rma_slots: objects.map(|claim| claim.get(Resource::Slot)).sum::<u64>() as usize,
            rma_regions: self.exposed.len(),
        }
    }

    /// Bytes claimed by the tenant.
    fn bytes(&self) -> u64 {
        let objects = self.objects.values().flat_map(|held| &held.claims);
        let regions = self.regions.values().chain(self.retired.regions()).filter_map(Region::claim);
        objects.chain(regions).map(|claim| claim.get(Resource::Byte)).sum()
    }

    /// Executes a request that does not wait.
    pub(crate) fn execute(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> ReplyResult {
        let done = || Ok((Reply::Done, Vec::new()));
        match request {
            Request::HandRing => self.hand_ring(descriptors),
            Request::HandKernel { kernel, lanes } => self.hand_kernel(kernel, lanes),
            Request::Execute(command) => self.command(command),
            Request::Table(command) => self.table_command(command, descriptors),
            Request::NameRegion { key, name } => self.name_region(key, name).and_then(|()| done()),
            Request::AssignBell(owner) => self.assign_bell(owner),
            Request::CreateChannel => self.create_channel(),
            Request::DestroyChannel(number) => {
                self.channels.remove(&number).ok_or_else(|| unknown("completion channel", number))?;
                done()
            }
            Request::SetChannel { cq, tag, channel } => {
                self.set_channel(cq, tag, channel).and_then(|()| done())
            }
            Request::ReuseLink(id) => self.reuse_link(id),
            Request::LoopBack => self.loop_back(),
            Request::OfferLink => self.offer_link(),
            Request::WithdrawLink(offer) => {
                self.offers.remove(&offer).ok_or_else(|| unknown("offered link", offer))?;
                done()
            }
            Request::ReleasePeer(peer) => self.release_peer(peer).and_then(|()| done()),
            Request::JoinGroup { qp, group } => self.join(qp, group).and_then(|()| done()),
            Request::LeaveGroup { qp, group } => self.leave(qp, group).and_then(|()| done()),
            Request::Note { object, note } => self.note(object, note, descriptors).and_then(|()| done()),
            Request::Kept(place) => self.kept(place as usize),
            Request::Identify => self.identify(),
            Request::RegisterRma(asked) => self.register_rma(&asked),
            Request::DeregisterRma(region) => self.deregister_rma(region).and_then(|()| done()),
            Request::RekeyRma { region, key } => self.rekey_rma(region, &key).and_then(|()| done()),
            Request::RmaKey(region) => self.rma_key(region),
            Request::Attach { .. } | Request::List { .. } | Request::End { .. } => {
                Err("this is a first message, and the program is attached already".into())
            }
            Request::Long(_) | Request::HandModule { .. } => {
                Err("the daemon executes this request without holding the tenant".into())
            }
        }
    }

    /// Claims one object of this kind.
    fn claim(&mut self, kind: Resource) -> Result<Claim, Refusal> {
        self.claim_all(Amounts::of(kind, 1))
    }

    /// Claims what an object needs. Memory of programs that have ended is given back first if it must.
    fn claim_all(&mut self, amounts: Amounts) -> Result<Claim, Refusal> {
        self.user.claim(amounts).or_else(|_| {
            self.outliving.sweep();
            self.forget_ended_kernels();
            self.user.claim(amounts).map_err(Refusal::Limit)
        })
    }

    /// Forgets the kernels that were removed while answers were on their way, and have ended since.
    fn forget_ended_kernels(&mut self) {
        let is_kernel = |name: &ObjectName| matches!(name, ObjectName::Kernel(_));
        if !self.objects.values().any(|held| is_kernel(&held.name)) {
            return;
        }
        let Ok(remora_nic::Reply::Kernels(kernels)) = self.engine.execute(Command::QueryKernels) else {
            return;
        };
        let is_ended = |name: &ObjectName| match name {
            ObjectName::Kernel(number) => kernels.iter().all(|facts| facts.number != *number),
            _ => false,
        };
        let ended: Vec<ObjectName> = self.objects.values().map(|held| held.name).filter(is_ended).collect();
        ended.into_iter().for_each(|name| self.forget(name));
    }

    fn create_channel(&mut self) -> ReplyResult {
        let claim = self.claim_all(Amounts::of(Resource::Channel, 1).and(Resource::Descriptor, 1))?;
        let (here, there) = PacketSocket::pair().map_err(words)?;
        // A freed number is reused only after all others.
        while self.channels.contains_key(&self.next_channel) {
            self.next_channel = self.next_channel.wrapping_add(1);
        }
        let number = self.next_channel;
        self.next_channel = number.wrapping_add(1);
        let socket = Channel::There(Arc::new(here.into()));
        self.channels.insert(number, LentChannel { socket, _claim: claim });
        Ok((Reply::Number(number), vec![there.into()]))
    }

    fn set_channel(&self, cq: u32, tag: u64, channel: u32) -> Result<(), Refusal> {
        self.held(ObjectName::Cq(cq))?;
        let channel = self.channels.get(&channel).ok_or_else(|| unknown("completion channel", channel))?;
        let channel = channel.socket.clone();
        self.engine.hook(cq, Some(remora_host::CqHook { channel, tag }));
        Ok(())
    }

    fn held(&self, name: ObjectName) -> Result<&Held, Refusal> {
        self.refusal_of(name).map_or(Ok(()), Err)?;
        self.objects.get(&place(name)).ok_or(Refusal::from("this is no object of the NIC"))
    }

    fn held_mut(&mut self, name: ObjectName) -> Result<&mut Held, Refusal> {
        self.held(name)?;
        self.objects.get_mut(&place(name)).ok_or(Refusal::from("this is no object of the NIC"))
    }

    /// Takes an object that the NIC no longer has out of the tenant. Dropping it gives back what was claimed.
    fn forget(&mut self, name: ObjectName) {
        let Some(held) = self.objects.remove(&place(name)) else { return };
        self.events.forget(name);
        if let ObjectName::Cq(cq) = name {
            self.engine.hook(cq, None);
        }
        if let Some(bell) = held.bell {
            self.engine.take_bell(Some(self.set), bell);
        }
        if let ObjectName::Qp(qp) = name {
            let owner = remora_memory::Owner::new(self.engine.number() as u16, qp.get());
            self.table().unbind_owner(owner);
        }
        if let Some(pd) = held.domain {
            let released = self.table().release_pd(pd);
            debug_assert!(released.is_ok(), "the object was a user of the domain");
        }
    }

    /// Destroys all objects but those that `stays`.
    fn end_objects(&mut self, stays: impl Fn(&Held) -> bool) {
        let ends: Vec<ObjectName> =
            self.objects.values().filter(|held| !stays(held)).map(|held| held.name).collect();
        for name in ends {
            let groups = self.objects.get_mut(&place(name)).map(|held| std::mem::take(&mut held.groups));
            if let ObjectName::Qp(qp) = name {
                for (group, _claim) in groups.unwrap_or_default() {
                    let left = self.engine.detach_multicast(qp, group);
                    debug_assert!(left.is_ok(), "the queue pair is attached to the groups of its list");
                }
            }
            let Some(command) = name.destruction() else { continue };
            let ended = self.engine.ask::<()>(command);
            // If answers of a kernel are on their way, the NIC removes the kernel when they have arrived. A
            // queue of a kept queue pair stays.
            if ended.is_ok() || matches!(name, ObjectName::Kernel(_)) {
                self.forget(name);
            }
        }
    }
}

/// The number of doorbells of a tenant, which serve its queue pairs and its portals.
fn bells(limits: &Limits) -> usize {
    limits.pairs.saturating_add(limits.rma_portals)
}
