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
    /// Of a program that has its address alone: its broker begins when the program opens the device.
    _own: Option<Tree>,
}

impl Paths {
    /// The tree of this address's broker, which is started if there is none.
    ///
    /// # Errors
    /// As [`open`](super::open); `Refused` if the tree cannot be written.
    pub fn open(address: SocketAddr, options: &Options) -> Result<Paths, ClientError> {
        let address = name::standard(address);
        if options.start == Start::Alone {
            let interfaces = Interfaces::now();
            let own = interfaces.of(address).map_or(0, |name| interfaces.index(name));
            let gids = vec![Some(GidEntry { ip: address.ip(), interface: own })];
            let own = Tree::write(&PortState { active: true, gids }, &name::of(address), false)?;
            return Ok(Paths { folder: own.folder().to_owned(), _broker: None, _own: Some(own) });
        }
        let request = Request::Paths { version: VERSION, every_address: options.every_address };
        match reach(address, options, &request)? {
            (socket, (Reply::Paths(folder), _)) => {
                Ok(Paths { folder: folder.into(), _broker: Some(socket), _own: None })
            }
            _ => Err(ClientError::Nonsense),
        }
    }

    /// The folder, which has `sys` and `dev`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
