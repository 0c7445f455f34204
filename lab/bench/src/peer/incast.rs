//! Many NICs of the peer over UDP, from which the bench reads at the same time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use remora_verbs::rma::{RegionKey, Rights, RmaOptions, RmaRegion};
use remora_verbs::{
    Access, CompletionQueue, EMPTY, Listener, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ready,
};

use crate::rma::place::{CROWD, FIRST_REGION};
use crate::testbed::page::{Page, Ticket};
use crate::testbed::protocol::IncastCommand;
use crate::testbed::veth::NIC;
use remora_options::device::{LOOPBACK, PortName};

/// The size in bytes of each NIC's region.
const LEN: usize = 1 << 20;

/// A server NIC of the incast.
struct Member {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    port: u16,
    target: MemoryRegion,
    qp: Option<QueuePair<Ready>>,
    _region: RmaRegion,
}

impl Member {
    fn open(key: &RegionKey) -> Result<Member> {
        let context = PortName::Udp.device_on(LOOPBACK, NIC)?.open()?;
        let domain = context.alloc_pd()?;
        let target = domain.allocate(LEN, Access::REMOTE_READ | Access::LOCAL_WRITE)?;
        crate::touch(&target)?;
        let rma = context.open_rma(&RmaOptions::default())?;
        let memory = domain.allocate(LEN, Access::LOCAL_WRITE)?;
        crate::touch(&memory)?;
        let region = rma.expose(memory, Rights::READ, Some(key.clone()))?;
        ensure!(region.id() == FIRST_REGION, "the first region of a NIC has another RegionId");
        let cq = context.create_cq(64)?;
        let port = rma.endpoint().udp_port;
        Ok(Member { domain, cq, port, target, qp: None, _region: region })
    }
}

/// All servers, and the listener for their connections.
pub(crate) struct IncastServers {
    members: Vec<Member>,
    listener: Listener,
}

impl IncastServers {
    /// Opens all servers, whose region has the given key.
    pub(crate) fn open(key: [u8; 16]) -> Result<IncastServers> {
        let key = RegionKey::new(key).context("a key of zeros is not valid")?;
        let members = (0..CROWD).map(|_| Member::open(&key)).collect::<Result<Vec<Member>>>()?;
        Ok(IncastServers { members, listener: Listener::bind((LOOPBACK, 0))? })
    }

    /// Returns the UDP ports of the NICs and the TCP port for their connections, 2 bytes each.
    pub(crate) fn ports(&self) -> Vec<u8> {
        let own = self.members.iter().map(|member| member.port);
        own.chain([self.listener.address().port()]).flat_map(u16::to_le_bytes).collect()
    }

    /// Executes a command.
    pub(crate) fn carry_out(&mut self, command: IncastCommand, page: &Page, ticket: Ticket) -> Result<()> {
        match command {
            IncastCommand::Open { .. } => Ok(()),
            IncastCommand::Accept => self.accept(page, ticket),
            IncastCommand::Serve => self.serve(page, ticket),
        }
    }

    fn accept(&mut self, page: &Page, ticket: Ticket) -> Result<()> {
        let mut waiting = self.members.iter_mut().filter(|member| member.qp.is_none());
        while page.is_wanted(ticket) {
            let Some(request) = self.listener.accept(Some(Duration::from_millis(20)))? else { continue };
            let member = waiting.next().context("more connections than the incast has NICs")?;
            let options = QpOptions {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_dest_rd_atomic: 16,
                private_data: member.target.remote_memory().to_bytes().to_vec(),
                ..QpOptions::default()
            };
            let qp = member.domain.create_qp(&member.cq, &member.cq, &options)?;
            member.qp = Some(request.accept(qp)?);
        }
        Ok(())
    }

    fn serve(&mut self, page: &Page, ticket: Ticket) -> Result<()> {
        let mut done = [EMPTY; 16];
        while page.is_wanted(ticket) {
            for member in &mut self.members {
                member.cq.poll(&mut done)?;
            }
        }
        Ok(())
    }
}
