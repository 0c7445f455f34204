//! The tree of paths that the broker writes, and the counters that it answers for.

use std::os::fd::AsFd as _;

use super::state::State;
use crate::message::Reply;
use crate::name;
use crate::paths::{self, Tree};

impl State {
    /// The folder of the tree, which is written at the first call; the connection keeps the broker.
    pub(super) fn tree(&mut self, number: u32) -> Result<String, String> {
        if self.tree.is_none() {
            let local = self.addresses[0].local;
            let others = !self.options.allow.is_empty();
            let tree = Tree::write(&self.whole_port(), &name::of(local), others);
            let failed =
                |error| format!("the device's paths cannot be written: {error} (TMPDIR chooses where)");
            self.tree = Some(tree.map_err(failed)?);
        }
        if let Some(client) = self.clients.get_mut(number) {
            client.reads = true;
        }
        self.idle = None;
        let folder = self.tree.as_ref().and_then(|tree| tree.folder().to_str());
        folder.map(str::to_owned).ok_or_else(|| "the temporary folder's name is no UTF-8".to_owned())
    }

    /// Sends a file that has the counter now.
    pub(super) fn hand_out_counter(&mut self, number: u32, name: &str) -> Result<(), String> {
        let file = paths::file(name, &self.clients.counters()).ok_or("there is no such counter")?;
        let file = file.map_err(|error| format!("the system gives no file for a counter: {error}"))?;
        self.send(number, &Reply::Counter, &[file.as_fd()]);
        Ok(())
    }
}
