//! The daemon: who may attach, and what becomes of a tenant when its program is gone.

use remora_host::packet::{PacketListener, PacketSocket};
use remora_host::{Adapter, OpenError, Signal, metrics::Family, wait_either};
use remora_memory::ForkMark;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::message::{MAX_PACKET, Reply, Request, VERSION};
use super::negotiate;
use super::tenant::{Answer, Limits, Shared, Tenant};
use crate::{Context, Device, PortFacts};

/// How a daemon shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What each tenant may have.
    pub limits: Limits,
    /// Programs attached at a time.
    pub attachments: usize,
    /// Tenants that are kept, attached or not.
    pub tenants: usize,
    /// Users that may attach beside the daemon's own.
    pub allow: Vec<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options { limits: Limits::default(), attachments: 64, tenants: 64, allow: Vec::new() }
    }
}

/// A tenant, as the daemon's owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantFacts {
    /// Its user.
    pub uid: u32,
    /// Its name; none: it goes with its program.
    pub name: String,
    /// A program is attached.
    pub attached: bool,
    /// Regions that it has.
    pub regions: usize,
    /// Completion queues that it has.
    pub queues: usize,
    /// Queue pairs that it has.
    pub pairs: usize,
    /// Bytes that it has.
    pub bytes: u64,
}

/// Time in which who connects says who it is, and takes an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time that a name may still be another program's: one that was killed a moment ago.
const HANDOVER: Duration = Duration::from_secs(2);

/// By user and name.
type Name = (u32, String);

/// Who is there.
#[derive(Default)]
struct Register {
    kept: BTreeMap<Name, Shared>,
    attached: BTreeSet<Name>,
    passing: BTreeMap<u64, (u32, Shared)>,
    sockets: BTreeMap<u64, PacketSocket>,
    threads: BTreeMap<u64, JoinHandle<()>>,
    /// Those that have not said who they are.
    silent: BTreeSet<u64>,
}

struct House {
    context: Context,
    options: Options,
    uid: u32,
    register: Mutex<Register>,
    changed: Condvar,
    stop: Signal<()>,
    stopped: AtomicBool,
    refused: AtomicU64,
}

/// A running daemon. Dropping it ends everything that it lends.
pub struct Daemon {
    house: Arc<House>,
    acceptor: Option<JoinHandle<()>>,
    fork: ForkMark,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

impl Daemon {
    /// Opens the NIC, with one engine that a thread drives, and listens at `socket`.
    ///
    /// # Errors
    /// One line that says what is wrong and how to mend it.
    pub fn open(device: &Device, socket: &Path, options: &Options) -> Result<Daemon, OpenError> {
        let adapter = Adapter::open(&device.of_daemon())?;
        let listener = PacketListener::bind(socket, !options.allow.is_empty()).map_err(|error| {
            let at = socket.display();
            OpenError::Port(match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!(
                        "{at} is taken: a daemon listens there, or it is no socket; choose another --socket"
                    )
                }
                std::io::ErrorKind::NotFound => {
                    format!("{at}: there is no such folder; make it, or choose another --socket")
                }
                _ => format!("listening at {at}: {error}"),
            })
        })?;
        let house = Arc::new(House {
            context: Context::new(adapter, true),
            options: options.clone(),
            uid: remora_host::packet::own_uid(),
            register: Mutex::default(),
            changed: Condvar::new(),
            stop: Signal::new(1)?,
            stopped: AtomicBool::new(false),
            refused: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&house);
        let acceptor = std::thread::Builder::new()
            .name("remora-nicd".to_owned())
            .spawn(move || accept_all(&accepting, &listener))?;
        Ok(Daemon { house, acceptor: Some(acceptor), fork: ForkMark::get() })
    }

    /// The facts of its port.
    pub fn port(&self) -> PortFacts {
        self.house.context.port()
    }

    /// Everything that its NIC counts.
    pub fn metrics(&self) -> Vec<Family> {
        self.house.context.metrics()
    }

    /// Who is there; nobody in a forked child.
    pub fn tenants(&self) -> Vec<TenantFacts> {
        if self.fork.is_child() {
            return Vec::new();
        }
        let register = self.house.register();
        let facts = |uid: u32, name: &str, attached: bool, tenant: &Shared| {
            let (regions, queues, pairs, bytes) = lock(tenant).counts();
            TenantFacts { uid, name: name.to_owned(), attached, regions, queues, pairs, bytes }
        };
        let kept = register
            .kept
            .iter()
            .map(|(name, tenant)| facts(name.0, &name.1, register.attached.contains(name), tenant));
        kept.chain(register.passing.values().map(|(uid, tenant)| facts(*uid, "", true, tenant))).collect()
    }

