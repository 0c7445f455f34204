//! The program's side of the broker: borrowing a QPN range on a shared address, and the device on it.
//!
//! ```no_run
//! use remora_broker::client::{self, Options};
//!
//! let device = client::open_device("127.0.0.1:0".parse()?, &Options::default(), |device| device)?;
//! println!("QP numbers {:#x} and up", u32::from(device.range().number()) << 17);
//! let domain = device.context().alloc_pd()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cm;
mod error;
mod neighbours;
mod paths;
mod port_events;
mod range;
mod start;
mod watch;

use remora_host::packet::PacketSocket;
use remora_port::udp::SteeredBy;
use remora_verbs::{Context, Counters, Device, OpenError};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::broker::{Broker, Options as BrokerOptions};
use crate::environment;
use crate::interface::Interfaces;
use crate::message::{BrokerFacts, PortState, ProgramFacts, Reply, Request, UserFacts, VERSION};
use crate::name;
pub use cm::{CmClient, EventChannel};
pub use error::ClientError;
pub use neighbours::Neighbours;
pub use paths::Paths;
pub use port_events::PortEvents;
pub use range::Range;
use range::{Answer, Connection, ask, ask_for_socket, is_over, lent};
pub use start::{COMMAND, READY, Start};
pub use watch::Watch;

/// The address of the device.
pub const ADDRESS: &str = "REMORA_ADDRESS";
/// The port of the device: `auto`, `udp`, `shm`, or `xdp:` and an interface.
pub const PORT: &str = "REMORA_PORT";
/// The path of a file of fault rules.
pub const FAULT: &str = "REMORA_FAULT";
/// The folder of the libraries that `remora run` makes programs use.
pub const LIBRARY_PATH: &str = "REMORA_LIBRARY_PATH";
/// Set if a program is to have an address alone, with the broker as a thread of its own.
pub const ALONE: &str = "REMORA_ALONE";
/// Users, separated by commas, whose broker this program uses.
pub const ALLOW_UID: &str = "REMORA_ALLOW_UID";

/// Pause between two attempts to reach a broker that starts or ends.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the socket name at which the daemon of an address is found, for [`Device::nicd`] if the daemon
/// lends a NIC.
pub fn socket_name(address: SocketAddr) -> PathBuf {
    format!("@{}", name::of(address)).into()
}

/// The options for finding or starting a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The reaction if there is no broker.
    pub start: Start,
    /// Users whose broker is trusted, in addition to this program's own user and root. A broker could read
    /// what it lends.
    pub allow: Vec<u32>,
    /// Time limit for the broker to start and to answer.
    pub patience: Duration,
    /// True if the device is to have all addresses of the network namespace, and not only the one by which
    /// its broker is found. Frames to each of them reach the device; [`Range::further`] gives it a share.
    pub every_address: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            start: Start::Search,
            allow: Vec::new(),
            patience: Duration::from_secs(10),
            every_address: false,
        }
    }
}

impl Options {
    /// Returns the options that the variables [`ALONE`], [`COMMAND`] and [`ALLOW_UID`] set. A privileged
    /// program ignores the variables ([`environment`]).
    pub fn from_environment() -> Options {
        let allow = environment::variable(ALLOW_UID).and_then(|value| value.into_string().ok());
        Options {
            start: if environment::is_set(ALONE) { Start::Alone } else { Start::Search },
            allow: allow.unwrap_or_default().split(',').filter_map(|uid| uid.trim().parse().ok()).collect(),
            ..Options::default()
        }
    }
}

/// Borrows a QPN range on an address of this machine. If the address has no broker, one is started.
///
/// # Errors
/// [`ClientError`], whose text says in one line what is wrong and how to put it right.
pub fn open(address: SocketAddr, options: &Options) -> Result<Range, ClientError> {
    let address = name::standard(address);
    let counters = Counters::default().each().count() as u16;
    let alone = if options.start == Start::Alone { Some(own_broker(address)?) } else { None };
    let every_address = options.every_address;
    let request = Request::Open { version: VERSION, address, counters, every_address };
    let (socket, reply) = reach(address, options, &request)?;
    let share = lent(reply)?;
    let connection = Arc::new(Connection { socket, asking: Mutex::default(), _alone: alone });
    let first = share.held_by(Arc::clone(&connection) as _);
    Ok(Range { connection, first })
}

/// A device on a QPN range. While this value lives, the broker's sums include the device's counters, and the
/// device fails when the broker is gone.
#[derive(Debug)]
pub struct SharedDevice {
    context: Context,
    range: Range,
    _watch: Watch,
}

