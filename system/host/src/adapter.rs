//! The adapter: a NIC with its engines, its memory table, and the threads that drive it.

use mio::{Poll, Token, Waker};
use remora_memory::{Biased, ForkMark, Table};
use remora_nic::{Command, Nic};
use remora_port::capture::Capture;
use remora_port::fault::{Fault, Rules};
use remora_port::linked::{LinkedPort, Wanted};
use remora_port::shm::{DEFAULT_GEOMETRY, Geometry, Limits, ShmPort};
use remora_port::udp::{SharedEndpoint, UdpPort};
use remora_port::xdp::XdpPort;
use remora_port::{Address, Endpoint, Port};
use remora_transport::rc::irn::{self, Timers};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::attach::Attach;
use crate::attendant::Attendant;
use crate::clock::Clock;
use crate::dedicated;
use crate::engine::{Cell, Engine, EngineParts, Mode, Observed, PortFacts};
use crate::pass::{Core, EngineEvent};
use crate::peers::EngineId;
use crate::port_kind::PortKind;
use crate::recording::{self, Log, RECORD_LIMIT, Recorder, Tap};
use crate::signal::Signal;
use crate::watch::{WAKER, Watch};

/// RoCE's UDP port number, which frames of the first engine carry over shared memory.
const ROCE_PORT: u16 = 4791;
/// Bytes of headers and trailer around the payload of the longest packet: BTH, immediate data, IRN's RETH
/// and message header, padding, ICRC.
const AROUND_PAYLOAD: usize = 12 + 4 + remora_wire::irn::MAX_LEN + 3 + 4;
/// Maximum number of engines of an adapter.
pub const MAX_ENGINES: usize = 64;
/// Maximum number of asynchronous events that wait to be taken.
const EVENTS: usize = 1024;

/// The kind of port of an adapter's engines, with its options.
#[derive(Clone, Debug)]
pub enum PortConfig {
    /// Shared memory: peers are processes of this host.
    Shm {
        /// Address (GID) of the NIC; `None` for a random one of 127.0.0.0/8.
        address: Option<Ipv4Addr>,
        /// Geometry of the rings of links that this side creates.
        geometry: Geometry,
    },
    /// UDP sockets, one for each engine.
    Udp {
        /// Address of the first engine; further engines use the next UDP ports. With port 0 the system
        /// chooses a port for each engine.
        local: SocketAddr,
        /// Options of the sockets.
        options: remora_port::udp::Options,
    },
    /// A share of an address that several programs use, for one engine: frames of one QPN range.
    Shared {
        /// The share, as lent by the owner of the address.
        endpoint: SharedEndpoint,
        /// Options of the sending socket.
        options: remora_port::udp::Options,
        /// The set of ranges to which the port requests links; `None` for a port without links to
        /// neighbours.
        wanted: Option<Arc<Wanted>>,
    },
    /// A network interface by AF_XDP, with one engine.
    Xdp {
        /// Name of the interface.
        interface: String,
        /// An address of the interface; `None` for its first one.
        address: Option<IpAddr>,
        /// Options of the port.
        options: remora_port::xdp::Options,
    },
}

impl PortConfig {
    /// Returns the configuration of a shared-memory port with the default rings
    /// ([`DEFAULT_GEOMETRY`](remora_port::shm::DEFAULT_GEOMETRY)).
    pub fn shm() -> PortConfig {
        PortConfig::Shm { address: None, geometry: DEFAULT_GEOMETRY }
    }

    /// Returns the configuration of UDP sockets on this address.
    pub fn udp(local: SocketAddr) -> PortConfig {
        PortConfig::Udp { local, options: remora_port::udp::Options::default() }
    }

    /// Returns the configuration of a port on a share of an address.
    pub fn shared(endpoint: SharedEndpoint) -> PortConfig {
        PortConfig::Shared { endpoint, options: remora_port::udp::Options::default(), wanted: None }
    }

    /// Returns the configuration of a port on the network interface of this name, with one of its addresses
    /// (`None` for its first one).
    pub fn xdp(interface: impl Into<String>, address: Option<IpAddr>) -> PortConfig {
        PortConfig::Xdp {
            interface: interface.into(),
            address,
            options: remora_port::xdp::Options::default(),
        }
    }
}

