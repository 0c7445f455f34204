//! One daemon with both services: it shares an address between programs, and lends a NIC at that address.

use remora_host::users::Users;
use remora_verbs::nicd::{self, Daemon};
use remora_verbs::{Device, OpenError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::client::{self, ClientError, Range, Start, Watch};
use crate::{Broker, BrokerError, Options};

/// The reason why the daemon does not run. The text says in one line what is wrong and how to put it right.
#[derive(Debug, thiserror::Error)]
pub enum NicServerError {
    /// The address cannot be shared.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The NIC gets no QPN range of the address.
    #[error(transparent)]
    Range(#[from] ClientError),
    /// The NIC or its socket cannot be opened.
    #[error(transparent)]
    Nic(#[from] OpenError),
}

/// A running daemon. One thread admits all programs, one ledger counts what each user holds of both services.
/// Programs that use the address take a QPN range each, and so does the lent NIC.
#[derive(Debug)]
pub struct NicServer {
    // The order in which the parts must end: the NIC before its range, the range before the address.
    _watch: Watch,
    daemon: Arc<Daemon>,
    broker: Broker,
    _range: Range,
}

impl NicServer {
    /// Shares `address` and lends a NIC at it to programs that connect to `socket`, or to the name of the
    /// address ([`socket_name`](client::socket_name)). `settings` completes the NIC's device.
    ///
    /// # Errors
    /// [`NicServerError`].
    pub fn open(
        address: SocketAddr,
        socket: &Path,
        options: &nicd::Options,
        settings: impl FnOnce(Device) -> Result<Device, OpenError>,
    ) -> Result<NicServer, NicServerError> {
        let allow = options.allow.clone();
        // The sizes of a NIC do not depend on its port.
        let bounds = nicd::bounds(&Device::shm(), options);
        let shared = Options { allow, linger: None, bounds, ..Options::default() };
        let broker = Broker::open(address, &shared)?;
        let own = client::Options { start: Start::Never, ..client::Options::default() };
        let range = client::open(address, &own)?;
        let daemon = Daemon::lend(&settings(Device::shared(range.endpoint().clone()))?, options)?;
        let daemon = Arc::new(daemon);
        let counted = Arc::clone(&daemon);
        let watch = Watch::of(&range, None, None, move || counted.counters(), || {});
        let watch = watch.map_err(ClientError::System)?;
        broker.lend(Arc::clone(&daemon), nicd::listen(socket, !options.allow.is_empty())?);
        Ok(NicServer { _watch: watch, daemon, broker, _range: range })
    }

    /// What each user holds of both services.
    pub fn users(&self) -> &Arc<Users> {
        self.broker.users()
    }

    /// The daemon that lends the NIC.
    pub fn daemon(&self) -> &Arc<Daemon> {
        &self.daemon
    }
}