impl SharedDevice {
    /// The open device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The QPN range of the device.
    pub fn range(&self) -> &Range {
        &self.range
    }
}

/// Borrows a range and opens a device on it. `configure` sets the attributes of the device.
///
/// # Errors
/// [`ClientError`]; `Refused` also if the device cannot be opened.
pub fn open_device(
    address: SocketAddr,
    options: &Options,
    configure: impl FnOnce(Device) -> Device,
) -> Result<SharedDevice, ClientError> {
    let range = open(address, options)?;
    let opened = configure(Device::shared(range.endpoint().clone())).open();
    let context = opened.map_err(|error: OpenError| ClientError::Refused(error.to_string()))?;
    let watch = Watch::start(&range, &context)?;
    Ok(SharedDevice { context, range, _watch: watch })
}

/// A broker's report about itself, its programs, and the sums of their counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The facts about the broker.
    pub broker: BrokerFacts,
    /// The programs in the order of their ranges.
    pub programs: Vec<ProgramFacts>,
    /// The users that have connections, in ascending order.
    pub users: Vec<UserFacts>,
    /// The GID table, as programs with all addresses see it.
    pub port: PortState,
    /// The sums of the counters of all programs, including those that have ended: name and value.
    pub counters: Vec<(&'static str, u64)>,
}

impl Report {
    /// The entries of the GID table that are not empty, as index and address. A link-local address has its
    /// interface.
    pub fn gids(&self) -> impl Iterator<Item = (usize, String)> {
        let entries = self.port.gids.iter().enumerate();
        entries.filter_map(|(index, gid)| Some((index, name::ip(gid.as_ref()?.address()))))
    }
}

/// Asks the broker of an address for its report. Starts no broker.
///
/// # Errors
/// `None` if there is no broker; otherwise the errors of [`open`].
pub fn report(address: SocketAddr, options: &Options) -> Result<Report, ClientError> {
    let address = name::standard(address);
    let options = Options { start: Start::Never, ..options.clone() };
    let (socket, first) = reach(address, &options, &Request::Ask { version: VERSION })?;
    let (Reply::Facts(broker), _) = first else { return Err(ClientError::Nonsense) };
    let mut programs = Vec::new();
    let mut range = 1;
    while programs.len() < crate::PROGRAMS {
        match ask(&socket, &Request::Program(range))? {
            (Reply::Program(facts), _) => {
                range = u16::from(facts.range) + 1;
                programs.push(facts);
            }
            (Reply::Nothing, _) => break,
            _ => return Err(ClientError::Nonsense),
        }
    }
    let mut users: Vec<UserFacts> = Vec::new();
    let mut next = Some(0);
    while let Some(first_uid) = next {
        match ask(&socket, &Request::User(first_uid))? {
            (Reply::User(facts), _) => {
                next = facts.uid.checked_add(1);
                users.push(facts);
            }
            (Reply::Nothing, _) => break,
            _ => return Err(ClientError::Nonsense),
        }
    }
    let (Reply::Counters(values), _) = ask(&socket, &Request::Counters)? else {
        return Err(ClientError::Nonsense);
    };
    let (Reply::Port(port), _) = ask(&socket, &Request::Port)? else { return Err(ClientError::Nonsense) };
    let names = Counters::default();
    let values = values.into_iter().chain(std::iter::repeat(0));
    let counters = names.each().map(|(name, _, _)| name).zip(values).collect();
    Ok(Report { broker, programs, users, port, counters })
}

/// Ends all connections of a user to the broker of an address, and makes the broker no longer admit the
/// user. Returns the number of ended connections. Only the broker's own user and root may call it.
///
/// # Errors
/// The errors of [`report`]; `Refused` if this program's user may not do it.
pub fn end_user(address: SocketAddr, options: &Options, uid: u32) -> Result<u32, ClientError> {
    end(address, options, &Request::EndUser(uid))
}

/// Ends the program that has QPN range `range`, 1 to 127, of the broker of an address, under the rules of
/// [`end_user`].
///
/// # Errors
/// The errors of [`end_user`]; `Refused` also if no program has the range.
pub fn end_program(address: SocketAddr, options: &Options, range: u8) -> Result<u32, ClientError> {
    end(address, options, &Request::EndProgram(range))
}