/// The configuration of an adapter to be opened.
#[derive(Clone, Debug)]
pub struct Config {
    /// The port of each engine.
    pub port: PortConfig,
    /// Number of engines. Each has a port of its own and, in dedicated mode, a thread of its own.
    pub engines: usize,
    /// The threads that drive the engines: callers, or dedicated threads.
    pub mode: Mode,
    /// Time without traffic after which an engine's thread sleeps; in dedicated mode only.
    pub spin: Duration,
    /// Limits of memory registration. The key seed is replaced by a random one.
    pub memory: remora_memory::Config,
    /// Limits of each engine. The ICRC check and the window are determined by the port, and the seed of
    /// queue pair numbers is replaced by a random one.
    pub nic: remora_nic::Config,
    /// Path of the pcapng file that records all frames of the port; `None` for no capture. Further engines
    /// insert their number into the name.
    pub capture: Option<PathBuf>,
    /// Maximum size in bytes of each capture file; frames beyond are only counted.
    pub capture_limit: u64,
    /// Path of the file that records the NIC for a replay ([`crate::recording`]); `None` for no recording.
    pub record: Option<PathBuf>,
    /// Maximum size of that file in bytes; the recording ends there.
    pub record_limit: u64,
    /// Rules of fault injection. A capture shows the frames as they are after the faults.
    pub fault: Option<Rules>,
}

impl Config {
    /// Returns the configuration of one inline engine over this port.
    pub fn new(port: PortConfig) -> Config {
        Config {
            port,
            engines: 1,
            mode: Mode::Inline,
            spin: Duration::from_micros(100),
            memory: remora_memory::Config::default(),
            nic: remora_nic::Config::default(),
            capture: None,
            capture_limit: remora_port::capture::CAPTURE_LIMIT,
            record: None,
            record_limit: RECORD_LIMIT,
            fault: None,
        }
    }
}

/// The reason why an adapter could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The number of engines is not allowed.
    #[error("an adapter has 1 to {max_engines} engines, not {0}", max_engines = MAX_ENGINES)]
    Engines(usize),
    /// The port's error: one line with the problem and its solution.
    #[error("{0}")]
    Port(String),
    /// The memory table could not be created.
    #[error("the memory table: {0}")]
    Memory(remora_memory::Error),
    /// The system has no descriptor, no thread or no randomness.
    #[error("cannot open the NIC: {0}{advice}", advice = remora_port::remedy(.0))]
    System(io::Error),
    /// This system call failed.
    #[error("cannot open the NIC, in {0}: {1}{advice}", advice = remora_port::remedy(.1))]
    Call(&'static str, io::Error),
}

/// Returns a function that adds the name of the system call to an error.
fn refused<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> OpenError {
    move |error| OpenError::Call(call, error.into())
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::System(error)
    }
}

/// A running NIC. Dropping it stops its threads and closes its ports; the retries of peers then time out.
pub struct Adapter {
    engines: Vec<Arc<Engine>>,
    table: Arc<Table>,
    events: Arc<Signal<EngineEvent>>,
    port: PortConfig,
    next: AtomicUsize,
    threads: Threads,
    /// True once the NIC has lost its place on the network ([`Adapter::fail`]).
    lost: AtomicBool,
    fork: ForkMark,
}

/// The threads that drive the engines, and the flags that stop them.
#[derive(Default)]
struct Threads {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
    running: Vec<(Arc<Waker>, JoinHandle<()>)>,
}

/// Sets its flag if the thread that holds it panics.
struct PanicFlag(Arc<AtomicBool>);

