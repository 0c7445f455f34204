//! The device's paths of `/sys` and `/dev`, for whoever runs a program that reads them.

use remora_host::packet::PacketSocket;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{ClientError, Options, Start, reach};
use crate::interface::Interfaces;
use crate::message::{GidEntry, PortState, Reply, Request, VERSION};
use crate::name;
use crate::paths::Tree;

/// A tree of paths, which stays while this value lives.
#[derive(Debug)]
pub struct Paths {
    folder: PathBuf,
    /// Keeps the broker, and so its tree.
    _broker: Option<PacketSocket>,
    /// Of a program that has its address alone, whose broker begins when the program opens the device.
    _own: Option<Tree>,
}

impl Paths {
    /// The tree of a device with these addresses, of whose first the broker is started if there is none. It
    /// is the broker's, and follows the port; of a program that is alone it is its own, and shows the port as
    /// it is now.
    ///
    /// # Errors
    /// As [`open`](super::open); `Refused` if the tree cannot be written.
    ///
    /// # Panics
    /// Without an address.
    pub fn open(addresses: &[SocketAddr], options: &Options) -> Result<Paths, ClientError> {
        let address = name::standard(addresses[0]);
        let is_alone = options.start == Start::Alone;
        let own = is_alone.then(|| own_tree(address, addresses)).transpose()?;
        let chosen = if options.every_address { &[] } else { addresses };
        let broker = if is_alone { None } else { Some(broker_tree(address, chosen, options)?) };
        let (socket, theirs) = broker.unzip();
        let folder =
            own.as_ref().map(|own| own.folder().to_owned()).or(theirs).ok_or(ClientError::Nonsense)?;
        Ok(Paths { folder, _broker: socket, _own: own })
    }

    /// The folder, which has `sys` and `dev`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// A tree with these addresses in the GID table, in their order.
fn own_tree(broker: SocketAddr, addresses: &[SocketAddr]) -> Result<Tree, ClientError> {
    let interfaces = Interfaces::now();
    let entry = |address: &SocketAddr| {
        let interface = interfaces.of(*address).map_or(0, |name| interfaces.index(name));
        Some(GidEntry { ip: address.ip(), interface })
    };
    let gids = addresses.iter().map(entry).collect();
    Ok(Tree::write(&PortState { active: true, gids }, &name::of(broker), false)?)
}

/// The connection that keeps a broker's tree, and its folder.
fn broker_tree(
    broker: SocketAddr,
    addresses: &[SocketAddr],
    options: &Options,
) -> Result<(PacketSocket, PathBuf), ClientError> {
    let addresses = addresses.iter().copied().map(name::standard).collect();
    let request = Request::Paths { version: VERSION, addresses };
    match reach(broker, options, &request)? {
        (socket, (Reply::Paths(folder), _)) => Ok((socket, folder.into())),
        _ => Err(ClientError::Nonsense),
    }
}
