//! A device: what a NIC shall be like, before it is opened.

use host::{Adapter, Config, Mode, OpenError, PortConfig};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::Context;

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
    /// One whose peers are processes of this host; frames cross in shared memory.
    pub fn shm() -> Device {
        Device { config: Config::new(PortConfig::shm()) }
    }

    /// With an address (GID) of its own choice; only for `shm`, where any address will do.
    #[must_use]
    pub fn address(mut self, own: Ipv4Addr) -> Device {
        let PortConfig::Shm { address, .. } = &mut self.config.port;
        *address = Some(own);
        self
    }

    /// With so many engines. Each has its own port and, in dedicated mode, its own thread; a queue pair belongs to one.
    #[must_use]
    pub fn engines(mut self, engines: usize) -> Device {
        self.config.engines = engines;
        self
    }

    /// Driven inline, by the threads that post and poll (the default), or by threads of its own.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Device {
        self.config.mode = mode;
        self
    }

    /// In dedicated mode: an engine's thread goes to sleep after so long without traffic.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Device {
        self.config.spin = spin;
        self
    }

    /// With other limits of memory registration.
    #[must_use]
    pub fn memory_limits(mut self, limits: memory::Config) -> Device {
        self.config.memory = limits;
        self
    }

    /// With other limits of each engine.
    #[must_use]
    pub fn nic_limits(mut self, limits: nic::Config) -> Device {
        self.config.nic = limits;
        self
    }

    /// Opens it.
    ///
    /// # Errors
    /// One line that says what is wrong and how to mend it.
    pub fn open(&self) -> Result<Context, OpenError> {
        Ok(Context::new(Adapter::open(&self.config)?))
    }
}
