//! The server: one table, and one core for the NIC and the worker. Before the worker takes a message, the
//! NIC has a turn, in which it receives packets and executes chains.

use anyhow::{Context as _, Result, ensure};
use remora_chain::offload::wanted;
use remora_verbs::{
    Access, Call, ConnectRequest, EMPTY, Flags, MemoryRegion, Offload, ProtectionDomain, Sge, WorkRequest,
    work,
};

use super::super::server::{Callers, Ends};
use crate::PortName;
use remora_options::device::LOOPBACK;
use remora_store_cli::chains::table::{Table, load, telling};

/// The number of keys of each client; no other client writes them.
pub(crate) const KEYS: usize = 10_000;
/// The number of clients: a reader and its writers.
pub(crate) const CLIENTS: usize = 17;
/// The length of a value in bytes.
pub(crate) const VALUE: usize = 64;
/// The connection request of a client that sends messages. A key alone is a GET; a key with a value is a
/// SET.
pub(crate) const CALLS: &str = "calls";

/// The number of words of a message.
const WORDS: usize = 1 + VALUE / 8;

/// Returns the table with the keys of each client, one client after the other.
pub(crate) fn table() -> Table {
    Table::new(KEYS * CLIENTS, VALUE)
}

/// A table, its NIC, and the worker.
pub(crate) struct Shop {
    domain: ProtectionDomain,
    layout: Table,
    table: MemoryRegion,
    loaded: Vec<Offload>,
    callers: Callers,
}

impl Shop {
    /// Opens the server and fills its table.
    pub(crate) fn open(port: PortName) -> Result<Shop> {
        let context = port.device_on(LOOPBACK, "")?.open()?;
        let domain = context.alloc_pd()?;
        let layout = table();
        let table = domain.allocate(layout.bytes(), Access::REMOTE_READ)?;
        // A value begins with its key, by which the reader checks it.
        layout.fill(&table, |number, value| value[..8].copy_from_slice(&layout.key(number).to_le_bytes()))?;
        let callers = Callers::new(&context, &domain, WORDS * 8)?;
        Ok(Shop { domain, layout, table, loaded: Vec::new(), callers })
    }

    fn answer(&mut self, number: usize, len: usize) -> Result<()> {
        let message: [u64; WORDS] = self.callers.take(number)?;
        let key = message[0];
        let [header, value, size]: [u64; 3] = self.table.get(self.layout.place(key))?;
        ensure!(header == wanted(key), "a client requested a key that does not exist");
        let stored = [Sge { addr: value, len: size as u32, lkey: self.table.lkey() }];
        let reply = key.to_le_bytes();
        let answer = if len > reply.len() {
            let value: &[u64; WORDS - 1] = message.last_chunk().context("words of a message")?;
            self.table.put((stored[0].addr - self.table.address()) as usize, value)?;
            work::send_inline(0, &reply)
        } else {
            work::send(0, &stored)
        };
        self.callers.pairs[number].post_send(&WorkRequest { flags: Flags::default(), ..answer })?;
        Ok(())
    }
}

impl Ends for Shop {
    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        let call = Call::from_bytes(request.private_data()).context("it does not say what it wants")?;
        match call.program.as_str() {
            CALLS => self.callers.accept(request, &telling(&self.table)),
            _ => {
                self.loaded.push(load(
                    &self.domain,
                    request,
                    &call,
                    "table",
                    &self.table,
                    &telling(&self.table),
                )?);
                Ok(())
            }
        }
    }

    fn serve(&mut self) {
        let mut one = [EMPTY; 1];
        for _ in 0..256 {
            // Polling an empty queue gives the NIC its turn.
            let _ = self.callers.cq.poll(&mut []);
            if let Ok(1) = self.callers.cq.poll(&mut one) {
                // A failure means that the client has disconnected, which this measurement ignores.
                let _ = self.answer(one[0].id as usize, one[0].byte_len as usize);
            }
        }
    }
}
