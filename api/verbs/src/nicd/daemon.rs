//! The daemon: admitting programs, serving their requests, and ending their tenants.

use remora_host::acceptor::{Acceptor, Arrival};
use remora_host::packet::{FoundBy, PacketListener, PacketSocket, PeerCredentials, own_uid};
use remora_host::{Adapter, OpenError, Signal, metrics::Family, wait_any, wait_either, wait_readable};
use remora_memory::ForkMark;
use remora_port::user;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::message::{MAGIC, MAX_PACKET, Refusal, Reply, Request, TenantFacts, VERSION, wipe};
use super::options::Options;
use super::rma::RmaService;
use super::tenant::{EventRoutes, Program, ReplyResult, Services, Shared, Tenant, begin, load};
use super::users::{Claim, User, Users, attachment, bounds, descriptors, kept_name};
use crate::rma::RmaOptions;
use crate::{Context, Counters, Device, PortFacts};

/// Time limit for a new program to send its first message, and for every program to receive a reply.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time to wait until another program with the same name has ended, for instance one that was just killed.
const HANDOVER: Duration = Duration::from_secs(2);
/// The longest sleep of the thread that accepts connections.
const IDLE: Duration = Duration::from_secs(3600);
/// The user that may list and end the tenants of every daemon.
const ROOT: u32 = 0;

/// The identity of a kept tenant: its user and its name.
type Name = (u32, String);

/// A kept tenant with the claim on a place for its name.
struct Kept {
    tenant: Shared,
    _claim: Claim,
}

/// The program that is attached under a name.
struct Holder {
    /// The number of the program's connection.
    serial: u64,
    /// The program's process id; 0 if the daemon cannot see the process.
    pid: u32,
}

/// The tenants and the attached programs.
#[derive(Default)]
struct Register {
    kept: BTreeMap<Name, Kept>,
    attached: BTreeMap<Name, Holder>,
    passing: BTreeMap<u64, (u32, Shared)>,
    sockets: BTreeMap<u64, PacketSocket>,
    threads: BTreeMap<u64, JoinHandle<()>>,
}

struct DaemonState {
    context: Context,
    services: Services,
    uid: u32,
    register: Mutex<Register>,
    changed: Condvar,
    stop: Signal<()>,
    stopped: AtomicBool,
    /// The number of the next connection.
    next: AtomicU64,
    refused: AtomicU64,
}

/// A running daemon. Dropping it ends everything that it lends.
pub struct Daemon {
    state: Arc<DaemonState>,
    acceptor: Option<JoinHandle<()>>,
    fork: ForkMark,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

impl Daemon {
    /// Opens the NIC with one engine, driven by a thread, and listens at `socket`.
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn open(device: &Device, socket: &Path, options: &Options) -> Result<Daemon, OpenError> {
        let mut bounds = bounds(device, options);
        bounds.push(descriptors());
        let users = Users::new(own_uid(), &options.allow, bounds);
        let mut daemon = Daemon::lend(device, options)?;
        let listener = listen(socket, !options.allow.is_empty())?;
        let state = Arc::clone(&daemon.state);
        let mut acceptor = Acceptor::new(PATIENCE)?;
        let thread = std::thread::Builder::new()
            .name("remora-nicd".to_owned())
            .spawn(move || state.accept_all(&users, &listener, &mut acceptor))?;
        daemon.acceptor = Some(thread);
        Ok(daemon)
    }

    /// Opens the NIC like [`open`](Daemon::open), without a socket: another service of the process accepts
    /// the programs, and hands them over by [`serve`](Daemon::serve).
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn lend(device: &Device, options: &Options) -> Result<Daemon, OpenError> {
        let context = Context::new(Adapter::open(&device.of_daemon())?);
        let events = Arc::new(EventRoutes::default());
        for engine in context.own_engines() {
            let routes = Arc::clone(&events);
            engine.hook_events(Arc::new(move |event| routes.report(event)));
        }
        let settings = options.rma;
        let regions = options.rma_regions;
        let rma = RmaOptions { settings, regions, ..RmaOptions::default() };
        let rma = Arc::new(RmaService::new(&context, rma));
        let Options { limits, loader, .. } = *options;
        let services = Services { limits, rma, events, outliving: Arc::default(), loader };
        let state = Arc::new(DaemonState {
            context,
            services,
            uid: own_uid(),
            register: Mutex::default(),
            changed: Condvar::new(),
            stop: Signal::new(1)?,
            stopped: AtomicBool::new(false),
            next: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        Ok(Daemon { state, acceptor: None, fork: ForkMark::get() })
    }

    /// Serves a program whose first message asks for the NIC, on a thread of its own.
    ///
    /// # Errors
    /// Returns an arrival whose first message is for another service.
    pub fn serve(&self, arrival: Arrival) -> Result<(), Arrival> {
        // The place of these bytes does not depend on the version of the messages.
        if arrival.message.get(1..1 + MAGIC.len()) == Some(&MAGIC[..]) {
            self.state.begin(arrival);
            return Ok(());
        }
        Err(arrival)
    }

    /// The kind, address and path MTU of the daemon's port.
    pub fn port(&self) -> PortFacts {
        self.state.context.port()
    }

    /// The counters of the daemon's NIC.
    pub fn counters(&self) -> Counters {
        self.state.context.counters()
    }

    /// All counters of the daemon's NIC, as metrics for Prometheus.
    pub fn metrics(&self) -> Vec<Family> {
        self.state.context.metrics()
    }

    /// The tenants; empty in a forked child.
    pub fn tenants(&self) -> Vec<TenantFacts> {
        if self.fork.is_child() {
            return Vec::new();
        }
        self.state.facts(|_| true)
    }

    /// The number of refused connections and malformed requests.
    pub fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::Relaxed)
    }

