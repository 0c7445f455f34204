//! The device's paths of `/sys` and `/dev`, for whoever runs a program that reads them.

use remora_host::packet::PacketSocket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::{ClientError, Options, Start, reach};
use crate::interface::Interfaces;
use crate::message::{GidEntry, PortState, Reply, Request, VERSION};
use crate::name;
use crate::paths::{CopiedTree, Tree};

/// A tree of paths, which stays while this value lives.
#[derive(Debug)]
pub struct Paths {
    tree: Kept,
    /// Keeps the broker, and so its tree.
    _broker: Option<PacketSocket>,
}

/// Where the tree is, and what keeps it.
#[derive(Debug)]
enum Kept {
    /// Of a program that has its address alone, whose broker begins when the program opens the device.
    Own(Tree),
    /// The broker's folder.
    Brokers(PathBuf),
    /// A copy: the broker's folder is in another mount namespace.
    Copied(CopiedTree),
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
        if is_alone {
            return Ok(Paths { tree: Kept::Own(own_tree(address, addresses)?), _broker: None });
        }
        let chosen = if options.every_address { &[] } else { addresses };
        let (socket, tree) = broker_tree(address, chosen, options)?;
        Ok(Paths { tree, _broker: Some(socket) })
    }

    /// The folder, which has `sys` and `dev`.
    pub fn folder(&self) -> &Path {
        match &self.tree {
            Kept::Own(tree) => tree.folder(),
            Kept::Brokers(folder) => folder,
            Kept::Copied(tree) => tree.folder(),
        }
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

/// The connection that keeps a broker's tree, and the tree, or a copy where its folder cannot be seen.
fn broker_tree(
    broker: SocketAddr,
    addresses: &[SocketAddr],
    options: &Options,
) -> Result<(PacketSocket, Kept), ClientError> {
    let addresses = addresses.iter().copied().map(name::standard).collect();
    let request = Request::Paths { version: VERSION, addresses };
    match reach(broker, options, &request)? {
        (socket, (Reply::Paths(folder), descriptors)) => {
            let folder = PathBuf::from(folder);
            let tree = match descriptors.into_iter().next() {
                Some(open) if !is_at(&open, &folder)? => Kept::Copied(CopiedTree::new(open)?),
                _ => Kept::Brokers(folder),
            };
            Ok((socket, tree))
        }
        _ => Err(ClientError::Nonsense),
    }
}

/// True if this path leads to the open folder here, as it does for the broker.
fn is_at(open: &OwnedFd, folder: &Path) -> io::Result<bool> {
    let there = rustix::fs::fstat(open)?;
    Ok(rustix::fs::stat(folder).is_ok_and(|here| here.st_dev == there.st_dev && here.st_ino == there.st_ino))
}
