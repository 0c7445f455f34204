//! Loading of shipped offloads for the clients that request them, and a table in which the GET of one bucket
//! finds every key.

use anyhow::{Context as _, Result};
use remora_chain::offload::{BUCKET, bucket, places, shipped};
use remora_verbs::{
    Call, ConnectRequest, Loader, MemoryRegion, Offload, ProtectionDomain, QpOptions, QueuePair,
};

/// The name of the queue in these programs that is the client's connection.
pub const PORT: &str = "port";

/// A table in which every key is alone in its first bucket: the keys and the layout of the memory.
pub struct Table {
    keys: Vec<u64>,
    buckets: u64,
    value: usize,
}

impl Table {
    /// Makes a table of `count` keys with values of `value` bytes each.
    pub fn new(count: usize, value: usize) -> Table {
        let buckets = (count as u64 * 2).next_power_of_two();
        let mut taken = vec![false; buckets as usize];
        let alone = |key: &u64| !std::mem::replace(&mut taken[places(*key, buckets)[0] as usize], true);
        Table { keys: (1..).filter(alone).take(count).collect(), buckets, value }
    }

    /// Returns the size of the table in bytes. The programs expect a total of 64 KiB.
    pub fn bytes(&self) -> usize {
        self.value_at(self.keys.len()).max(1 << 16)
    }

    /// Returns the key with this number.
    pub fn key(&self, number: usize) -> u64 {
        self.keys[number]
    }

    /// Returns the offset of the key's first bucket in the table's memory.
    pub fn place(&self, key: u64) -> usize {
        (places(key, self.buckets)[0] * BUCKET) as usize
    }

    /// Returns the offset of value `number` in the table's memory.
    fn value_at(&self, number: usize) -> usize {
        (self.buckets * BUCKET) as usize + number * self.value.next_multiple_of(8)
    }

    /// Fills memory with the table; `value` writes the value of the key with the given number.
    pub fn fill(&self, memory: &MemoryRegion, mut value: impl FnMut(usize, &mut [u8])) -> Result<()> {
        crate::measure::touch(memory)?;
        let mut bytes = vec![0; self.value];
        for (number, key) in self.keys.iter().enumerate() {
            let offset = self.value_at(number);
            value(number, &mut bytes);
            memory.write(offset, &bytes)?;
            let entry = bucket(*key, memory.address() + offset as u64, self.value as u64);
            memory.write(self.place(*key), &entry)?;
        }
        Ok(())
    }
}

/// Returns options for both ends of connections without immediate acknowledgements. The timeout is long,
/// because an end may be stopped for a while.
pub fn late() -> QpOptions {
    QpOptions { strom: true, timeout: 18, ..QpOptions::default() }
}

/// Returns connection options whose private data tells the client the address and key of the server's memory.
pub fn telling(memory: &MemoryRegion) -> QpOptions {
    let private_data = memory.remote_memory().to_bytes().to_vec();
    QpOptions { private_data, ..late() }
}

/// Loads the shipped program that a client requested, and accepts the client with the private data of
/// `options`.
pub fn load(
    domain: &ProtectionDomain,
    request: ConnectRequest,
    call: &Call,
    region: &str,
    table: &MemoryRegion,
    options: &QpOptions,
) -> Result<Offload> {
    let program = remora_chain::assemble(shipped(&call.program).context("no such program")?)?;
    let port = request.accept(domain.create_port(&program, PORT, options)?)?;
    load_onto(domain, port, call, region, table)
}

/// Loads the program onto a connected queue pair.
pub fn load_onto(
    domain: &ProtectionDomain,
    port: QueuePair,
    call: &Call,
    region: &str,
    table: &MemoryRegion,
) -> Result<Offload> {
    let program = remora_chain::assemble(shipped(&call.program).context("no such program")?)?;
    let loader = Loader::new(&program).connection(PORT, port);
    Ok(loader.region(region, table.remote_memory()).region("reply", call.reply).load(domain)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_of_a_table_have_the_same_first_bucket() {
        let table = Table::new(50_000, 61);
        let mut places: Vec<usize> = (0..50_000).map(|number| table.place(table.key(number))).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 50_000);
        let values = table.value_at(0);
        assert!(places.iter().all(|place| place + BUCKET as usize <= values));
        assert_eq!(table.bytes(), values + 50_000 * 64, "values are aligned");
    }
}