impl Drop for PanicFlag {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

impl Threads {
    fn spawn(
        &mut self,
        name: String,
        waker: &Arc<Waker>,
        body: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let panic_flag = PanicFlag(Arc::clone(&self.failed));
        let failed = Arc::clone(&self.failed);
        let thread = remora_port::spawn_settled(name, move || {
            let _flag = panic_flag;
            if let Err(error) = body() {
                tracing::error!(%error, "a thread that drives engines ends because it cannot wait for events");
                failed.store(true, Ordering::Release);
            }
        })?;
        self.running.push((Arc::clone(waker), thread));
        Ok(())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        for (waker, thread) in self.running.drain(..) {
            let _ = waker.wake();
            if thread.join().is_err() {
                tracing::error!("a thread that drives engines had panicked");
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

impl Adapter {
    /// Opens the ports and starts the threads.
    ///
    /// # Errors
    /// [`OpenError`]: a message of one line with the problem and its solution.
    pub fn open(config: &Config) -> Result<Adapter, OpenError> {
        if !(1..=MAX_ENGINES).contains(&config.engines) {
            return Err(OpenError::Engines(config.engines));
        }
        let random = random()?;
        let seeded = remora_memory::Config { key_seed: random as u64, ..config.memory };
        let table = Arc::new(Table::new(seeded).map_err(OpenError::Memory)?);
        let events = Arc::new(Signal::new(EVENTS).map_err(refused("eventfd2"))?);
        let mut adapter = Adapter {
            engines: Vec::with_capacity(config.engines),
            table,
            events,
            port: config.port.clone(),
            next: AtomicUsize::new(0),
            threads: Threads::default(),
            lost: AtomicBool::new(false),
            fork: ForkMark::get(),
        };
        let clock = Clock::new();
        match config.mode {
            Mode::Inline => adapter.start_inline(config, &clock)?,
            Mode::Dedicated => adapter.start_dedicated(config, &clock)?,
        }
        let first = adapter.engines[0].facts();
        tracing::info!(port = %first.kind, manner = first.manner, endpoint = %first.endpoint, engines = config.engines, mode = ?config.mode, "adapter open");
        Ok(adapter)
    }

    fn start_inline(&mut self, config: &Config, clock: &Clock) -> Result<(), OpenError> {
        let (poll, waker) = poll()?;
        for number in 0..config.engines {
            self.add_engine(config, number, &poll, &waker, Token(number), clock)?;
        }
        let attendant = Attendant::new(&self.engines, poll, clock.clone(), Arc::clone(&self.threads.stop));
        let spawned = self.threads.spawn("remora-attend".to_owned(), &waker, move || attendant.run());
        spawned.map_err(refused("clone3"))?;
        Ok(())
    }

    fn start_dedicated(&mut self, config: &Config, clock: &Clock) -> Result<(), OpenError> {
        for number in 0..config.engines {
            let (poll, waker) = poll()?;
            self.add_engine(config, number, &poll, &waker, Token(0), clock)?;
            let engine = Arc::clone(&self.engines[number]);
            let clock = clock.clone();
            let spin = config.spin;
            let stop = Arc::clone(&self.threads.stop);
            let body = move || dedicated::run(&engine, poll, &clock, &stop, spin);
            let spawned = self.threads.spawn(format!("remora-engine-{number}"), &waker, body);
            spawned.map_err(refused("clone3"))?;
        }
        Ok(())
    }

    fn add_engine(
        &mut self,
        config: &Config,
        number: usize,
        poll: &Poll,
        waker: &Arc<Waker>,
        token: Token,
        clock: &Clock,
    ) -> Result<(), OpenError> {
        let watch = Watch::new(poll.registry().try_clone()?, Arc::clone(waker), token);
        let id = EngineId(random()?);
        let core_parts = CoreParts {
            config,
            number,
            qpn_seed: random()? as u64,
            watch,
            clock: clock.clone(),
            events: Arc::clone(&self.events),
            table: &self.table,
        };
        let (facts, cell) = match &config.port {
            PortConfig::Shm { address, geometry } => {
                let port = open_shm(*address, *geometry, number, self.engines.first())?;
                core_parts.wrapped(port, Cell::Shm, Cell::ObservedShm)?
            }
            PortConfig::Udp { local, options } => {
                let port = open_udp(*local, options, number)?;
                core_parts.wrapped(port, Cell::Udp, Cell::ObservedUdp)?
            }
            PortConfig::Shared { endpoint, options, wanted } => {
                let port = open_shared(endpoint, options, config.engines)?;
                match wanted {
                    None => core_parts.wrapped(port, Cell::Udp, Cell::ObservedUdp)?,
                    Some(wanted) => {
                        let port = LinkedPort::new(port, Some(Arc::clone(wanted)))
                            .map_err(|errno| OpenError::System(errno.into()))?;
                        core_parts.wrapped(port, Cell::Linked, Cell::ObservedLinked)?
                    }
                }
            }
            PortConfig::Xdp { interface, address, options } => {
                let port = open_xdp(interface, *address, options, config.engines)?;
                core_parts.wrapped(port, Cell::Xdp, Cell::ObservedXdp)?
            }
        };
        let parts = EngineParts {
            id,
            number,
            mode: config.mode,
            facts,
            max_qps: config.nic.max_qps as usize,
            waker: Arc::clone(waker),
            events: Arc::clone(&self.events),
        };
        self.engines.push(Arc::new(Engine::new(parts, cell)));
        Ok(())
    }

    /// Returns the engines, of which there is at least one.
    pub fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }

    /// Returns the engine that serves the next resource; engines take turns.
    pub fn next_engine(&self) -> &Arc<Engine> {
        &self.engines[self.next.fetch_add(1, Ordering::Relaxed) % self.engines.len()]
    }

    /// Returns the table of protection domains and regions.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the queue of asynchronous events of all engines.
    pub fn events(&self) -> &Arc<Signal<EngineEvent>> {
        &self.events
    }

    /// Returns the configuration of the ports.
    pub fn port(&self) -> &PortConfig {
        &self.port
    }

    /// Stops the NIC for good, because it has lost its place on the network. All queue pairs enter the
    /// error state, and [`AsyncEvent::DeviceFatal`](remora_nic::AsyncEvent::DeviceFatal) is reported. Does
    /// nothing in a forked child.
    pub fn fail(&self) {
        if self.is_ours() && !self.lost.swap(true, Ordering::AcqRel) {
            for engine in self.engines.iter() {
                let failed = engine.ask::<()>(Command::Fail);
                debug_assert!(failed.is_ok(), "a NIC can always fail");
            }
            // The flag is set last, so that a thread that sees it also finds everything flushed.
            self.threads.failed.store(true, Ordering::Release);
        }
    }

    /// Returns whether a thread that drives engines has failed, or the NIC has lost its place on the
    /// network. The state of the NIC is undefined after that.
    pub fn has_failed(&self) -> bool {
        self.threads.failed.load(Ordering::Acquire)
    }

    /// Returns whether the calling process opened the adapter. In a child of fork the threads are missing
    /// and the ports belong to the parent, so the adapter must not be used.
    pub fn is_ours(&self) -> bool {
        !self.fork.is_child()
    }
}

/// The parts from which an engine's core is built, for every kind of port.
struct CoreParts<'a> {
    config: &'a Config,
    number: usize,
    qpn_seed: u64,
    watch: Watch,
    clock: Clock,
    events: Arc<Signal<EngineEvent>>,
    table: &'a Arc<Table>,
}

impl CoreParts<'_> {
    /// Builds the engine's core over the port, wrapped as configured. Wrappers make a type of their own, so
    /// that they cost nothing where they are absent.
    fn wrapped<P: Port + Attach>(
        self,
        port: P,
        plain: fn(Biased<Core<P>>) -> Cell,
        observed: fn(Observed<P>) -> Cell,
    ) -> Result<(PortFacts, Cell), OpenError> {
        let config = self.config;
        if config.capture.is_none() && config.fault.is_none() && config.record.is_none() {
            return Ok(self.build(port, plain));
        }
        let recorder = self.recorder(&port)?;
        let capture = match &config.capture {
            None => Capture::absent(port),
            Some(path) => {
                let path = numbered(path, self.number);
                Capture::limited(port, &path, config.capture_limit).map_err(|error| {
                    OpenError::Port(format!("the capture {} cannot be written: {error}", path.display()))
                })?
            }
        };
        let rules = config.fault.clone().unwrap_or_default();
        Ok(self.build(Tap::new(Fault::new(capture, &rules), recorder), observed))
    }

    /// Begins the recording, if one is configured.
    fn recorder(&self, port: &(impl Port + Attach)) -> Result<Option<Recorder>, OpenError> {
        let config = self.config;
        let Some(path) = &config.record else { return Ok(None) };
        if config.engines > 1 {
            let words = "a recording has one engine: set engines to 1, or leave the recording out";
            return Err(OpenError::Port(words.to_owned()));
        }
        let memory = &config.memory;
        let header = recording::Header {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            port: port.kind(),
            endpoint: port.endpoint(),
            nic: self.nic_config(port),
            memory: recording::Limits {
                regions: memory.max_regions as u64,
                windows: memory.max_windows as u64,
                ranges: memory.max_ranges as u64,
            },
        };
        let log = Log::create(path, config.record_limit, &header).map_err(|error| {
            OpenError::Port(format!("the recording {} cannot be written: {error}", path.display()))
        })?;
        Ok(Some(Recorder::new(log, self.table)))
    }

    fn nic_config(&self, port: &(impl Port + Attach)) -> remora_nic::Config {
        remora_nic::Config {
            engine: self.number as u16,
            qpn_seed: Some(self.qpn_seed),
            ..fitted(self.config.nic, port)
        }
    }

    fn build<P: Port + Attach>(self, port: P, cell: fn(Biased<Core<P>>) -> Cell) -> (PortFacts, Cell) {
        let nic = Nic::new(self.nic_config(&port));
        let facts = facts(&port);
        let core = Core::new(nic, port, self.watch, self.clock, self.number, self.events);
        (facts, cell(Biased::new(self.table, core)))
    }
}

/// Returns the capture path of the engine with this number: `name.pcapng` for the first, `name.1.pcapng`
/// for the next.
fn numbered(path: &Path, number: usize) -> PathBuf {
    match (number, path.extension()) {
        (0, _) => path.to_owned(),
        (_, Some(extension)) => path.with_extension(format!("{number}.{}", extension.to_string_lossy())),
        (_, None) => path.with_extension(number.to_string()),
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The threads were not forked, and ending the watches would end those of the parent, so
            // everything is left to the exit of the process.
            std::mem::forget(std::mem::take(&mut self.threads));
            std::mem::forget(std::mem::take(&mut self.engines));
            return;
        }
        self.threads.end();
        tracing::info!("adapter closed");
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("engines", &self.engines).finish_non_exhaustive()
    }
}

/// Returns 128 random bits that cannot be predicted.
///
/// # Errors
/// [`OpenError::Call`] if the system has no randomness.
pub fn random() -> Result<u128, OpenError> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(refused("getrandom")(errno)),
        }
    }
    Ok(u128::from_ne_bytes(bytes))
}

