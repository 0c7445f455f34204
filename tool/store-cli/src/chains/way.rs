//! A client's connection to a lookup server, with one lookup at a time.

use std::net::SocketAddr;

use anyhow::Result;
use remora_verbs::{
    Access, Call, CompletionQueue, Flags, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    ReceiveRequest, Sge, WorkRequest, work,
};

use super::table::late;

/// Length of a reply region in bytes, as the shipped programs require it.
const REPLY: usize = 1 << 16;
/// The size in bytes of the memory for READs that search a value.
const PROBE: usize = 256;

/// A client's connection and its memory.
pub struct Way {
    /// Connection of the client.
    pub pair: QueuePair,
    /// Memory to which the server's chain writes values.
    pub reply: MemoryRegion,
    /// Memory into which a client READs buckets to find values.
    pub probe: MemoryRegion,
}

impl Way {
    /// Connects and requests a shipped program, or another service of the server.
    pub fn connect(
        domain: &ProtectionDomain,
        cq: &CompletionQueue,
        address: SocketAddr,
        program: &str,
    ) -> Result<Way> {
        let reply = domain.allocate(REPLY, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let probe = domain.allocate(PROBE, Access::LOCAL_WRITE)?;
        crate::measure::touch(&reply)?;
        let call = Call { program: program.to_owned(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..late() };
        let pair = domain.create_qp(cq, cq, &options)?.connect(address)?;
        Ok(Way { pair, reply, probe })
    }

    /// Sends a request to a chain. The value is in memory when the receive with this ID completes.
    pub fn ask(&mut self, id: usize, message: &[u8]) -> Result<()> {
        self.exchange(id, message, &[])
    }

    /// Calls a server. The value is in memory when the receive with this ID completes.
    pub fn call(&mut self, id: usize, message: &[u8]) -> Result<()> {
        let answer = self.reply.sge(0, REPLY);
        self.exchange(id, message, &[answer])
    }

    fn exchange(&mut self, id: usize, message: &[u8], sges: &[Sge]) -> Result<()> {
        self.pair.post_recv(&ReceiveRequest { id: id as u64, sges })?;
        let quiet = WorkRequest { flags: Flags::default(), ..work::send_inline(id as u64, message) };
        Ok(self.pair.post_send(&quiet)?)
    }
}
