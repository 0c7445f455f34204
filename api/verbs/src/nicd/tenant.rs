//! One tenant of the daemon: its objects and the execution of its requests. A tenant can name only its own
//! objects.

use remora_host::Doorbells;
use remora_host::packet::PacketSocket;
use remora_memory::{Bytes, Range};
use remora_nic::Service;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

mod chains;
mod commands;
mod free_lists;
mod kernels;
mod rma;

use self::free_lists::{Handed, LentFreeList};
use self::kernels::Deployed;
use self::rma::{Exposed, LentPortal};
use super::limits::Limits;
use super::message::{
    Allocate, CreateCq, CreateQp, PairFacts, QueueFacts, RegionFacts, Reply, Request, TenantFacts,
};
use super::rma::RmaService;
use super::users::{Amounts, Claim, Resource, User};
use crate::queue_pair::Own;
use crate::rma::Servers;
use crate::{
    Access, CompletionChannel, CompletionQueue, Context, CqOptions, CreateError, Init, MemoryRegion,
    ProtectionDomain, QpOptions, QueuePair, Ready,
};

/// The first address of a tenant's memory, and the gap between two regions. The addresses are assigned by
/// the daemon, so they reveal nothing about its own address space.
const FIRST_ADDRESS: u64 = 1 << 44;
const GAP: u64 = 1 << 21;

/// Upper limit of the time that setting up a connection may take.
const LONGEST: Duration = Duration::from_secs(60);

const AWAY: &str = "this queue pair is being connected";

/// The daemon's reply to a request with the reply's descriptors, or the text of a refusal.
pub(super) type ReplyResult = Result<(Reply, Vec<OwnedFd>), String>;

/// Memory that the program maps, too. Its pages are freed when this value is dropped, although the program
/// may keep the descriptor: from then on the kernel charges pages to the program that touches them.
struct LentMemory(Bytes);

impl Drop for LentMemory {
    fn drop(&mut self) {
        use rustix::fs::{FallocateFlags, fallocate};
        let Some(file) = self.0.fd() else { return };
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // On an error the pages stay for as long as the program keeps the descriptor.
        let _ = fallocate(file, hole, 0, self.0.len() as u64);
    }
}

// The fields of these objects are ordered as they must be dropped: the NIC's part, the memory, the claim.
struct Region {
    region: MemoryRegion,
    memory: LentMemory,
    facts: RegionFacts,
    claim: Claim,
}

struct Queue {
    cq: CompletionQueue,
    _memory: LentMemory,
    facts: QueueFacts,
    claim: Claim,
}

/// The progress of setting up a queue pair.
pub(super) enum Stage {
    Idle(QueuePair<Init>),
    /// The queue pair is with a negotiation, which connects it in another thread.
    Away,
    Up(QueuePair<Ready>),
}

impl Stage {
    fn number(&self) -> u32 {
        match self {
            Stage::Idle(pair) => pair.number(),
            Stage::Up(pair) => pair.number(),
            Stage::Away => 0,
        }
    }

    /// The memory of the send queue and the receive queue.
    fn rings(&self) -> Result<[&remora_nic::Ring; 2], String> {
        let rings = match self {
            Stage::Idle(pair) => pair.rings(),
            Stage::Up(pair) => pair.rings(),
            Stage::Away => return Err(AWAY.to_owned()),
        };
        rings.ok_or_else(|| "this queue pair has no receive queue".to_owned())
    }
}

struct Pair {
    stage: Stage,
    _memory: [LentMemory; 2],
    facts: PairFacts,
    claim: Claim,
}

/// A completion channel with its claim.
struct Channel {
    signal: CompletionChannel,
    _claim: Claim,
}

/// A protection domain with its claim.
struct Domain {
    domain: ProtectionDomain,
    _claim: Claim,
}

/// The attached program, as the daemon knows it.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Program {
    /// The process id, as reported by the kernel.
    pub pid: u32,
    /// A random number of this attachment.
    pub incarnation: u32,
}