/// Creates an epoll instance, and the eventfd that wakes it.
fn poll() -> Result<(Poll, Arc<Waker>), OpenError> {
    let poll = Poll::new().map_err(refused("epoll_create1"))?;
    let waker = Waker::new(poll.registry(), WAKER).map_err(refused("eventfd2"))?;
    Ok((poll, Arc::new(waker)))
}

fn open_shm(
    address: Option<Ipv4Addr>,
    geometry: Geometry,
    number: usize,
    first: Option<&Arc<Engine>>,
) -> Result<ShmPort, OpenError> {
    let address = match (first, address) {
        (Some(first), _) => first.facts().endpoint.address,
        (None, Some(address)) => address.into(),
        (None, None) => {
            let [a, b, c, ..] = random()?.to_ne_bytes();
            // The address is neither 127.0.0.0 nor the broadcast address.
            Address::from(Ipv4Addr::new(127, a, b, c.clamp(1, 254)))
        }
    };
    remora_port::address::single(address.into()).map_err(|why| OpenError::Port(why.to_string()))?;
    let endpoint = Endpoint { address, udp_port: ROCE_PORT + number as u16 };
    let limits = Limits { frame: geometry.max_frame(), ..Limits::default() };
    ShmPort::new(endpoint, limits).map_err(|errno| OpenError::System(errno.into()))
}

