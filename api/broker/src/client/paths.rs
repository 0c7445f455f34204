//! The device's paths of `/sys` and `/dev`, for whoever runs a program that reads them.

use remora_host::packet::PacketSocket;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{ClientError, Options, Start, reach};
use crate::message::{Reply, Request, VERSION};
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
            let own = Tree::write(&[address], &name::of(address), false)?;
            return Ok(Paths { folder: own.folder().to_owned(), _broker: None, _own: Some(own) });
        }
        match reach(address, options, &Request::Paths { version: VERSION })? {
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