impl Program {
    /// Returns the program at the other end of a socket, with a new incarnation.
    pub(crate) fn at(socket: &PacketSocket) -> Result<Program, remora_host::OpenError> {
        Ok(Program { pid: socket.peer_pid()?, incarnation: remora_host::random()? as u32 })
    }
}

/// The objects of one tenant.
pub(crate) struct Tenant {
    context: Context,
    limits: Limits,
    user: User,
    rma: Arc<RmaService>,
    program: Program,
    set: u32,
    doorbells: Bytes,
    wake: OwnedFd,
    next_address: u64,
    next_number: u32,
    negotiations: Vec<Claim>,
    servers: Servers,
    // The fields from here on are ordered as objects must be dropped.
    handed: Handed,
    portals: BTreeMap<u32, LentPortal>,
    free_lists: BTreeMap<u64, LentFreeList>,
    exposed: BTreeMap<u32, Exposed>,
    pairs: BTreeMap<u32, Pair>,
    kernels: BTreeMap<u32, Deployed>,
    queues: BTreeMap<u32, Queue>,
    channels: BTreeMap<u32, Channel>,
    regions: BTreeMap<u32, Region>,
    domains: BTreeMap<u32, Domain>,
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.clear();
        if let [engine, ..] = self.context.own_engines() {
            engine.unshare_bells(self.set);
        }
    }
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

fn unknown(kind: &str, number: u32) -> String {
    format!("this program has no {kind} {number}")
}

/// Allocates memory that can be lent.
fn fresh(len: u64) -> Result<Bytes, String> {
    Bytes::memfd("remora-region", usize::try_from(len).map_err(words)?).map_err(words)
}

fn descriptor(bytes: &Bytes) -> Result<OwnedFd, String> {
    let fd = bytes.fd().ok_or("this memory cannot be lent")?;
    fd.try_clone_to_owned().map_err(words)
}

impl Tenant {
    pub(crate) fn new(
        context: &Context,
        limits: Limits,
        user: User,
        rma: Arc<RmaService>,
    ) -> Result<Tenant, CreateError> {
        let places = bells(&limits);
        let doorbells = Bytes::memfd("remora-doorbells", Doorbells::size(places))?;
        let system = CreateError::system("descriptor for a tenant's doorbells");
        let wake = remora_host::packet::eventfd().map_err(system)?;
        let watched = wake.try_clone().map_err(system)?;
        let bells = Doorbells::over(doorbells.clone(), places);
        let [engine, ..] = context.own_engines() else { return Err(CreateError::NotByDaemon) };
        let set = engine.share_bells(bells, watched).map_err(system)?;
        Ok(Tenant {
            context: context.clone(),
            limits,
            user,
            rma,
            program: Program::default(),
            set,
            doorbells,
            wake,
            next_address: FIRST_ADDRESS,
            next_number: 1,
            negotiations: Vec::new(),
            servers: Servers::default(),
            handed: Handed::default(),
            portals: BTreeMap::new(),
            free_lists: BTreeMap::new(),
            exposed: BTreeMap::new(),
            pairs: BTreeMap::new(),
            kernels: BTreeMap::new(),
            queues: BTreeMap::new(),
            channels: BTreeMap::new(),
            regions: BTreeMap::new(),
            domains: BTreeMap::new(),
        })
    }

    /// Drops all objects of the tenant, in an order in which none is in use.
    fn clear(&mut self) {
        self.end_free_lists();
        self.portals.clear();
        self.exposed.clear();
        self.pairs.clear();
        self.kernels.clear();
        self.queues.clear();
        self.channels.clear();
        self.regions.clear();
        self.domains.clear();
    }

    /// Attaches a program to this tenant and returns the reply to its first message.
    pub(crate) fn welcome(&mut self, program: Program) -> ReplyResult {
        self.program = program;
        for pair in self.pairs.values() {
            // The previous program may have posted work and died before it rang the doorbell.
            if let Stage::Up(pair) = &pair.stage {
                pair.look();
            }
        }
        let reply = Reply::Attached { port: self.context.port(), places: bells(&self.limits) as u32 };
        Ok((reply, vec![descriptor(&self.doorbells)?, self.wake.try_clone().map_err(words)?]))
    }