fn open_udp(
    local: SocketAddr,
    options: &remora_port::udp::Options,
    number: usize,
) -> Result<UdpPort, OpenError> {
    let mut local = local;
    if local.port() != 0 {
        let next = u16::try_from(number).ok().and_then(|number| local.port().checked_add(number));
        local.set_port(next.ok_or_else(|| {
            OpenError::Port(
                "the engines use consecutive UDP ports, which would exceed 65535: choose a lower port"
                    .to_owned(),
            )
        })?);
    }
    UdpPort::open(local, options).map_err(|error| OpenError::Port(error.to_string()))
}

fn open_shared(
    endpoint: &SharedEndpoint,
    options: &remora_port::udp::Options,
    engines: usize,
) -> Result<UdpPort, OpenError> {
    if engines > 1 {
        let words =
            "a share of an address has one engine, which gets all frames of its QPN range: set engines to 1";
        return Err(OpenError::Port(words.to_owned()));
    }
    UdpPort::open_shared(endpoint, options).map_err(|error| OpenError::Port(error.to_string()))
}

fn open_xdp(
    interface: &str,
    address: Option<IpAddr>,
    options: &remora_port::xdp::Options,
    engines: usize,
) -> Result<XdpPort, OpenError> {
    if engines > 1 {
        let words =
            format!("port xdp has one engine, which serves all queues of {interface}: set engines to 1");
        return Err(OpenError::Port(words));
    }
    XdpPort::open(interface, address, options).map_err(|error| OpenError::Port(error.to_string()))
}

/// Returns the largest path MTU whose packets have at most this many bytes from BTH to ICRC.
pub fn path_mtu(transport_bytes: usize) -> u32 {
    1 << transport_bytes.saturating_sub(AROUND_PAYLOAD).clamp(256, 4096).ilog2()
}

