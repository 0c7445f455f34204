//! The server of lookups: a table and a list, which chains, READs and calls search.

use std::time::Duration;

use anyhow::{Context as _, Result};
use remora_chain::offload::{BUCKET, LIST, bucket, node, places, wanted};
use remora_verbs::{
    Access, Call, CompletionQueue, ConnectRequest, EMPTY, Flags, MemoryRegion, Mode, Offload,
    ProtectionDomain, QueuePair, WorkRequest, work,
};

use super::super::server::{Callers, Ends};
use crate::testbed::Testbed;
use remora_store_cli::chains::table::{load, telling};

/// The offsets of the table's buckets, of the list, and of the values after them.
pub(crate) const BUCKETS: u64 = 1 << 12;
pub(crate) const LIST_AT: u64 = BUCKETS * BUCKET;
const VALUES: u64 = LIST_AT + 1024;
/// The distance between two values in bytes.
pub(crate) const VALUE: u64 = 1 << 16;
/// The keys are 1 to this number, each in its first bucket. The first of them are in the list, too.
pub(crate) const KEYS: u64 = 64;
const MEMORY: u64 = VALUES + (KEYS + 1) * VALUE;

/// The connection requests other than the name of a shipped program.
pub(crate) const READS: &str = "reads";
pub(crate) const CALLS: &str = "calls";

/// A NIC with its own thread for chains and READs, and a NIC for calls that the server's program drives.
pub(crate) struct Tables {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    table: MemoryRegion,
    loaded: Vec<Offload>,
    readers: Vec<QueuePair>,
    calls: Calls,
}

impl Tables {
    /// Opens the server with values of `len` bytes.
    pub(crate) fn open(testbed: &Testbed, len: u64) -> Result<Tables> {
        let bytes = remora_verbs::Bytes::heap(MEMORY as usize)?;
        // Each queue of each chain needs two completion queues.
        let limits = remora_nic::Config { max_cqs: 1 << 12, ..remora_nic::Config::default() };
        let own = testbed
            .host(0)
            .device()?
            .nic_limits(limits)
            .mode(Mode::Dedicated)
            .spin(Duration::from_millis(1))
            .open()?;
        let domain = own.alloc_pd()?;
        let table = domain.register(&bytes, Access::REMOTE_READ)?;
        fill(&table, len)?;
        let driven = testbed.host(1).open()?;
        let calls = driven.alloc_pd()?;
        let calls = Calls {
            table: calls.register(&bytes, Access::NONE)?,
            callers: Callers::new(&driven, &calls, 16)?,
        };
        let cq = own.create_cq(64)?;
        Ok(Tables { domain, cq, table, loaded: Vec::new(), readers: Vec::new(), calls })
    }
}

impl Ends for Tables {
    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        let call = Call::from_bytes(request.private_data()).context("it does not say what it wants")?;
        let options = telling(&self.table);
        match call.program.as_str() {
            READS => {
                let pair = self.domain.create_qp(&self.cq, &self.cq, &options)?;
                self.readers.push(request.accept(pair)?);
            }
            CALLS => self.calls.callers.accept(request, &options)?,
            name => {
                let region = if name.starts_with("list") { "list" } else { "table" };
                self.loaded.push(load(
                    &self.domain,
                    request,
                    &call,
                    region,
                    &self.table,
                    &telling(&self.table),
                )?);
            }
        }
        Ok(())
    }

    fn serve(&mut self) {
        let mut done = [EMPTY; 16];
        for _ in 0..256 {
            let came = self.calls.callers.cq.poll(&mut done).unwrap_or(0);
            for received in &done[..came] {
                // A failure means that the client has disconnected, which this measurement ignores.
                let _ = self.calls.answer(received.id as usize);
            }
        }
    }
}

fn fill(memory: &MemoryRegion, len: u64) -> Result<()> {
    crate::touch(memory)?;
    let value = |key: u64| memory.address() + VALUES + key * VALUE;
    for key in 1..=KEYS {
        let place = places(key, BUCKETS)[0] * BUCKET;
        memory.write(place as usize, &bucket(key, value(key), len))?;
        memory.write((VALUES + key * VALUE) as usize, &key.to_le_bytes())?;
    }
    for place in 0..=LIST as u64 {
        let next = memory.address() + LIST_AT + (place + 1).min(LIST as u64) * BUCKET;
        // The list ends with an empty node, which points at itself.
        let entry = node(place + 1, value(place + 1), len, next);
        let entry = if place == LIST as u64 { node(0, 0, 0, next) } else { entry };
        memory.write((LIST_AT + place * BUCKET) as usize, &entry)?;
    }
    Ok(())
}

/// Serves calls. A message holds a key and whether the key is looked up in the list; the answer is one
/// message with the value.
struct Calls {
    table: MemoryRegion,
    callers: Callers,
}

impl Calls {
    fn answer(&mut self, number: usize) -> Result<()> {
        let [key, list] = self.callers.take(number)?;
        let (address, len) = self.find(key, list != 0)?.unwrap_or((0, 0));
        let value = [remora_verbs::Sge { addr: address, len: len as u32, lkey: self.table.lkey() }];
        self.callers.pairs[number]
            .post_send(&WorkRequest { flags: Flags::default(), ..work::send(0, &value) })?;
        Ok(())
    }

    fn find(&self, key: u64, list: bool) -> Result<Option<(u64, u64)>> {
        let mut offset = if list { LIST_AT } else { places(key, BUCKETS)[0] * BUCKET };
        loop {
            let [header, value, len, next]: [u64; 4] = self.table.get(offset as usize)?;
            if header == wanted(key) {
                return Ok(Some((value, len)));
            }
            if !list || header == wanted(0) {
                return Ok(None);
            }
            offset = next - self.table.address();
        }
    }
}
