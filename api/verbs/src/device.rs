//! The attributes of a NIC before it is opened.

use remora_host::{Adapter, Config, Mode, OpenError, PortConfig, Rules};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remora_port::linked::Wanted;
use remora_port::udp::SharedEndpoint;

use crate::nicd::Attachment;
use crate::{Context, congestion, irn};

/// A description of a NIC, which [`Device::open`] opens.
///
/// ```
/// # use remora_verbs::{Device, Mode};
/// let quick = Device::shm().open()?;
/// let busy = Device::shm().engines(2).mode(Mode::Dedicated).open()?;
/// assert_eq!((quick.engines(), busy.engines()), (1, 2));
/// # Ok::<(), remora_verbs::OpenError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    config: Config,
}

impl Device {
    /// Describes a NIC whose peers are processes of this host; frames cross in shared memory.
    pub fn shm() -> Device {
        Device { config: Config::new(PortConfig::shm()) }
    }

    /// Describes a NIC that sends frames by UDP from `local`, an address of this machine, to any host. Port 0
    /// takes a free UDP port, which suits a client; the port of RoCE is 4791.
    ///
    /// # Errors
    /// `OpenError::Port` if `local` is no address.
    pub fn udp(local: impl ToSocketAddrs) -> Result<Device, OpenError> {
        let local = local.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        let local = local
            .ok_or_else(|| OpenError::Port("not an address of this machine (address:port)".to_owned()))?;
        Ok(Device { config: Config::new(PortConfig::udp(local)) })
    }

    /// Describes a NIC whose peers are on the network of this Ethernet interface or behind its gateways.
    /// Frames bypass the kernel's network stack (AF_XDP), which needs root's rights. The NIC's address is
    /// `address`, one of the interface's addresses (`None`: its first), with RoCE's UDP port, 4791. A peer
    /// may use port `udp` as well.
    pub fn xdp(interface: impl Into<String>, address: Option<IpAddr>) -> Device {
        Device { config: Config::new(PortConfig::xdp(interface, address)) }
    }

    /// Describes a NIC on a share of an address: other programs of this host use the same address and UDP
    /// port, each with its own range of QP numbers. The owner of the address lends the share (`remora
    /// broker`) and calls [`Context::fail`] when it is lost.
    pub fn shared(endpoint: SharedEndpoint) -> Device {
        Device { config: Config::new(PortConfig::shared(endpoint)) }
    }

    /// Gives a NIC on a share of an address links to its neighbours: programs with other QPN ranges of that
    /// address. The lender of the share introduces them (`ChannelAdapter::add_neighbour` of the raw layer).
    /// `wanted` receives the ranges that datagrams are sent to. No effect on other NICs.
    #[must_use]
    pub fn neighbours(mut self, wanted: Arc<Wanted>) -> Device {
        if let PortConfig::Shared { wanted: place, .. } = &mut self.config.port {
            *place = Some(wanted);
        }
        self
    }

    /// Describes the NIC of a daemon (`remora serve nic`) that listens at the Unix socket `path`. The
    /// daemon's engine drives the NIC.
    pub fn nicd(path: impl AsRef<Path>) -> Attachment {
        Attachment::new(path.as_ref())
    }

    /// Returns the configuration of a daemon's NIC: one engine, driven by a thread of its own.
    pub(crate) fn of_daemon(&self) -> Config {
        Config { engines: 1, mode: Mode::Dedicated, ..self.config.clone() }
    }

    /// Sets the address (GID). Only port `shm` has a free choice of address; no effect on others.
    #[must_use]
    pub fn address(mut self, own: Ipv4Addr) -> Device {
        if let PortConfig::Shm { address, .. } = &mut self.config.port {
            *address = Some(own);
        }
        self
    }

    /// Sets the number of engines. Each engine has its own port and, in dedicated mode, its own thread. A
    /// queue pair belongs to one engine.
    #[must_use]
    pub fn engines(mut self, engines: usize) -> Device {
        self.config.engines = engines;
        self
    }

