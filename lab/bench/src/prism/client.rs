//! The client of a server with PRISM. It performs each operation from the first request to the last
//! completion, and checks the results.

use anyhow::{Context, Result, ensure};
use remora_verbs::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest};
use remora_verbs::{EMPTY, Flags, Payload, Remote, Sge, work};

use super::case::Case;
use super::place::{BLOCK, BUFFERS, COUNT, FREED, SLOT, TAGGED, VALUE, VALUE_LEN};
use crate::echo::Echo;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{Command, NicCommand};

/// The offsets in the client's memory for results, and for the list of freed buffers.
const RESULT: usize = 8 << 20;
const TOLD: usize = 9 << 20;
/// The length with which the client reads, which exceeds that of any value.
const MOST: u32 = 1024;
/// Mask that selects every bit.
const ALL: u64 = u64::MAX;

/// A client connected to its peer, whose memory has been initialised.
pub(crate) struct Client {
    end: End,
    echo: Echo,
    list: u64,
    /// Last values that the plain CAS, the enhanced CAS and the chain used; each operation uses the next one.
    counts: [u64; 3],
    /// The buffers that are no longer in use.
    freed: Vec<u64>,
}

fn request(operation: Operation<'_>) -> WorkRequest<'_> {
    let flags = Flags { signaled: true, ..Flags::default() };
    WorkRequest { id: 0, operation, conditional: false, redirect: None, result: None, flags }
}

fn unsignaled(operation: Operation<'_>) -> WorkRequest<'_> {
    WorkRequest { flags: Flags::default(), ..request(operation) }
}

/// Returns operands that swap in a tag and an address if the tag, the upper word, is greater than the stored
/// one.
fn by_tag(operand: Operand) -> Operands {
    Operands {
        mode: Mode::Greater,
        size: 16,
        compare_mask: [0, ALL, 0, 0],
        swap_mask: [ALL, ALL, 0, 0],
        compare: operand,
        swap_add: operand,
    }
}

impl Client {
    /// Initialises the peer's memory, and performs each operation once.
    pub(crate) fn new(end: End, peer: &Peer) -> Result<Client> {
        let private_data = end.qps[0].peer_private_data().get(remora_verbs::RemoteMemory::LEN..);
        let list =
            *private_data.and_then(|rest| rest.first_chunk::<8>()).context("the peer has no free list")?;
        let echo = Echo::new(&end.local, end.remote);
        let freed = Vec::with_capacity(BUFFERS.count as usize);
        let mut client = Client { end, echo, list: u64::from_le_bytes(list), counts: [0; 3], freed };
        client.lay_out(peer)?;
        Ok(client)
    }

    fn at(&self, offset: u64) -> Remote {
        self.end.remote.at(offset)
    }

    fn here(&self, len: usize) -> [Sge; 1] {
        [self.end.local.sge(0, len)]
    }

    fn lay_out(&mut self, peer: &Peer) -> Result<()> {
        peer.run(self.end.command(NicCommand::Serve))?;
        let value: Vec<u8> = (0..VALUE_LEN).map(|index| (index * 7 + 1) as u8).collect();
        self.end.local.write(0, &value)?;
        self.trip(Case::Write)?;
        let slot = [self.at(VALUE).addr, VALUE_LEN as u64].map(u64::to_le_bytes).concat();
        self.end.one(&work::write_inline(0, &slot, self.at(SLOT)))?;
        for place in [COUNT, TAGGED, BLOCK] {
            self.end.one(&work::write_inline(0, &[0; 16], self.at(place)))?;
        }
        for case in [Case::Read, Case::IndirectRead, Case::BoundedRead] {
            self.end.local.write(0, &[0; MOST as usize])?;
            self.trip(case)?;
            let mut read = [0; VALUE_LEN + 1];
            self.end.local.read(0, &mut read)?;
            ensure!(
                read[..VALUE_LEN] == value && read[VALUE_LEN] == 0,
                "{case:?} returned another value than was stored"
            );
        }
        peer.run(Command::Sleep)
    }

    /// Returns the command that makes the peer answer.
    pub(crate) fn answering(&self, case: Case) -> Command {
        let (_, answer) = case.message();
        self.end.command(if case.is_call() { NicCommand::Echo { answer } } else { NicCommand::Serve })
    }

    /// Posts the receive request for the first answer of a call.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        self.echo.start(&mut self.end.qps[0])
    }

    /// Writes marker bytes to unused memory. A capture is split at these WRITEs.
    pub(crate) fn mark(&mut self, bytes: &[u8]) -> Result<()> {
        self.end.one(&work::write_inline(0, bytes, self.at(COUNT + 64)))
    }

    /// Performs one operation and waits for its completion.
    #[inline]
    pub(crate) fn trip(&mut self, case: Case) -> Result<()> {
        let list = self.here(VALUE_LEN);
        match case {
            Case::Read => self.end.one(&work::read(0, &list, self.at(VALUE))),
            Case::Write => self.end.one(&work::write(0, &list, self.at(VALUE))),
            Case::Cas => self.cas(),
            Case::IndirectRead => self.read(Address::indirect(self.at(SLOT)), VALUE_LEN as u32),
            Case::BoundedRead => self.read(Address::bounded(self.at(SLOT)), MOST),
            Case::Allocate => self.allocate(),
            Case::EnhancedCas => self.enhanced_cas(),
            Case::Chain => self.chain(),
            Case::Put => {
                self.read(Address::bounded(self.at(SLOT)), MOST)?;
                self.chain()
            }
            Case::TwoReads => {
                self.end.one(&work::read(0, &self.here(16), self.at(SLOT)))?;
                self.end.one(&work::read(0, &list, self.at(VALUE)))
            }
            Case::WriteThenCas => {
                self.end.one(&work::write(0, &list, self.at(VALUE)))?;
                self.cas()
            }
            Case::CallToRead | Case::CallToWrite => self.call(case.message().0),
        }
    }

    #[inline]
    fn result(&self, len: usize) -> Option<Sge> {
        Some(self.end.local.sge(RESULT, len))
    }

    #[inline]
    fn next(&mut self, index: usize) -> u64 {
        self.counts[index] += 1;
        self.counts[index]
    }

    fn cas(&mut self) -> Result<()> {
        let count = self.next(0);
        let old = [self.end.local.sge(RESULT, 8)];
        self.end.one(&work::compare_swap(0, &old, self.at(COUNT), count - 1, count))?;
        ensure!(self.end.local.get::<u64>(RESULT)? == count - 1, "the CAS did not swap");
        Ok(())
    }

    fn read(&mut self, address: Address, len: u32) -> Result<()> {
        let sges = self.here(len as usize);
        self.end.qps[0].post_prism(&request(Operation::Read { from: address, len, into: &sges }))?;
        self.end.complete(1)
    }

    fn allocate(&mut self) -> Result<()> {
        let value = self.here(VALUE_LEN);
        let data = Data::Local(Payload::Sges(&value));
        let operation = Operation::Allocate { list: self.list, rkey: self.end.remote.rkey, data };
        let request = WorkRequest { result: self.result(8), ..request(operation) };
        self.end.qps[0].post_prism(&request)?;
        self.end.complete(1)?;
        self.freed.push(self.end.local.get::<u64>(RESULT)?);
        Ok(())
    }

    fn enhanced_cas(&mut self) -> Result<()> {
        let tag = self.next(1);
        let operands = by_tag(Operand::Immediate([VALUE, tag, 0, 0]));
        let operation = Operation::CompareSwap { at: Address::direct(self.at(TAGGED)), operands };
        let request = WorkRequest { result: self.result(16), ..request(operation) };
        self.end.qps[0].post_prism(&request)?;
        self.end.complete(1)
    }

    /// Runs the chain: writes the tag to scratch memory, writes the value to a buffer whose address is stored
    /// before the tag, and swaps both into the block if the tag is newer. Returns the block's previous
    /// content.
    fn chain(&mut self) -> Result<()> {
        let tag = self.next(2).to_le_bytes();
        let rkey = self.end.remote.rkey;
        let value = self.here(VALUE_LEN);
        let scratch = Address::direct(Remote { addr: SCRATCH + 8, rkey });
        let write = Operation::Write { to: scratch, data: Data::Local(Payload::Inline(&tag)) };
        let data = Data::Local(Payload::Sges(&value));
        let allocate = Operation::Allocate { list: self.list, rkey, data };
        let block = Address::direct(self.at(BLOCK));
        let operands = by_tag(Operand::At(SCRATCH));
        let result = self.result(16);
        let mut batch = self.end.qps[0].batch()?;
        batch.post_prism(&unsignaled(write))?;
        batch.post_prism(&WorkRequest {
            conditional: true,
            redirect: Some(SCRATCH),
            ..unsignaled(allocate)
        })?;
        let swap = Operation::CompareSwap { at: block, operands };
        batch.post_prism(&WorkRequest { conditional: true, result, ..request(swap) })?;
        batch.ring();
        self.end.complete(1)?;
        let old = self.end.local.get::<u64>(RESULT)?;
        if old != 0 {
            self.freed.push(old);
        }
        Ok(())
    }

    fn call(&mut self, there: usize) -> Result<()> {
        let End { qps, cq, .. } = &mut self.end;
        self.echo.send(&mut qps[0], there)?;
        let mut done = [EMPTY; 2];
        loop {
            let got = cq.poll(&mut done)?;
            for completion in &done[..got] {
                if Echo::is_message(completion)? {
                    return self.echo.post_receive(&mut qps[0]);
                }
            }
        }
    }

    /// Makes the server's program post the freed buffers.
    pub(crate) fn give_back(&mut self, peer: &Peer) -> Result<()> {
        if self.freed.is_empty() {
            return Ok(());
        }
        let addresses: Vec<u8> = self.freed.iter().flat_map(|address| address.to_le_bytes()).collect();
        self.end.local.write(TOLD, &addresses)?;
        let list = [self.end.local.sge(TOLD, addresses.len())];
        self.end.one(&work::write(0, &list, self.at(FREED)))?;
        peer.run(self.end.command(NicCommand::Refill { buffers: self.freed.len() }))?;
        peer.run(Command::Sleep)?;
        self.freed.clear();
        Ok(())
    }
}