    /// Connections turned away, and requests that made no sense.
    pub fn refused(&self) -> u64 {
        self.house.refused.load(Ordering::Relaxed)
    }

    /// With whom a queue pair shares turns.
    #[cfg(test)]
    pub(super) fn party(&self, pair: u32) -> Option<u32> {
        let [engine, ..] = self.house.context.own_engines() else { return None };
        engine.control(|control| control.nic.tenant(remora_wire::Qpn::new(pair)))
    }

    /// Has a thread that drives the NIC failed? Nothing is certain after that.
    pub fn has_failed(&self) -> bool {
        self.house.context.has_failed()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.fork.is_child() {
            // The threads, the sockets and the programs attached are the parent's.
            std::mem::forget(self.acceptor.take());
            std::mem::forget(Arc::clone(&self.house));
            return;
        }
        self.house.stopped.store(true, Ordering::Release);
        self.house.stop.put(());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let threads = {
            let mut register = self.house.register();
            register.sockets.values().for_each(PacketSocket::hang_up);
            std::mem::take(&mut register.threads)
        };
        self.house.changed.notify_all();
        for thread in threads.into_values() {
            let _ = thread.join();
        }
        self.house.register().kept.clear();
    }
}

fn lock(tenant: &Shared) -> MutexGuard<'_, Tenant> {
    tenant.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept_all(house: &Arc<House>, listener: &PacketListener) {
    let mut serial = 0;
    while !house.stopped.load(Ordering::Acquire) {
        if wait_either(listener, &house.stop).is_err() {
            continue;
        }
        match listener.accept() {
            Ok(Some(socket)) => {
                serial += 1;
                house.make_room();
                house.admit(serial, socket);
            }
            Ok(None) => {}
            // Out of descriptors, most likely: spinning would not bring them back.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl House {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where all places are taken, the oldest gives way that has not said who it is.
    fn make_room(&self) {
        let mut register = self.register();
        register.threads.retain(|_, thread| !thread.is_finished());
        if register.threads.len() < self.options.attachments {
            return;
        }
        let Some(oldest) = register.silent.pop_first() else { return };
        if let Some(socket) = register.sockets.get(&oldest) {
            socket.hang_up();
        }
        let thread = register.threads.remove(&oldest);
        drop(register);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Somebody has connected.
    fn admit(self: &Arc<Self>, serial: u64, socket: PacketSocket) {
        let mut register = self.register();
        register.threads.retain(|_, thread| !thread.is_finished());
        let refusal = match socket.peer_uid() {
            Ok(uid) if uid != self.uid && !self.options.allow.contains(&uid) => {
                Some(format!("the NIC daemon does not admit uid {uid}: start it with --allow-uid {uid}"))
            }
            Ok(_) if register.threads.len() >= self.options.attachments => Some(format!(
                "{} programs are attached: end one, or start `remora nicd` with more --attachments",
                self.options.attachments
            )),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        // A socket that takes nothing holds nobody up.
        let _ = socket.set_patience(Some(PATIENCE), Some(PATIENCE));
        if let Some(words) = refusal {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let _ = socket.send(&Reply::Refused(words).emit(), &[]);
            return;
        }
        let Ok(handle) = socket.try_clone() else { return };
        register.sockets.insert(serial, handle);
        register.silent.insert(serial);
        let house = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("remora-attach".to_owned()).spawn(move || {
            house.serve(serial, &socket);
            let mut register = house.register();
            register.sockets.remove(&serial);
            register.silent.remove(&serial);
        });
        match spawned {
            Ok(thread) => drop(register.threads.insert(serial, thread)),
            Err(_) => {
                register.sockets.remove(&serial);
                register.silent.remove(&serial);
            }
        }
    }

    /// One program, from its first word to its end.
    fn serve(&self, serial: u64, socket: &PacketSocket) {
        let Ok(uid) = socket.peer_uid() else { return };
        let request = first_word(socket);
        self.register().silent.remove(&serial);
        let (name, tenant) = match request.and_then(|request| self.greet(uid, request)) {
            Ok(known) => known,
            Err(words) => return self.refuse(socket, words),
        };
        if name.is_none() {
            self.register().passing.insert(serial, (uid, Arc::clone(&tenant)));
        }
        let welcome = lock(&tenant).welcome();
        if answer(socket, welcome) && socket.set_patience(Some(PATIENCE), None).is_ok() {
            while self.hear(socket, &tenant) {}
        }
        self.part(serial, name, &tenant);
    }

    fn refuse(&self, socket: &PacketSocket, words: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let _ = socket.send(&Reply::Refused(words).emit(), &[]);
    }

    /// The first word: whose things these are.
    fn greet(&self, uid: u32, request: Request) -> Result<(Option<Name>, Shared), String> {
        let Request::Attach { version, name, kept } = request else { return Err(nonsense()) };
        if version != VERSION {
            return Err(format!(
                "the program speaks version {version} to its NIC daemon, which speaks {VERSION}: update the older one"
            ));
        }
        let fresh = || {
            let tenant =
                Tenant::new(&self.context, self.options.limits).map_err(|error| error.to_string())?;
            Ok::<Shared, String>(Arc::new(Mutex::new(tenant)))
        };
        if !kept {
            return Ok((None, fresh()?));
        }
        if name.is_empty() {
            return Err("who wants to be kept needs a name".to_owned());
        }
        let name = (uid, name);
        let mut register = self.wait_for(&name)?;
        if !register.kept.contains_key(&name) {
            if register.kept.len() >= self.options.tenants {
                return Err(format!(
                    "{} tenants are kept: let one give back what it has, or start `remora nicd` with more --tenants",
                    self.options.tenants
                ));
            }
            let tenant = fresh()?;
            register.kept.insert(name.clone(), tenant);
        }
        register.attached.insert(name.clone());
        let tenant = register.kept.get(&name).cloned().ok_or_else(nonsense)?;
        Ok((Some(name), tenant))
    }

    /// Until no other program has this name.
    fn wait_for(&self, name: &Name) -> Result<MutexGuard<'_, Register>, String> {
        let until = Instant::now() + HANDOVER;
        let mut register = self.register();
        while register.attached.contains(name) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stopped.load(Ordering::Acquire) {
                return Err(format!(
                    "another program is attached as `{}`: end it, or choose another name",
                    name.1
                ));
            }
            register = self.changed.wait_timeout(register, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(register)
    }

    /// One request. False: the program is gone, or makes no sense.
    fn hear(&self, socket: &PacketSocket, tenant: &Shared) -> bool {
        let mut room = [0; MAX_PACKET];
        let packet = match socket.receive(&mut room) {
            Ok(packet) if packet.len > 0 => packet,
            _ => return false,
        };
        let Some(request) = Request::parse(&room[..packet.len]).filter(|_| !packet.cut) else {
            self.refuse(socket, nonsense());
            return false;
        };
        let done = match request {
            Request::Connect { .. } | Request::ConnectPair { .. } | Request::Answer { .. } => {
                negotiate::begin(tenant, request, packet.descriptors)
            }
            request => lock(tenant).execute(request),
        };
        answer(socket, done)
    }

    /// A program is gone.
    fn part(&self, serial: u64, name: Option<Name>, tenant: &Shared) {
        let mut register = self.register();
        register.passing.remove(&serial);
        if let Some(name) = name {
            lock(tenant).farewell();
            if lock(tenant).is_empty() {
                register.kept.remove(&name);
            }
            register.attached.remove(&name);
        }
        self.changed.notify_all();
    }
}

fn nonsense() -> String {
    "this is no request to a NIC daemon".to_owned()
}

fn first_word(socket: &PacketSocket) -> Result<Request, String> {
    let mut room = [0; MAX_PACKET];
    let packet = socket.receive(&mut room).map_err(|error| error.to_string())?;
    Request::parse(&room[..packet.len]).filter(|_| !packet.cut).ok_or_else(nonsense)
}

fn answer(socket: &PacketSocket, answer: Answer) -> bool {
    let (reply, descriptors) = answer.unwrap_or_else(|words| (Reply::Refused(words), Vec::new()));
    let descriptors: Vec<_> = descriptors.iter().map(std::os::fd::AsFd::as_fd).collect();
    socket.send(&reply.emit(), &descriptors).is_ok()
}