    /// Selects the threads that drive the NIC: those that post and poll (inline, the default), or threads of
    /// its own (dedicated).
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Device {
        self.config.mode = mode;
        self
    }

    /// Sets the time without traffic after which an engine's thread goes to sleep, in dedicated mode.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Device {
        self.config.spin = spin;
        self
    }

    /// Sets the limits of memory registration.
    #[must_use]
    pub fn memory_limits(mut self, limits: remora_memory::Config) -> Device {
        self.config.memory = limits;
        self
    }

    /// Sets the limits of each engine.
    #[must_use]
    pub fn nic_limits(mut self, limits: remora_nic::Config) -> Device {
        self.config.nic = limits;
        self
    }

    /// Replaces the settings of IRN for the queue pairs that ask for it
    /// ([`QpOptions::irn`](crate::QpOptions::irn)) and whose peer agrees: the cap on packets in flight and
    /// the timers. Unless [`irn::Timers::Fixed`] is chosen, the timers follow the
    /// measured round trips and never fall below the settings.
    ///
    /// ```
    /// # use remora_verbs::{Device, irn};
    /// let longer_path = irn::Settings { cap: 220, bitmap: 256, ..irn::Settings::default() };
    /// let device = Device::shm().irn(longer_path).open()?;
    /// # Ok::<(), remora_verbs::OpenError>(())
    /// ```
    #[must_use]
    pub fn irn(mut self, settings: irn::Settings) -> Device {
        self.config.nic.irn = settings;
        self
    }

    /// Sets congestion control for every connected queue pair: DCQCN, which needs a port that shows IP
    /// headers (`xdp`) and a switch that marks packets, or TIMELY, which needs neither. A queue pair begins
    /// at the settings' line rate and never exceeds it.
    ///
    /// ```
    /// # use remora_verbs::{Device, congestion};
    /// let timely = congestion::Settings {
    ///     algorithm: congestion::Algorithm::Timely,
    ///     line_rate: 10_000_000_000,
    ///     ..congestion::Settings::default()
    /// };
    /// let polite = Device::shm().congestion(timely).open()?;
    /// # Ok::<(), remora_verbs::OpenError>(())
    /// ```
    #[must_use]
    pub fn congestion(mut self, settings: congestion::Settings) -> Device {
        self.config.nic.congestion = settings;
        self
    }

    /// Records all frames of the port in a pcapng file, which Wireshark opens. Each frame is copied for that,
    /// so measurements differ from those without a capture.
    #[must_use]
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Device {
        self.config.capture = Some(file.into());
        self
    }

    /// Sets the size in bytes at which the capture ends; 1 GiB by default. The file's last block counts the
    /// frames that were left out.
    #[must_use]
    pub fn capture_limit(mut self, bytes: u64) -> Device {
        self.config.capture_limit = bytes;
        self
    }

    /// Records the commands, doorbells, frames and completions of the NIC in a file, which `remora replay`
    /// executes on a NIC without a port. Payloads and the keys of 1RMA are left out. The NIC has one engine.
    /// If another NIC is writing to the file, the name gets a number.
    #[must_use]
    pub fn record(mut self, file: impl Into<PathBuf>) -> Device {
        self.config.record = Some(file.into());
        self
    }

    /// Sets the size in bytes at which the recording ends; 1 GiB by default. The NIC goes on without it.
    #[must_use]
    pub fn record_limit(mut self, bytes: u64) -> Device {
        self.config.record_limit = bytes;
        self
    }

    /// Injects faults by these rules: frames are lost, duplicated, delayed, reordered or corrupted.
    #[must_use]
    pub fn fault(mut self, rules: Rules) -> Device {
        self.config.fault = Some(rules);
        self
    }

    /// Returns the configuration, to open the NIC without a [`Context`].
    pub(crate) fn into_config(self) -> Config {
        self.config
    }

    /// Opens the NIC: its port, its engines and their threads.
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn open(&self) -> Result<Context, OpenError> {
        Ok(Context::new(Adapter::open(&self.config)?))
    }
}