fn end(address: SocketAddr, options: &Options, request: &Request) -> Result<u32, ClientError> {
    let address = name::standard(address);
    let options = Options { start: Start::Never, ..options.clone() };
    let (socket, _) = reach(address, &options, &Request::Ask { version: VERSION })?;
    match ask(&socket, request)? {
        (Reply::Ended(count), _) => Ok(count),
        _ => Err(ClientError::Nonsense),
    }
}

/// Returns the address that programs share by default: the source address of the IPv4 default route, or
/// 127.0.0.1. If the loopback interface is down, it is the source address of the IPv6 default route, or the
/// first address of all. Sends nothing.
pub fn default_address() -> SocketAddr {
    let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
    // Addresses for documentation (RFC 5737, RFC 3849), so that only the default route leads there.
    let source = leaves_from("0.0.0.0:0", "192.0.2.1:9").or_else(|| {
        let usable = std::net::UdpSocket::bind((localhost, 0)).is_ok();
        usable.then_some(localhost).or_else(|| leaves_from("[::]:0", "[2001:db8::1]:9"))
    });
    let source = source.map(|ip| SocketAddr::new(ip, 0));
    let any = source.or_else(|| Interfaces::now().addresses().into_iter().next());
    name::standard(any.unwrap_or((localhost, 0).into()))
}

/// Returns the source address of the route to `there`.
fn leaves_from(here: &str, there: &str) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind(here).ok()?;
    socket.connect(there).ok()?;
    let local = socket.local_addr().ok()?.ip();
    // An address under duplicate address detection, or a link-local one without its interface, cannot be
    // shared.
    let is_link_local = matches!(local, IpAddr::V6(ip) if ip.is_unicast_link_local());
    (!local.is_unspecified() && !is_link_local).then_some(local)
}

/// Formats an address for the variable [`ADDRESS`]: with its interface, and without a UDP port.
pub fn text(address: SocketAddr) -> String {
    name::ip(address)
}

/// Ensures that an address has a broker that this program may use. Returns the facts about the broker.
///
/// # Errors
/// The errors of [`open`].
pub fn start(address: SocketAddr, options: &Options) -> Result<BrokerFacts, ClientError> {
    let address = name::standard(address);
    match reach(address, options, &Request::Ask { version: VERSION })? {
        (_, (Reply::Facts(facts), _)) => Ok(facts),
        _ => Err(ClientError::Nonsense),
    }
}

/// Starts the broker of a program that has an address alone, as a thread.
fn own_broker(address: SocketAddr) -> Result<Broker, ClientError> {
    let options =
        BrokerOptions { alone: true, linger: None, steered: SteeredBy::Reader, ..BrokerOptions::default() };
    Broker::open(address, &options).map_err(|error| ClientError::Start(error.to_string()))
}

/// Connects to the broker of an address and sends it a request. Starts a broker if there is none.
fn reach(
    address: SocketAddr,
    options: &Options,
    request: &Request,
) -> Result<(PacketSocket, Answer), ClientError> {
    let until = Instant::now() + options.patience;
    let mut started = false;
    loop {
        match attempt(address, options, request) {
            Err(ClientError::None(_)) if Instant::now() < until => match &options.start {
                Start::Never | Start::Alone => return Err(ClientError::None(address)),
                method if !started => {
                    start::broker(address, method, until)?;
                    started = true;
                }
                // The broker is just ending, or another program has started one that is not ready.
                _ => std::thread::sleep(PAUSE),
            },
            // The broker ended because of its own limits. They are those of the program that started it, and
            // may differ from this program's.
            Err(ClientError::Ends(_))
                if !started && matches!(options.start, Start::Search | Start::Command(_)) =>
            {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

fn attempt(
    address: SocketAddr,
    options: &Options,
    request: &Request,
) -> Result<(PacketSocket, Answer), ClientError> {
    let socket = match PacketSocket::connect_abstract(&name::of(address), options.patience) {
        Ok(socket) => socket,
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => ClientError::None(address),
                ErrorKind::TimedOut => ClientError::Silent(options.patience),
                _ => ClientError::System(error),
            });
        }
    };
    let peer = socket.peer()?;
    if !peer.is_trusted(&options.allow) {
        return Err(ClientError::Stranger(address, peer));
    }
    match ask(&socket, request) {
        // The broker ended before it admitted the connection.
        Err(ClientError::System(error)) if is_end(&error) => Err(ClientError::None(address)),
        Err(ClientError::Silent(_)) => Err(ClientError::Silent(options.patience)),
        done => done.map(|answer| (socket, answer)),
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}
