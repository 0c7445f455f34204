//! A NIC of the peer, with the memory that the bench reads and writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use remora_verbs::{
    Access, CompletionQueue, EMPTY, FreeList, Listener, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Ready, RemoteMemory,
};

use super::rma::Exposed;
use crate::PortName;
use crate::echo::Echo;
use crate::prism::place::{BUFFERS, FREED};
use crate::strom::server::Kernels;
use crate::testbed::Network;
use crate::testbed::page::{Page, Ticket};
use crate::testbed::protocol::{Extensions, RmaCommand, TARGET};
use crate::testbed::veth::NIC;

/// A NIC of the peer.
pub(crate) struct Served {
    /// Accepts the bench's connections.
    pub listener: Listener,
    domain: ProtectionDomain,
    /// The memory that the bench reads and writes.
    pub target: MemoryRegion,
    cq: CompletionQueue,
    qps: Vec<QueuePair<Ready>>,
    echo: Option<Echo>,
    /// The buffers for ALLOCATE, after the first command that needs PRISM.
    buffers: Option<FreeList>,
    /// The kernels, after the first command that needs StRoM.
    kernels: Option<Kernels>,
    /// The path of a WebAssembly kernel.
    module: Option<PathBuf>,
    /// The regions for 1RMA, after the first command that needs it.
    exposed: Option<Exposed>,
}

impl Served {
    /// Opens the NIC with its memory.
    pub(crate) fn open(port: PortName, network: Network, module: Option<&Path>) -> Result<Served> {
        let address = network.address(port);
        let context = port.device_on(address, NIC)?.open()?;
        let domain = context.alloc_pd()?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let target = domain.allocate(TARGET, rights)?;
        crate::touch(&target)?;
        let cq = context.create_cq(256)?;
        let listener = Listener::bind((address, 0))?;
        let qps = Vec::new();
        let module = module.map(Path::to_owned);
        let echo = None;
        let buffers = None;
        let kernels = None;
        let exposed = None;
        Ok(Served { listener, domain, target, cq, qps, echo, buffers, kernels, module, exposed })
    }

    /// Accepts connections with these extensions.
    pub(crate) fn accept(
        &mut self,
        reads: u8,
        extensions: Extensions,
        page: &Page,
        ticket: Ticket,
    ) -> Result<()> {
        let mut about = self.target.remote_memory().to_bytes().to_vec();
        let Extensions { prism, strom } = extensions;
        if prism {
            about.extend_from_slice(&self.free_list()?.to_le_bytes());
        }
        if strom && self.kernels.is_none() {
            self.kernels = Some(Kernels::deploy(&self.domain, &self.target, self.module.as_deref())?);
        }
        while page.is_wanted(ticket) {
            let Some(request) = self.listener.accept(Some(Duration::from_millis(20)))? else { continue };
            let theirs = RemoteMemory::from_bytes(request.private_data());
            let options = QpOptions {
                // The queue holds the answers of kernels until they are acknowledged, and nothing else.
                max_send_wr: if strom { 128 } else { 16 },
                max_recv_wr: 16,
                max_dest_rd_atomic: reads,
                private_data: about.clone(),
                prism,
                strom,
                ..QpOptions::default()
            };
            let qp = self.domain.create_qp(&self.cq, &self.cq, &options)?;
            self.qps.push(request.accept(qp)?);
            if self.qps.len() == 1 {
                self.echo = theirs.map(|theirs| Echo::new(&self.target, theirs));
            }
        }
        Ok(())
    }

    /// Returns the number of the free list, which is created and filled by the first call.
    fn free_list(&mut self) -> Result<u64> {
        if let Some(list) = &self.buffers {
            return Ok(list.number());
        }
        let mut list = self.domain.create_free_list(&self.target, &BUFFERS)?;
        (0..BUFFERS.count).try_for_each(|index| list.post(index))?;
        Ok(self.buffers.insert(list).number())
    }

    /// Posts the buffers whose addresses a client has written.
    pub(crate) fn refill(&mut self, buffers: usize) -> Result<()> {
        let list = self.buffers.as_mut().context("the free list has not been created")?;
        for index in 0..buffers {
            let address: u64 = self.target.get(FREED as usize + index * 8)?;
            list.post(list.index(address).context("a client returned an address that is not a buffer's")?)?;
        }
        Ok(())
    }

    /// Executes [`NicCommand::Attach`] for the connections.
    pub(crate) fn attach(&self, counts: bool, checks: Option<u32>) -> Result<()> {
        let kernels = self.kernels.as_ref().context("the kernels have not been deployed")?;
        let qp = self.qps.first().context("there is no connection")?;
        qp.attach(counts.then(|| kernels.counting()))?;
        if let Some(failing) = checks {
            let qp = self.qps.get(1).context("there is no second connection")?;
            let kernel = kernels.consistency(failing).context("no kernel has this share of failing reads")?;
            qp.check_reads(Some(kernel))?;
        }
        Ok(())
    }

    /// Posts receive buffers before messages are answered, since the first message needs one.
    pub(crate) fn start_echo(&mut self) -> Result<()> {
        match (&mut self.echo, self.qps.first_mut()) {
            (Some(echo), Some(qp)) => echo.start(qp),
            _ => Ok(()),
        }
    }

    /// Answers messages of the first connection.
    pub(crate) fn answer(&mut self, back: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let (Some(echo), Some(qp)) = (&mut self.echo, self.qps.first_mut()) else {
            bail!("there is no connection with messages to answer")
        };
        let mut done = [EMPTY; 16];
        while page.is_wanted(ticket) {
            for _ in 0..64 {
                let got = self.cq.poll(&mut done)?;
                for completion in &done[..got] {
                    if Echo::is_message(completion)? {
                        echo.post_receive(qp)?;
                        echo.send(qp, back)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Executes a command for the NIC's 1RMA, and sends the answer.
    pub(crate) fn rma(&mut self, command: RmaCommand, page: &Page) -> Result<()> {
        if self.exposed.is_none() {
            self.exposed = Some(Exposed::open(&self.domain)?);
        }
        let exposed = self.exposed.as_mut().context("it was opened")?;
        page.answer_bytes(&exposed.answer(command)?);
        Ok(())
    }

    /// Polls the NIC until the bench sends another command.
    pub(crate) fn serve(&mut self, page: &Page, ticket: Ticket) -> Result<()> {
        let mut done = [EMPTY; 16];
        while page.is_wanted(ticket) {
            for _ in 0..64 {
                self.cq.poll(&mut done)?;
            }
        }
        Ok(())
    }

    /// Polls the NIC and accepts connections meanwhile.
    pub(crate) fn serve_and_accept(&mut self, reads: u8, page: &Page, ticket: Ticket) -> Result<()> {
        let mut done = [EMPTY; 16];
        while page.is_wanted(ticket) {
            for _ in 0..64 {
                self.cq.poll(&mut done)?;
            }
            let Some(request) = self.listener.accept(Some(Duration::ZERO))? else { continue };
            let options = QpOptions {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_dest_rd_atomic: reads,
                private_data: self.target.remote_memory().to_bytes().to_vec(),
                ..QpOptions::default()
            };
            let qp = self.domain.create_qp(&self.cq, &self.cq, &options)?;
            self.qps.push(request.accept(qp)?);
        }
        Ok(())
    }

    /// Closes all connections but the first.
    pub(crate) fn forget(&mut self) {
        self.qps.truncate(1);
    }
}
