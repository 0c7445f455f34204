//! The device's paths of `/sys` and `/dev`, for a command that runs programs which read them.

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

/// A tree of paths, which exists while this value lives.
#[derive(Debug)]
pub struct Paths {
    tree: Kept,
    /// The connection that keeps the broker, and so its tree.
    _broker: Option<PacketSocket>,
}

/// The tree, with its owner.
#[derive(Debug)]
enum Kept {
    /// The tree of a program that has its address alone. Its broker starts only when the program opens the
    /// device.
    Own(Tree),
    /// The folder of the broker's tree.
    Brokers(PathBuf),
    /// A copy of the broker's tree, whose folder is in another mount namespace.
    Copied(CopiedTree),
}

impl Paths {
    /// Opens the tree of a device with these addresses. If the first address has no broker, one is started.
    /// The tree belongs to the broker and follows the port. For a program that has its address alone, the
    /// tree belongs to this value and shows the port as it is now.
    ///
    /// # Errors
    /// The errors of [`open`](super::open); `Refused` if the tree cannot be written.
    ///
    /// # Panics
    /// If `addresses` is empty.
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

    /// The folder of the tree, which contains `sys` and `dev`.
    pub fn folder(&self) -> &Path {
        match &self.tree {
            Kept::Own(tree) => tree.folder(),
            Kept::Brokers(folder) => folder,
            Kept::Copied(tree) => tree.folder(),
        }
    }
}

/// Writes a tree with these addresses in the GID table, in this order.
fn own_tree(broker: SocketAddr, addresses: &[SocketAddr]) -> Result<Tree, ClientError> {
    let interfaces = Interfaces::now();
    let entry = |address: &SocketAddr| {
        let interface = interfaces.of(*address).map_or(0, |name| interfaces.index(name));
        Some(GidEntry { ip: address.ip(), interface })
    };
    let gids = addresses.iter().map(entry).collect();
    Ok(Tree::write(&PortState { active: true, gids }, &name::of(broker), false)?)
}

/// Returns the connection that keeps a broker's tree, and the tree, or a copy if its folder is not visible
/// here.
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

/// Returns whether the path `folder` leads to the open folder here, as it does for the broker.
fn is_at(open: &OwnedFd, folder: &Path) -> io::Result<bool> {
    let there = rustix::fs::fstat(open)?;
    Ok(rustix::fs::stat(folder).is_ok_and(|here| here.st_dev == there.st_dev && here.st_ino == there.st_ino))
}