    /// The number of the tenant whose share of the NIC queue pair `pair` uses.
    #[cfg(test)]
    pub(super) fn party(&self, pair: u32) -> Option<u32> {
        let [engine, ..] = self.state.context.own_engines() else { return None };
        let facts: remora_nic::QueuePairFacts =
            engine.ask(remora_nic::Command::QueryQp(remora_wire::Qpn::new(pair))).ok()?;
        Some(facts.tenant)
    }

    /// The NIC as its owner uses it. Its counters are those of all tenants.
    pub fn context(&self) -> &Context {
        &self.state.context
    }

    /// The present numbers of 1RMA objects on the engine. `None` before a tenant has used 1RMA.
    pub fn rma_facts(&self) -> Option<remora_nic::rma::Facts> {
        let [engine, ..] = self.state.context.own_engines() else { return None };
        engine.rma_facts()
    }

    /// Returns whether a thread that drives the NIC has failed. The daemon is not usable after that.
    pub fn has_failed(&self) -> bool {
        self.state.context.has_failed()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.fork.is_child() {
            // The threads, sockets and attached programs belong to the parent.
            std::mem::forget(self.acceptor.take());
            std::mem::forget(Arc::clone(&self.state));
            return;
        }
        self.state.stopped.store(true, Ordering::Release);
        self.state.stop.put(());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let threads = {
            let mut register = self.state.register();
            register.sockets.values().for_each(PacketSocket::hang_up);
            std::mem::take(&mut register.threads)
        };
        self.state.changed.notify_all();
        for thread in threads.into_values() {
            let _ = thread.join();
        }
        let kept = std::mem::take(&mut self.state.register().kept);
        drop(kept);
    }
}

/// Listens at a path, for this user only or for all users.
///
/// # Errors
/// [`OpenError`], whose text says in one line what is wrong and how to put it right.
pub fn listen(socket: &Path, everybody: bool) -> Result<PacketListener, OpenError> {
    PacketListener::bind(socket, everybody).map_err(|error| {
        let path = socket.display();
        OpenError::Port(match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!(
                    "{path} is taken: a daemon listens there, or it is no socket; choose another --socket"
                )
            }
            std::io::ErrorKind::NotFound => {
                format!("{path}: there is no such folder; make it, or choose another --socket")
            }
            _ => format!("listening at {path}: {error}"),
        })
    })
}