fn facts(port: &(impl Port + Attach)) -> PortFacts {
    PortFacts {
        kind: port.kind(),
        endpoint: port.endpoint(),
        source: port.source(),
        path_mtu: path_mtu(port.max_transport_bytes()),
        manner: port.manner(),
    }
}

fn fitted(config: remora_nic::Config, port: &(impl Port + Attach)) -> remora_nic::Config {
    let endpoint = port.endpoint();
    let mtu = facts(port).path_mtu;
    let window = port.window().min(config.window);
    // The round trip times of a real port are not known in advance.
    let timers = match config.irn.timers {
        Timers::ByPort => Timers::Measured,
        chosen => chosen,
    };
    let irn = irn::Settings { timers, ..config.irn };
    let qpn_range = port.qpn_range().or(config.qpn_range);
    // Frames that cross a wire have an ICRC.
    let checks_icrc = port.kind() != PortKind::Shm;
    remora_nic::Config { checks_icrc, qpn_range, window, endpoint, mtu, irn, ..config }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_thread_that_panics_is_noticed_and_does_not_hang_the_end() {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).unwrap());
        let mut threads = Threads::default();
        threads.spawn("fine".to_owned(), &waker, || Ok(())).unwrap();
        threads.spawn("sick".to_owned(), &waker, || panic!("on purpose")).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !threads.failed.load(Ordering::Acquire) {
            assert!(Instant::now() < until, "the panic of a thread is not noticed");
            std::thread::yield_now();
        }
        threads.end();
        assert!(threads.running.is_empty());
    }

    #[test]
    fn a_thread_that_cannot_sleep_is_noticed() {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).unwrap());
        let mut threads = Threads::default();
        threads.spawn("sick".to_owned(), &waker, || Err(io::ErrorKind::Other.into())).unwrap();
        threads.end();
        assert!(threads.failed.load(Ordering::Acquire));
    }

    #[test]
    fn what_cannot_be_opened_is_told_in_a_line() {
        let none = Config { engines: 0, ..Config::new(PortConfig::shm()) };
        assert_eq!(Adapter::open(&none).err().unwrap().to_string(), "an adapter has 1 to 64 engines, not 0");
        let first = Adapter::open(&Config::new(PortConfig::udp("127.0.0.1:0".parse().unwrap()))).unwrap();
        let taken = first.engines()[0].facts().endpoint;
        let again = Config::new(PortConfig::udp(taken.to_string().parse().unwrap()));
        let words = Adapter::open(&again).err().unwrap().to_string();
        assert!(words.contains("is taken: stop the program that has it"), "{words}");
        let last = Config { engines: 2, ..Config::new(PortConfig::udp("127.0.0.1:65535".parse().unwrap())) };
        assert!(Adapter::open(&last).is_err(), "no port for the second engine");
    }

    #[test]
    fn a_real_ports_timers_follow_its_round_trips_unless_they_are_fixed() {
        let cases = [
            (Timers::ByPort, Timers::Measured),
            (Timers::Measured, Timers::Measured),
            (Timers::Fixed, Timers::Fixed),
        ];
        for (asked, got) in cases {
            let mut config = Config::new(PortConfig::shm());
            config.nic.irn = irn::Settings { timers: asked, few: 5, ..irn::Settings::default() };
            let adapter = Adapter::open(&config).unwrap();
            let settings = adapter.engines()[0].with_core(|core| *core.nic.irn());
            assert_eq!(settings, irn::Settings { timers: got, ..config.nic.irn });
        }
    }

    #[test]
    fn engines_have_their_own_udp_ports_and_one_address() {
        let shm = Adapter::open(&Config { engines: 3, ..Config::new(PortConfig::shm()) }).unwrap();
        let endpoints: Vec<Endpoint> = shm.engines().iter().map(|engine| engine.facts().endpoint).collect();
        let ports: Vec<u16> = endpoints.iter().map(|endpoint| endpoint.udp_port).collect();
        assert_eq!(ports, [4791, 4792, 4793]);
        assert!(endpoints.iter().all(|endpoint| endpoint.address == endpoints[0].address));
        assert_eq!(shm.engines()[0].facts().path_mtu, 4096);
        let families = crate::families(&shm);
        let text = crate::metrics::write(&families);
        assert!(text.contains("remora_sent_pkts_total{engine=\"2\",port=\"shm\"} 0"), "{text}");
    }
}
