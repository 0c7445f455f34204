//! 1RMA on a NIC of the peer: the regions that the bench reads and writes.

use anyhow::{Context as _, Result, ensure};
use remora_grants::{Certificate, GrantOptions, GrantServer, Offer, Token};
use remora_verbs::rma::{Client, RegionKey, Rights, Rma, RmaOptions, RmaRegion};
use remora_verbs::{Access, ProtectionDomain};

use crate::rma::place::{Granting, NAME, REGION};
use crate::testbed::protocol::RmaCommand;
use remora_options::device::LOOPBACK;

/// Operations that peers may perform on a region.
const RIGHTS: Rights = Rights(Rights::READ.0 | Rights::WRITE.0 | Rights::REKEY.0);

/// The 1RMA state of one NIC.
pub(crate) struct Exposed {
    domain: ProtectionDomain,
    rma: Rma,
    regions: [Option<RmaRegion>; 2],
    grants: Option<GrantServer>,
}

impl Exposed {
    /// Enables 1RMA on the NIC.
    pub(crate) fn open(domain: &ProtectionDomain) -> Result<Exposed> {
        let rma = domain.context().open_rma(&RmaOptions::default())?;
        Ok(Exposed { domain: domain.clone(), rma, regions: [None, None], grants: None })
    }

    /// Executes a command and returns the answer.
    pub(crate) fn answer(&mut self, command: RmaCommand) -> Result<Vec<u8>> {
        match command {
            RmaCommand::Expose { place, key, client } => self.expose(place, key, client.into()),
            RmaCommand::Granting => self.grant(),
        }
    }

    fn region(&self, key: Option<RegionKey>) -> Result<RmaRegion> {
        let memory = self.domain.allocate(REGION, Access::LOCAL_WRITE)?;
        crate::touch(&memory)?;
        Ok(self.rma.expose(memory, RIGHTS, key)?)
    }

    fn expose(&mut self, place: usize, key: [u8; 16], client: Client) -> Result<Vec<u8>> {
        ensure!(place < self.regions.len(), "the peer has no region slot of this number");
        let key = RegionKey::new(key).context("a key of zeros is not valid")?;
        // The old region is deregistered first, so that accesses to it fail from now on.
        self.regions[place] = None;
        let region = self.region(Some(key))?;
        let grant = region.grant(&client).to_bytes().to_vec();
        self.regions[place] = Some(region);
        Ok(grant)
    }

    fn grant(&mut self) -> Result<Vec<u8>> {
        let token = Token::random()?;
        let options = GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new()?) };
        let offer = Offer::new(NAME, RIGHTS, self.region(None)?);
        let server = GrantServer::start((LOOPBACK, 0).into(), options, vec![offer])?;
        let granting = Granting { port: server.address().port(), fingerprint: server.fingerprint(), token };
        self.grants = Some(server);
        Ok(granting.to_bytes())
    }
}