fn lock(tenant: &Shared) -> MutexGuard<'_, Tenant> {
    tenant.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DaemonState {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_all(self: &Arc<Self>, users: &Arc<Users>, listener: &PacketListener, acceptor: &mut Acceptor) {
        let admit = |peer: &PeerCredentials| users.admit(peer).ok_or_else(|| not_admitted(peer.uid));
        while !self.stopped.load(Ordering::Acquire) {
            let rest = acceptor.rest().unwrap_or(IDLE);
            // Most likely there are no descriptors left, and trying without a pause would not free any.
            let pause = |_| std::thread::sleep(Duration::from_millis(10));
            let _ = wait_any(&[listener.as_fd(), acceptor.as_fd(), self.stop.as_fd()], rest);
            let refused = acceptor.refused();
            acceptor.accept(listener, admit).unwrap_or_else(pause);
            self.refused.fetch_add(acceptor.refused() - refused, Ordering::Relaxed);
            while let Some(arrival) = acceptor.next_arrival() {
                self.begin(arrival);
            }
        }
    }

    /// Starts the thread that serves a program.
    fn begin(self: &Arc<Self>, arrival: Arrival) {
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        let mut register = self.register();
        register.threads.retain(|_, thread| !thread.is_finished());
        let Ok(handle) = arrival.socket.try_clone() else { return };
        // A program that reads nothing must not block the daemon.
        if handle.set_patience(Some(PATIENCE), None).is_err() {
            return;
        }
        register.sockets.insert(serial, handle);
        let state = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("remora-attach".to_owned()).spawn(move || {
            state.serve(serial, &arrival);
            state.register().sockets.remove(&serial);
        });
        match spawned {
            Ok(thread) => drop(register.threads.insert(serial, thread)),
            Err(_) => drop(register.sockets.remove(&serial)),
        }
    }

    /// Serves one program from its first message until it has gone.
    fn serve(&self, serial: u64, arrival: &Arrival) {
        let Arrival { socket, user, message, .. } = arrival;
        let Ok(program) = Program::at(socket) else { return };
        let uid = user.uid();
        let request = match Request::parse(message).ok_or_else(nonsense) {
            Ok(Request::List { version }) => return self.list(socket, uid, version),
            Ok(Request::End { version, uid: owner, name }) => {
                let done = right_version(version).and_then(|()| self.end(uid, (owner, name)));
                answer(socket, done.map(|()| (Reply::Done, Vec::new())));
                return;
            }
            request => request,
        };
        let attached = request.and_then(|request| {
            let place = user.claim(attachment()).map_err(Refusal::Limit)?;
            let holder = Holder { serial, pid: program.pid };
            self.greet(user, holder, request).map(|known| (known, place))
        });
        let ((name, tenant), _place) = match attached {
            Ok(known) => known,
            Err(words) => return self.refuse(socket, words),
        };
        if name.is_none() {
            self.register().passing.insert(serial, (uid, Arc::clone(&tenant)));
        }
        // The socket alone does not show the end of a process whose child holds it open.
        let process = socket.peer_process(FoundBy::default()).ok().map(Arc::new);
        let welcome = lock(&tenant).welcome(program, process.clone());
        if answer(socket, welcome) {
            while has_packet(socket, process.as_deref()) && self.serve_request(socket, &tenant) {}
        }
        self.part(serial, name, &tenant);
    }

    fn refuse(&self, socket: &PacketSocket, refusal: impl Into<Refusal>) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let _ = socket.send(&Reply::from(refusal.into()).emit(), &[]);
    }

    /// Handles the first message of a program. Returns the name and tenant that the program uses.
    fn greet(
        &self,
        user: &User,
        holder: Holder,
        request: Request,
    ) -> Result<(Option<Name>, Shared), Refusal> {
        let Request::Attach { version, name, kept } = request else { return Err(nonsense()) };
        right_version(version)?;
        self.services.outliving.sweep();
        let fresh = || {
            let tenant = Tenant::new(&self.context, &self.services, user.clone());
            Ok::<Shared, Refusal>(Arc::new(Mutex::new(tenant.map_err(|error| error.to_string())?)))
        };
        if !kept {
            return Ok((None, fresh()?));
        }
        if name.is_empty() {
            return Err("a tenant that is to be kept needs a name".into());
        }
        let name = (user.uid(), name);
        let mut register = self.wait_for(&name)?;
        if !register.kept.contains_key(&name) {
            let claim = user.claim(kept_name()).map_err(Refusal::Limit)?;
            register.kept.insert(name.clone(), Kept { tenant: fresh()?, _claim: claim });
        }
        register.attached.insert(name.clone(), holder);
        let kept = register.kept.get(&name).ok_or_else(nonsense)?;
        let tenant = Arc::clone(&kept.tenant);
        Ok((Some(name), tenant))
    }

    /// Returns whether a process of this user may list and end the tenants of all users.
    fn manages_all(&self, uid: u32) -> bool {
        uid == self.uid || uid == ROOT
    }

    /// The facts of the tenants of some users. A tenant may be at work for seconds, so the register is not
    /// held meanwhile.
    fn facts(&self, shows: impl Fn(u32) -> bool) -> Vec<TenantFacts> {
        let tenants = self.register().tenants();
        let shown = tenants.into_iter().filter(|(uid, ..)| shows(*uid));
        shown
            .map(|(uid, name, attached, tenant)| TenantFacts { uid, name, attached, ..lock(&tenant).facts() })
            .collect()
    }

    /// Sends the tenants that a user may see.
    fn list(&self, socket: &PacketSocket, uid: u32, version: u16) {
        if let Err(words) = right_version(version) {
            return self.refuse(socket, words);
        }
        let tenants = self.facts(|owner| owner == uid || self.manages_all(uid));
        let replies = tenants.into_iter().map(Reply::Tenant).chain([Reply::Nothing]);
        for reply in replies {
            if !answer(socket, Ok((reply, Vec::new()))) {
                return;
            }
        }
    }

    /// Ends a kept tenant at the request of user `uid`, and disconnects its program if one is attached.
    fn end(&self, uid: u32, name: Name) -> Result<(), Refusal> {
        let (owner, text) = &name;
        if uid != *owner && !self.manages_all(uid) {
            return Err(format!(
                "user {uid} may not end tenants of user {owner}: its own user, the daemon's and root may"
            )
            .into());
        }
        let unknown = || format!("user {owner} has no kept tenant `{text}`: `remora nic tenants` shows them");
        let register = self.register();
        if let Some(holder) = register.attached.get(&name)
            && let Some(socket) = register.sockets.get(&holder.serial)
        {
            socket.hang_up();
        }
        let known = register.kept.contains_key(&name);
        drop(register);
        // A tenant without objects has been removed together with its program.
        let mut register = self.wait_for(&name)?;
        let kept = register.kept.remove(&name);
        drop(register);
        if known || kept.is_some() { Ok(()) } else { Err(unknown().into()) }
    }

    /// Waits until no program is attached under this name.
    fn wait_for(&self, name: &Name) -> Result<MutexGuard<'_, Register>, Refusal> {
        let until = Instant::now() + HANDOVER;
        let mut register = self.register();
        while let Some(holder) = register.attached.get(name) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stopped.load(Ordering::Acquire) {
                return Err(format!(
                    "process {} of user {} is attached as `{}`: end it, or choose another name",
                    holder.pid, name.0, name.1
                )
                .into());
            }
            register = self.changed.wait_timeout(register, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(register)
    }

    /// Receives one request and answers it. Returns false if the program is gone or its packet is malformed.
    fn serve_request(&self, socket: &PacketSocket, tenant: &Shared) -> bool {
        let mut buffer = [0; MAX_PACKET];
        let packet = match socket.receive(&mut buffer) {
            Ok(packet) if packet.len > 0 => packet,
            _ => return false,
        };
        let request = Request::parse(&buffer[..packet.len]).filter(|_| !packet.cut);
        wipe(&mut buffer[..packet.len]);
        let Some(request) = request else {
            self.refuse(socket, nonsense());
            return false;
        };
        let done = match request {
            Request::Long(request) => begin(tenant, request, packet.descriptors),
            Request::HandModule { lanes, memory } => load(tenant, lanes, memory, packet.descriptors),
            request => lock(tenant).execute(request, packet.descriptors),
        };
        answer(socket, done)
    }

    /// Records that a program is gone, and drops its tenant unless the tenant is kept and has objects.
    fn part(&self, serial: u64, name: Option<Name>, tenant: &Shared) {
        let mut register = self.register();
        register.passing.remove(&serial);
        let mut ended = None;
        if let Some(name) = name {
            lock(tenant).farewell();
            if lock(tenant).is_empty() {
                ended = register.kept.remove(&name);
            }
            register.attached.remove(&name);
        }
        self.changed.notify_all();
        drop(register);
        drop(ended);
    }
}

