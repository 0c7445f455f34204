//! Two NICs in one thread, joined by a buffer: READs without any port, as a measure of the machine's speed.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use remora_fabric::{Settings, changes};
use remora_memory::{Access, Bytes, Config as TableConfig, Range, Table};
use remora_nic::{
    AddressVector, Bare, Command, CompletionPoller, Config, CqFlags, Fetching, Flags, Operation, Payload,
    QueuePairInit, Receives, Remote, Ring, SendQueue, Service, Sge, WorkRequest, wqe,
};
use remora_wire::Qpn;
use remora_wire::frame::Route;
use remora_wire::{Class, Egress, Endpoint, Ingress, Lease, Peer, Start};

/// The length of a READ in bytes, and the number of READs in flight.
const LEN: u32 = 64;
const BATCH: u64 = 16;
/// The slots of the rings and of the buffer that joins the NICs, and the bytes of a slot.
const SLOTS: u32 = 64;
const FRAME: usize = 256;

/// The frames in flight to the other NIC.
struct Pipe {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Egress for Pipe {
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }

    fn seals(&self, _: Peer) -> bool {
        false
    }

    fn lend(&mut self, _: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        let offset = self.lens.len() * FRAME;
        let bytes = self.bytes.get_mut(offset..offset + len)?;
        self.lens.push(len);
        Some(Lease { bytes, ip_id: 0 })
    }

    fn commit(&mut self) {}

    fn flush(&mut self) {}
}

/// A NIC of the pair, with one queue pair.
struct Side {
    engine: Bare,
    out: Pipe,
    send: SendQueue,
    poller: CompletionPoller,
    sge: Sge,
    number: Qpn,
    _memory: Bytes,
}

fn ring(slots: u32) -> Result<Ring> {
    Ring::heap(slots).context("memory for a ring")
}

fn side(seed: u64) -> Result<Side> {
    let table =
        Table::new(TableConfig { key_seed: seed, max_regions: 8, max_ranges: 16, ..TableConfig::default() });
    let table = Arc::new(table.context("memory for a table of regions")?);
    let nic = Bare::new(&table, Config { checks_icrc: false, max_qps: 64, ..Config::default() });
    let pd = table.alloc_pd().context("a protection domain")?;
    let memory = Bytes::heap(4096).context("memory of a region")?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let lkey = table.register(pd, &[Range::whole(&memory)], access).context("a region")?;
    let send = ring(SLOTS)?;
    let entries = ring(SLOTS)?;
    let cq = nic
        .ask(Command::CreateCq { ring: nic.hand(entries.clone()), flags: CqFlags::default() })
        .context("a completion queue")?;
    let init = QueuePairInit {
        service: Service::Rc,
        pd,
        send_ring: nic.hand(send.clone()),
        receives: Receives::Own { ring: nic.hand(ring(SLOTS)?), max_sge: 1 },
        send_cq: cq,
        receive_cq: cq,
        signal_all: false,
        fetching: Fetching::Posted,
    };
    let number = nic.ask(Command::CreateQp(init)).context("a queue pair")?;
    Ok(Side {
        engine: nic,
        out: Pipe { bytes: vec![0; FRAME * SLOTS as usize], lens: Vec::with_capacity(SLOTS as usize) },
        send: SendQueue::new(send, wqe::Bounds { max_sge: 1, max_inline: 0 }),
        poller: CompletionPoller::new(entries),
        sge: Sge { addr: memory.address(), len: LEN, lkey },
        number,
        _memory: memory,
    })
}

/// Connects a side with the queue pair of the other.
fn connect(own: &Side, peer: Qpn) -> Result<()> {
    let endpoint = Endpoint { address: Ipv4Addr::LOCALHOST.into(), udp_port: remora_wire::ROCE_PORT };
    let address = AddressVector::new(Peer(0), Route::new(endpoint, endpoint));
    let at_once = BATCH as u8;
    let settings = Settings {
        access: Access::REMOTE_READ,
        max_rd_atomic: at_once,
        max_dest_rd_atomic: at_once,
        ..Settings::default()
    };
    for change in changes(Service::Rc, address, peer, [0, 0], &settings) {
        let command = Command::ModifyQp { qp: own.number, change: Box::new(change) };
        own.engine.ask::<()>(command).context("connecting a queue pair")?;
    }
    Ok(())
}

impl Side {
    /// Posts a batch of READs, of which the last one has a completion.
    fn post(&mut self, remote: Remote) {
        for id in 0..BATCH {
            let flags = Flags { signaled: id + 1 == BATCH, ..Flags::default() };
            let list = [self.sge];
            let operation = Operation::Read(remote);
            let request = WorkRequest { id, operation, payload: Payload::Sges(&list), flags };
            self.send.push(&request).expect("space for a batch");
        }
        self.send.publish();
    }

    fn transmit(&mut self) {
        let mut guard = self.engine.enter();
        let (nic, mem) = guard.parts();
        nic.transmit(remora_transport::Instant(0), mem, &mut self.out, SLOTS as usize);
    }

    /// Receives the frames that the other side sent.
    fn receive(&mut self, sender: &mut Side) {
        let mut guard = self.engine.enter();
        let (nic, mem) = guard.parts();
        for (index, len) in sender.out.lens.drain(..).enumerate() {
            let ingress = Ingress {
                bytes: &sender.out.bytes[index * FRAME..index * FRAME + len],
                start: Start::Ip,
                sealed: false,
                source: Endpoint::default(),
                destination: None,
                origin: None,
            };
            nic.receive(remora_transport::Instant(0), mem, &ingress);
        }
    }
}

/// Two connected NICs.
pub(crate) struct NicPair {
    sides: [Side; 2],
    remote: Remote,
}

impl NicPair {
    /// Creates two NICs and connects them.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(crate) fn new() -> Result<NicPair> {
        let sides = [side(1)?, side(2)?];
        connect(&sides[0], sides[1].number)?;
        connect(&sides[1], sides[0].number)?;
        let Sge { addr, lkey, .. } = sides[1].sge;
        Ok(NicPair { sides, remote: Remote { addr, rkey: lkey } })
    }

    /// Measures the time of a READ of 64 bytes in nanoseconds, for both NICs together, in batches of 16.
    ///
    /// # Errors
    /// Fails if a READ fails or does not end.
    pub(crate) fn read_ns(&mut self, batches: u64) -> Result<f64> {
        let [own, peer] = &mut self.sides;
        let started = Instant::now();
        for _ in 0..batches {
            own.post(self.remote);
            own.engine.enter().parts().0.doorbell(own.number);
            let pass = |own: &mut Side, peer: &mut Side| {
                own.transmit();
                peer.receive(own);
                peer.transmit();
                own.receive(peer);
                own.poller.poll()
            };
            let entry = (0..BATCH).find_map(|_| pass(own, peer)).context("a READ that ends")?;
            ensure!(entry.completion.status == remora_nic::Status::Success, "a READ failed");
            own.poller.free();
        }
        Ok(started.elapsed().as_secs_f64() * 1e9 / (batches * BATCH) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_one_batch_after_the_other() {
        let mut pair = NicPair::new().unwrap();
        // Each READ must succeed.
        pair.read_ns(100).unwrap();
    }
}
