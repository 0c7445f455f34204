//! The trees of paths that the broker writes, and the files of its counters.

use remora_host::users::{Claim, Resource};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use super::bounds::TREES;
use super::state::State;
use crate::message::Reply;
use crate::name;
use crate::paths::{self, ShownTree, Tree};

impl State {
    /// Sends the folder of the tree with these addresses, and writes the tree on the first call. The reply
    /// has the folder's name, and a descriptor for programs of another mount namespace. Without addresses the
    /// tree shows all of the network namespace. The broker and the tree stay while the connection lasts.
    pub(super) fn hand_out_tree(&mut self, number: u32, addresses: Vec<SocketAddr>) -> Result<(), String> {
        if addresses.is_empty() {
            self.have_every_address(number);
        }
        for address in &addresses {
            self.have_address(number, *address)?;
        }
        let claim = self.tree_claim(number, &addresses)?;
        let known = self.trees.iter().position(|shown| shown.addresses == addresses);
        let place = known.map_or_else(|| self.write_tree(&addresses), Ok)?;
        if let Some(client) = self.clients.get_mut(number) {
            client.reads = Some(addresses);
            client.tree_claim = Some(claim);
        }
        self.idle = None;
        let tree = &self.trees[place].tree;
        let folder = tree.folder().to_str().ok_or("the temporary folder's name is no UTF-8")?.to_owned();
        let open =
            tree.open().map_err(|error| format!("the device's paths cannot be handed out: {error}"))?;
        self.send(number, &Reply::Paths(folder), &[open.as_fd()]);
        Ok(())
    }

    /// Returns the claim of a tree that a program of this user reads already, or claims one.
    fn tree_claim(&self, number: u32, addresses: &Vec<SocketAddr>) -> Result<Arc<Claim>, String> {
        let uid = self.clients.get(number).ok_or("the connection is gone")?.user.uid();
        let readers =
            self.clients.of_user(uid).filter(|(_, client)| client.reads.as_ref() == Some(addresses));
        let known = readers.filter_map(|(_, client)| client.tree_claim.clone()).next();
        known.map_or_else(|| self.claim(number, Resource::Tree, 1).map(Arc::new), Ok)
    }

    /// Writes a tree and returns its place. At the limit, trees that no program reads are removed first.
    fn write_tree(&mut self, addresses: &[SocketAddr]) -> Result<usize, String> {
        if self.trees.len() == TREES {
            let clients = &self.clients;
            self.trees.retain(|shown| clients.any(|client| client.reads.as_ref() == Some(&shown.addresses)));
        }
        if self.trees.len() == TREES {
            return Err(format!(
                "programs have chosen {TREES} lists of addresses, and the device has paths for no more: end one, or run this one with --no-paths"
            ));
        }
        let local = self.addresses[0].local;
        let others = !self.options.allow.is_empty();
        let tree = Tree::write(&self.port_with(addresses), &name::of(local), others);
        let tree = tree.map_err(|error| {
            let words = format!("the device's paths cannot be written: {error} (TMPDIR chooses where, and --no-paths does without)");
            self.lack(&words)
        })?;
        self.trees.push(ShownTree { addresses: addresses.to_vec(), tree });
        Ok(self.trees.len() - 1)
    }

    /// Sends a file that contains the present value of the counter.
    pub(super) fn hand_out_counter(&mut self, number: u32, name: &str) -> Result<(), String> {
        let file = paths::file(name, &self.clients.counters()).ok_or("there is no such counter")?;
        let file = file.map_err(|error| format!("the system gives no file for a counter: {error}"))?;
        self.send(number, &Reply::Counter, &[file.as_fd()]);
        Ok(())
    }
}