impl Register {
    /// All tenants, kept and unkept, each with its user, its name, and whether a program is attached.
    fn tenants(&self) -> Vec<(u32, String, bool, Shared)> {
        let kept = self.kept.iter().map(|(name, kept)| {
            (name.0, name.1.clone(), self.attached.contains_key(name), Arc::clone(&kept.tenant))
        });
        let passing =
            self.passing.values().map(|(uid, tenant)| (*uid, String::new(), true, Arc::clone(tenant)));
        kept.chain(passing).collect()
    }
}

fn right_version(version: u16) -> Result<(), Refusal> {
    if version == VERSION {
        return Ok(());
    }
    Err(format!(
        "the program speaks version {version} to its NIC daemon, which speaks {VERSION}: update the older one"
    )
    .into())
}

fn not_admitted(uid: u32) -> String {
    match user::is_mapped(uid) {
        true => format!("the NIC daemon does not admit uid {uid}: start it with --allow-uid {uid}"),
        false => format!(
            "the NIC daemon does not admit {}: run both in one user namespace, or start another daemon",
            user::name(uid)
        ),
    }
}

fn nonsense() -> Refusal {
    "this is no request to a NIC daemon".into()
}

/// Waits for the next packet of a program. Returns false if none is left of a process that has ended, as
/// `process` shows.
fn has_packet(socket: &PacketSocket, process: Option<&OwnedFd>) -> bool {
    let Some(process) = process else { return true };
    let _ = wait_either(socket, process);
    let now = Some(Duration::ZERO);
    let is_readable = |descriptor| wait_readable(descriptor, now).unwrap_or(false);
    is_readable(socket.as_fd()) || !is_readable(process.as_fd())
}

fn answer(socket: &PacketSocket, answer: ReplyResult) -> bool {
    let (reply, descriptors) = answer.unwrap_or_else(|refusal| (refusal.into(), Vec::new()));
    let descriptors: Vec<_> = descriptors.iter().map(std::os::fd::AsFd::as_fd).collect();
    let mut packet = reply.emit();
    let sent = socket.send(&packet, &descriptors);
    wipe(&mut packet);
    sent.is_ok()
}