    /// Called when the program is gone. Drops the objects that are unfinished or useless to another program.
    pub(crate) fn farewell(&mut self) {
        self.handed = Handed::default();
        self.end_free_lists();
        self.portals.clear();
        self.exposed.clear();
        self.pairs.retain(|_, pair| matches!(pair.stage, Stage::Up(_)));
        self.channels.clear();
    }

    /// Returns whether the tenant has no objects that a later program could use.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
            && self.kernels.is_empty()
            && self.queues.is_empty()
            && self.regions.is_empty()
            && self.domains.is_empty()
            && self.negotiations.is_empty()
    }

    /// The numbers of the tenant's objects. User, name and attachment are left for the caller to fill in.
    pub(crate) fn facts(&self) -> TenantFacts {
        TenantFacts {
            uid: 0,
            name: String::new(),
            attached: false,
            regions: self.regions.len(),
            queues: self.queues.len(),
            pairs: self.pairs.len(),
            bytes: self.bytes(),
            rma_slots: self.portals.values().map(LentPortal::slots).sum(),
            rma_regions: self.exposed.len(),
        }
    }

    /// Bytes claimed by the tenant's regions, queues, kernels and portals.
    fn bytes(&self) -> u64 {
        let regions = self.regions.values().map(|region| &region.claim);
        let queues = self.queues.values().map(|queue| &queue.claim);
        let pairs = self.pairs.values().map(|pair| &pair.claim);
        let kernels = self.kernels.values().map(Deployed::claim);
        let claims = regions.chain(queues).chain(pairs).chain(kernels);
        claims
            .chain(self.portals.values().map(LentPortal::claim))
            .chain(self.free_lists.values().map(LentFreeList::claim))
            .map(|claim| claim.get(Resource::Byte))
            .sum()
    }

    /// Executes a request that does not wait.
    pub(crate) fn execute(&mut self, request: Request) -> ReplyResult {
        let done = Ok((Reply::Done, Vec::new()));
        match request {
            Request::AllocDomain => self.alloc_domain(),
            Request::Hand(slots) => self.hand(slots),
            Request::Execute(command) => self.command(command),
            Request::FreeDomain(number) => self.free_domain(number).and(done),
            Request::Allocate(asked) => self.allocate(asked),
            Request::Deregister(key) => self.deregister(key).and(done),
            Request::CreateChannel => self.create_channel(),
            Request::DestroyChannel(number) => {
                self.channels.remove(&number).ok_or_else(|| unknown("completion channel", number))?;
                done
            }
            Request::CreateCq(asked) => self.create_cq(&asked),
            Request::SetChannel { number, channel } => {
                let queue = self.queues.get(&number).ok_or_else(|| unknown("completion queue", number))?;
                let signal = self.channels.get(&channel);
                let signal = signal.ok_or_else(|| unknown("completion channel", channel))?;
                queue.cq.set_channel(&signal.signal).map_err(words)?;
                done
            }
            Request::CreateQp(asked) => self.create_qp(asked),
            Request::Agreement(number) => {
                let agreement = self.pair(number)?.facts.agreement.clone();
                let agreement = agreement.ok_or("this queue pair is not connected")?;
                Ok((Reply::Agreed(Box::new(agreement)), Vec::new()))
            }
            Request::Kept(place) => self.kept(place as usize),
            Request::CreateLoopback(asked) => self.create_loopback(asked),
            Request::CreateCode(asked) => self.create_code(&asked),
            Request::Deploy(asked) => self.deploy(&asked),
            Request::Identify => self.identify(),
            Request::RegisterRma(asked) => self.register_rma(&asked),
            Request::DeregisterRma(region) => self.deregister_rma(region).and(done),
            Request::RekeyRma { region, key } => self.rekey_rma(region, &key).and(done),
            Request::RmaKey(region) => self.rma_key(region),
            Request::CreatePortal(asked) => self.create_portal(asked),
            Request::Attach { .. } | Request::List { .. } | Request::End { .. } => {
                Err("this is a first message, and the program is attached already".to_owned())
            }
            Request::Connect { .. }
            | Request::ConnectPair { .. }
            | Request::Answer { .. }
            | Request::Reach(_) => Err("this request needs a socket for its answer".to_owned()),
        }
    }

    /// Replies with kept object number `place`, counting domains, regions, completion queues, queue pairs and
    /// kernels in this order.
    fn kept(&self, place: usize) -> ReplyResult {
        let mut place = place;
        if let Some(number) = self.domains.keys().nth(place) {
            return Ok((Reply::Domain(*number), Vec::new()));
        }
        place -= self.domains.len();
        if let Some(region) = self.regions.values().nth(place) {
            return self.lend_region(region);
        }
        place -= self.regions.len();
        if let Some(queue) = self.queues.values().nth(place) {
            return self.lend_queue(queue);
        }
        place -= self.queues.len();
        if let Some(pair) = self.pairs.values().nth(place) {
            return self.lend_pair(pair);
        }
        place -= self.pairs.len();
        let kernel = self.kernels.iter().nth(place);
        let reply = kernel.map_or(Reply::Nothing, |(number, kernel)| Reply::Kernel {
            number: *number,
            domain: kernel.domain,
        });
        Ok((reply, Vec::new()))
    }

    /// Claims one object of this kind and `bytes` bytes of memory.
    fn claim(&self, kind: Resource, bytes: u64) -> Result<Claim, String> {
        self.user.claim(Amounts::of(kind, 1).and(Resource::Byte, bytes))
    }

    fn alloc_domain(&mut self) -> ReplyResult {
        let claim = self.claim(Resource::Domain, 0)?;
        let domain = self.context.alloc_pd().map_err(words)?;
        // Commands name a domain by its number in the NIC.
        let number = domain.pd().map_err(words)?.get();
        self.domains.insert(number, Domain { domain, _claim: claim });
        Ok((Reply::Number(number), Vec::new()))
    }

    /// Returns an unused number. A freed number is reused only after all others.
    fn number(&mut self) -> u32 {
        loop {
            let number = self.next_number;
            self.next_number = self.next_number.wrapping_add(1).max(1);
            if !self.channels.contains_key(&number) {
                return number;
            }
        }
    }

    fn domain(&self, number: u32) -> Result<&ProtectionDomain, String> {
        let entry = self.domains.get(&number).ok_or_else(|| unknown("protection domain", number))?;
        Ok(&entry.domain)
    }

    fn free_domain(&mut self, number: u32) -> Result<(), String> {
        if self.domain(number)?.is_used() {
            return Err(
                "regions, queue pairs, free lists or portals are in this protection domain".to_owned()
            );
        }
        self.domains.remove(&number);
        Ok(())
    }

    fn allocate(&mut self, asked: Allocate) -> ReplyResult {
        let Allocate { domain, len, access, name } = asked;
        let claim = self.claim(Resource::Region, len)?;
        if !name.is_empty() && self.regions.values().any(|region| region.facts.name == name) {
            return Err(format!(
                "there is a region `{name}` already: take it out of what was kept, or give it back"
            ));
        }
        let access = Access::from_bits(access).ok_or("these rights do not exist")?;
        let domain_number = domain;
        let domain = self.domain(domain)?;
        let memory = fresh(len)?;
        let iova = self.next_address;
        let next = len.checked_next_multiple_of(GAP).and_then(|len| iova.checked_add(len)?.checked_add(GAP));
        let region = domain.register_ranges(&[Range::at(&memory, iova)], access).map_err(words)?;
        let facts =
            RegionFacts { domain: domain_number, key: region.lkey().get(), iova: region.address(), name };
        self.next_address = next.unwrap_or(FIRST_ADDRESS);
        self.keep_region(Region { region, memory: LentMemory(memory), facts, claim })
    }

    fn keep_region(&mut self, region: Region) -> ReplyResult {
        let answer = self.lend_region(&region);
        self.regions.insert(region.facts.key, region);
        answer
    }

    fn lend_region(&self, region: &Region) -> ReplyResult {
        Ok((Reply::Region(region.facts.clone()), vec![descriptor(&region.memory.0)?]))
    }

    fn deregister(&mut self, key: u32) -> Result<(), String> {
        let region = self.regions.remove(&key).ok_or_else(|| unknown("region with key", key))?;
        self.exposed.retain(|_, exposed| exposed.region != key);
        // Dropping the region invalidates its key.
        drop(region);
        Ok(())
    }

    fn create_channel(&mut self) -> ReplyResult {
        let claim = self.claim(Resource::Channel, 0)?;
        let (here, there) = PacketSocket::pair().map_err(words)?;
        let signal = CompletionChannel::to(&self.context, here.into());
        let number = self.number();
        self.channels.insert(number, Channel { signal, _claim: claim });
        Ok((Reply::Number(number), vec![there.into()]))
    }

    fn create_cq(&mut self, asked: &CreateCq) -> ReplyResult {
        let depth = asked.depth.max(1);
        let counted = asked.counted;
        let claim = self.claim(Resource::Queue, remora_nic::Ring::size(depth) as u64)?;
        let channel = match asked.channel {
            0 => None,
            number => {
                let channel = self.channels.get(&number);
                Some(&channel.ok_or_else(|| unknown("completion channel", number))?.signal)
            }
        };
        let options = CqOptions { depth, channel, counted, ..CqOptions::default() };
        let cq = CompletionQueue::tagged(&self.context, &options, asked.tag).map_err(words)?;
        let facts = QueueFacts { number: cq.shared().number, tag: asked.tag };
        let memory = LentMemory(cq.ring().bytes().clone());
        let queue = Queue { cq, _memory: memory, facts, claim };
        let answer = self.lend_queue(&queue);
        self.queues.insert(queue.facts.number, queue);
        answer
    }

    fn lend_queue(&self, queue: &Queue) -> ReplyResult {
        Ok((Reply::Queue(queue.facts.clone()), vec![descriptor(queue.cq.ring().bytes())?]))
    }

    fn destroy_cq(&mut self, number: u32) -> Result<(), String> {
        let queue = self.queues.get(&number).ok_or_else(|| unknown("completion queue", number))?;
        if queue.cq.is_used() {
            return Err("queue pairs use this completion queue, or a portal does".to_owned());
        }
        self.queues.remove(&number);
        Ok(())
    }

    fn create_qp(&mut self, asked: CreateQp) -> ReplyResult {
        let [sends, receives] = self.ends(&asked)?;
        let claim = self.claim(Resource::Pair, ring_bytes(&asked.options))?;
        let domain = self.domain(asked.domain)?;
        let options = &asked.options;
        let made = QueuePair::new(domain, sends, receives, asked.service, None, options);
        let mut pair = made.map_err(words)?;
        let bell = pair.share_bell(self.set).map_err(words)?;
        self.keep_pair(Stage::Idle(pair), bell, asked, claim)
    }

    /// Returns the completion queues of a requested queue pair.
    fn ends(&self, asked: &CreateQp) -> Result<[&CompletionQueue; 2], String> {
        if !matches!(asked.service, Service::Rc | Service::Uc) {
            return Err(CreateError::NotByDaemon.to_string());
        }
        asked.options.check(Own::Both).map_err(words)?;
        let queue = |number| {
            self.queues.get(&number).map(|queue| &queue.cq).ok_or_else(|| unknown("completion queue", number))
        };
        Ok([queue(asked.send_cq)?, queue(asked.receive_cq)?])
    }

    /// Records a new queue pair, with `bell` as its index among the tenant's doorbells, and lends it to the
    /// program.
    fn keep_pair(&mut self, stage: Stage, bell: u32, asked: CreateQp, claim: Claim) -> ReplyResult {
        let CreateQp { domain, send_cq, receive_cq, service, mut options } = asked;
        options.connect_timeout = options.connect_timeout.min(LONGEST);
        let number = stage.number();
        let agreement = None;
        let facts = PairFacts { number, bell, domain, send_cq, receive_cq, service, options, agreement };
        let memory = stage.rings()?.map(|ring| LentMemory(ring.bytes().clone()));
        let pair = Pair { stage, _memory: memory, facts, claim };
        let answer = self.lend_pair(&pair);
        self.pairs.insert(pair.facts.number, pair);
        answer
    }

    fn lend_pair(&self, pair: &Pair) -> ReplyResult {
        let [send, receive] = pair.stage.rings()?;
        let mut lent = vec![descriptor(send.bytes())?, descriptor(receive.bytes())?];
        if let Stage::Up(up) = &pair.stage
            && let Some(connection) = up.connection()
        {
            lent.push(connection.try_clone().map_err(words)?.into());
        }
        Ok((Reply::Pair(Box::new(pair.facts.clone())), lent))
    }

    fn pair(&self, number: u32) -> Result<&Pair, String> {
        self.pairs.get(&number).ok_or_else(|| unknown("queue pair", number))
    }

    fn destroy_qp(&mut self, number: u32) -> Result<(), String> {
        if let Stage::Away = self.pair(number)?.stage {
            return Err(AWAY.to_owned());
        }
        self.forget_pair(number);
        Ok(())
    }

    fn forget_pair(&mut self, number: u32) {
        self.pairs.remove(&number);
    }

    /// Takes queue pairs out for a negotiation: all of them or none.
    pub(crate) fn take(&mut self, numbers: &[u32]) -> Result<Vec<QueuePair<Init>>, String> {
        let claim = self.user.claim(Amounts::of(Resource::Negotiation, 1))?;
        for number in numbers {
            if !matches!(self.pair(*number)?.stage, Stage::Idle(_)) {
                return Err("this queue pair is connected, or being connected".to_owned());
            }
        }
        if let [one, other] = numbers
            && one == other
        {
            return Err("a queue pair is not connected to itself".to_owned());
        }
        self.negotiations.push(claim);
        let mut taken = Vec::with_capacity(numbers.len());
        for number in numbers {
            if let Some(pair) = self.pairs.get_mut(number)
                && let Stage::Idle(idle) = std::mem::replace(&mut pair.stage, Stage::Away)
            {
                taken.push(idle);
            }
        }
        Ok(taken)
    }

    /// Returns queue pairs from a negotiation. Those that were not connected are removed from the tenant.
    pub(crate) fn give_back(&mut self, numbers: &[u32], pairs: Option<Vec<QueuePair<Ready>>>) {
        self.negotiations.pop();
        let mut pairs = pairs.unwrap_or_default().into_iter();
        for number in numbers {
            match (pairs.next(), self.pairs.get_mut(number)) {
                (Some(up), Some(pair)) => {
                    pair.facts.agreement = up.agreement().cloned();
                    pair.stage = Stage::Up(up);
                }
                _ => self.forget_pair(*number),
            }
        }
    }
}

/// The number of doorbells of a tenant, which serve its queue pairs and its portals.
fn bells(limits: &Limits) -> usize {
    limits.pairs.saturating_add(limits.rma_portals)
}

/// The bytes of the send queue and the receive queue.
fn ring_bytes(options: &QpOptions) -> u64 {
    let send = options.max_send_wr.max(remora_nic::wqe::MAX_SLOTS as u32);
    let receive = options.max_recv_wr.max(1) * remora_nic::stride(options.max_recv_sge) as u32;
    (remora_nic::Ring::size(send) + remora_nic::Ring::size(receive)) as u64
}

/// A tenant that several threads access.
pub(super) type Shared = Arc<std::sync::Mutex<Tenant>>;
