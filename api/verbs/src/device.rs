//! A device: the attributes of a NIC, before it is opened.

use remora_host::{Adapter, Config, Mode, OpenError, PortConfig, Rules};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remora_port::linked::Wanted;
use remora_port::udp::SharedEndpoint;

use crate::nicd::Attachment;
use crate::{Context, congestion, irn};

/// A NIC that can be opened.
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
    /// A NIC whose peers are processes of this host; frames cross in shared memory.
    pub fn shm() -> Device {
        Device { config: Config::new(PortConfig::shm()) }
    }

    /// A NIC whose peers are anywhere; frames leave by UDP from `local`, an address of this machine. Port 0
    /// takes a free one, which suits a client; RoCE's own is 4791.
    ///
    /// # Errors
    /// `local` is no address.
    pub fn udp(local: impl ToSocketAddrs) -> Result<Device, OpenError> {
        let local = local.to_socket_addrs().ok().and_then(|mut found| found.next());
        let local = local
            .ok_or_else(|| OpenError::Port("not an address of this machine (address:port)".to_owned()))?;
        Ok(Device { config: Config::new(PortConfig::udp(local)) })
    }

    /// A NIC whose peers are on the network of this Ethernet interface, or behind its gateways. Frames leave
    /// and come past the kernel's network stack (AF_XDP), which takes root's rights. Its address is
    /// `address`, one of the interface's (`None`: its first), with RoCE's own UDP port, 4791. A peer's port
    /// may be `udp` as well.
    pub fn xdp(interface: impl Into<String>, address: Option<IpAddr>) -> Device {
        Device { config: Config::new(PortConfig::xdp(interface, address)) }
    }

    /// A NIC on a share of an address: other programs of this host have the same address and UDP port, and
    /// each its own range of QP numbers. Whoever owns the address lends the share (`remora broker`), and says
    /// by [`Context::fail`] that it is lost.
    pub fn shared(endpoint: SharedEndpoint) -> Device {
        Device { config: Config::new(PortConfig::shared(endpoint)) }
    }

    /// Gives a NIC on a share of an address links to its neighbours: programs with other QPN ranges of that
    /// address. Whoever lends the share introduces them (`ChannelAdapter::add_neighbour` of the raw layer).
    /// `wanted` gets the ranges that datagrams are sent to. Without effect on other NICs.
    #[must_use]
    pub fn neighbours(mut self, wanted: Arc<Wanted>) -> Device {
        if let PortConfig::Shared { wanted: place, .. } = &mut self.config.port {
            *place = Some(wanted);
        }
        self
    }

    /// The NIC of a daemon (`remora nicd`), which listens at the socket `path` and whose engine drives it.
    pub fn nicd(path: impl AsRef<Path>) -> Attachment {
        Attachment::new(path.as_ref())
    }

    /// The attributes of a daemon's NIC: one engine, driven by a thread of its own.
    pub(crate) fn of_daemon(&self) -> Config {
        Config { engines: 1, mode: Mode::Dedicated, ..self.config.clone() }
    }

    /// Sets the address (GID); only for `shm`, which takes any address.
    #[must_use]
    pub fn address(mut self, own: Ipv4Addr) -> Device {
        if let PortConfig::Shm { address, .. } = &mut self.config.port {
            *address = Some(own);
        }
        self
    }

    /// Sets the number of engines. Each has its own port and, in dedicated mode, its own thread; a queue pair
    /// belongs to one.
    #[must_use]
    pub fn engines(mut self, engines: usize) -> Device {
        self.config.engines = engines;
        self
    }

    /// Sets who drives it: the threads that post and poll (inline, the default), or threads of its own
    /// (dedicated).
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Device {
        self.config.mode = mode;
        self
    }

    /// In dedicated mode, the time without traffic after which an engine's thread goes to sleep.
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

    /// Sets other settings of IRN for the queue pairs that ask for it
    /// ([`QpOptions::irn`](crate::QpOptions::irn)) and whose peer agrees. They are the cap on packets in
    /// flight, the timers, and the paper's ablations. Unless [`irn::Timers::Fixed`] is chosen, the timers
    /// follow the measured round trips, and the settings are their least.
    ///
    /// ```
    /// # use remora_verbs::{Device, irn};
    /// let without_sack = irn::Settings { recovery: irn::Recovery::HeadOnly, ..irn::Settings::default() };
    /// let ablation = Device::shm().irn(without_sack).open()?;
    /// # Ok::<(), remora_verbs::OpenError>(())
    /// ```
    #[must_use]
    pub fn irn(mut self, settings: irn::Settings) -> Device {
        self.config.nic.irn = settings;
        self
    }

    /// Sets congestion control for every connected queue pair. It is DCQCN, which needs a port that shows IP
    /// headers (`xdp`) and a switch that marks, or TIMELY, which needs nothing. They begin at the settings'
    /// line rate and never exceed it.
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

    /// Records everything that passes its port in a pcapng file, which Wireshark opens. Each frame is copied
    /// for that: figures change.
    #[must_use]
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Device {
        self.config.capture = Some(file.into());
        self
    }

    /// Ends its capture at so many bytes; frames beyond are counted in the file's last block. By default it
    /// is 1 GiB.
    #[must_use]
    pub fn capture_limit(mut self, bytes: u64) -> Device {
        self.config.capture_limit = bytes;
        self
    }

    /// Injects faults by these rules: frames are lost, doubled, delayed, reordered or broken.
    #[must_use]
    pub fn fault(mut self, rules: Rules) -> Device {
        self.config.fault = Some(rules);
        self
    }

    /// Its attributes, to open it without this API's context.
    pub(crate) fn into_config(self) -> Config {
        self.config
    }

    /// Opens the NIC: its port, its engines and their threads.
    ///
    /// # Errors
    /// One line with the fault and its mend.
    pub fn open(&self) -> Result<Context, OpenError> {
        Ok(Context::new(Adapter::open(&self.config)?, false))
    }
}
