//! A complete client: the portal of its NIC, its grants, and the channel that renews them.

use remora_verbs::rma::{Grant, Portal, RegionKey, Rights, Rma, RmaError, RmaOptions, RmaRegion, Status};
use remora_verbs::{Access, Context, PortKind};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::channel::{Announcement, Channel, Credential, Pin};
use crate::message::RegionGrant;
use crate::{Error, Result};

/// The size in bytes of the local region through which reads and writes are copied.
const BUFFER: usize = 1 << 20;
/// The number of command slots of the portal.
const SLOTS: u16 = 64;
/// The maximum number of times that one operation renews an outdated grant.
const RENEWALS: usize = 4;

/// A client that reads and writes the regions of a server. It uses the keys that the server announces, and
/// asks for new grants when a grant is outdated and no announcement replaces it.
#[derive(Debug)]
pub struct RmaSession {
    pin: Pin,
    credential: Credential,
    rma: Rma,
    portal: Portal,
    buffer: RmaRegion,
    channel: Channel,
    grants: Vec<RegionGrant>,
    announced: VecDeque<Announcement>,
    timeout: Duration,
    asked: u64,
    outdated: u64,
}

/// The kind of an operation, for the check of its right and the text of its errors.
#[derive(Copy, Clone)]
enum Verb {
    Read,
    Write,
    Rekey,
}

impl Verb {
    fn right(self) -> (Rights, &'static str) {
        match self {
            Verb::Read => (Rights::READ, "read"),
            Verb::Write => (Rights::WRITE, "write"),
            Verb::Rekey => (Rights::REKEY, "rekey"),
        }
    }
}

impl RmaSession {
    /// The default time limit of an operation or a handshake. [`set_timeout`](RmaSession::set_timeout)
    /// changes it.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects to a server and fetches the grants for the NIC of `context`.
    ///
    /// # Errors
    /// The errors of [`Channel::open`]; `Shm` if the NIC uses shared memory; `Create` or `Access` if the NIC
    /// cannot provide the resources.
    pub fn open(context: &Context, pin: Pin, credential: Credential) -> Result<RmaSession> {
        RmaSession::open_within(context, pin, credential, RmaSession::TIMEOUT)
    }

    /// Opens a session as [`open`](RmaSession::open) does, with another time limit for the handshake and each
    /// operation.
    ///
    /// # Errors
    /// The errors of [`open`](RmaSession::open).
    pub fn open_within(
        context: &Context,
        pin: Pin,
        credential: Credential,
        timeout: Duration,
    ) -> Result<RmaSession> {
        if context.port().kind == PortKind::Shm {
            return Err(Error::Shm);
        }
        let rma = context.open_rma(&RmaOptions::default())?;
        let domain = context.alloc_pd()?;
        let buffer = rma.expose(domain.allocate(BUFFER, Access::LOCAL_WRITE)?, Rights::NONE, None)?;
        let portal = rma.create_portal(&domain, SLOTS)?;
        let (channel, grants) = Channel::open(pin, &credential, &portal.identity(), timeout)?;
        for RegionGrant { grant, .. } in &grants {
            rma.reach(grant.server)?;
        }
        let announced = VecDeque::new();
        Ok(RmaSession {
            pin,
            credential,
            rma,
            portal,
            buffer,
            channel,
            grants,
            announced,
            timeout,
            asked: 1,
            outdated: 0,
        })
    }

    /// Returns the grants of the server.
    pub fn regions(&self) -> &[RegionGrant] {
        &self.grants
    }

    /// Returns how often the session has asked the server for grants.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Returns how often an operation found its grant outdated.
    pub fn outdated(&self) -> u64 {
        self.outdated
    }

    /// Sets the time limit of each operation.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Reads bytes of a region, starting at `offset` in bytes.
    ///
    /// # Errors
    /// `NoRegion`, `NoRight` or `OutOfBounds` before anything is sent; `NoAnswer`, `KeyChanges`, `Rma` or
    /// `Access` if the operation fails; the errors of [`Channel::open`] if new grants cannot be fetched.
    pub fn read(&mut self, region: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let place = self.checked(region, Verb::Read, offset, buffer.len())?;
        let mut position = offset;
        for piece in buffer.chunks_mut(BUFFER) {
            self.operate(place, Verb::Read, position, piece.len())?;
            self.buffer.memory().read(0, piece)?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes bytes to a region, starting at `offset` in bytes.
    ///
    /// # Errors
    /// The errors of [`read`](RmaSession::read). A failed write may have changed part of the region.
    pub fn write(&mut self, region: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let place = self.checked(region, Verb::Write, offset, bytes.len())?;
        let mut position = offset;
        for piece in bytes.chunks(BUFFER) {
            self.buffer.memory().write(0, piece)?;
            self.operate(place, Verb::Write, position, piece.len())?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    /// Changes the key of a region and fetches the grants under the new key.
    ///
    /// # Errors
    /// The errors of [`read`](RmaSession::read).
    pub fn rekey(&mut self, region: &str, key: &RegionKey) -> Result<()> {
        let place = self.checked(region, Verb::Rekey, 0, 0)?;
        self.buffer.memory().write(0, key.bytes())?;
        let changed = self.operate(place, Verb::Rekey, 0, key.bytes().len());
        self.buffer.memory().write(0, &[0; 16])?;
        changed?;
        self.ask()
    }

    /// Returns the index of the region's grant after checking the right and the bounds of the operation.
    fn checked(&self, region: &str, verb: Verb, offset: u64, len: usize) -> Result<usize> {
        let place = self.grants.iter().position(|granted| granted.name == region).ok_or_else(|| {
            let names: Vec<_> = self.grants.iter().map(|granted| &*granted.name).collect();
            Error::NoRegion { wanted: region.to_owned(), granted: names.join(", ") }
        })?;
        let RegionGrant { rights, grant, .. } = &self.grants[place];
        let (wanted, right) = verb.right();
        if !rights.contains(wanted) {
            return Err(Error::NoRight { right, region: region.to_owned() });
        }
        let end = offset.saturating_add(len as u64);
        if end > grant.len {
            return Err(Error::OutOfBounds { region: region.to_owned(), len: grant.len, end });
        }
        Ok(place)
    }

    /// Runs one operation on the buffer, and renews the grant up to [`RENEWALS`] times if it is outdated.
    fn operate(&mut self, place: usize, verb: Verb, offset: u64, len: usize) -> Result<()> {
        for _ in 0..=RENEWALS {
            let grant = self.grants[place].grant;
            let len = len as u64;
            let timeout = self.timeout;
            let ended = match verb {
                Verb::Read => self.portal.read(&self.buffer, 0, &grant, offset, len, timeout),
                Verb::Write => self.portal.write(&self.buffer, 0, &grant, offset, len, timeout),
                Verb::Rekey => self.portal.rekey(&self.buffer, 0, &grant),
            };
            match ended {
                Ok(()) => return Ok(()),
                Err(RmaError::Failed(Status::RemoteAuthenticationFailure)) => {
                    self.outdated += 1;
                    self.renew(place)?;
                }
                Err(RmaError::Failed(Status::Timeout)) => return Err(self.no_answer(&grant)),
                Err(other) => return Err(Error::Rma(other)),
            }
        }
        Err(Error::KeyChanges(self.grants[place].name.clone()))
    }

    /// Takes the announced key of the region, or asks for grants if there is none. A server announces each
    /// key before it changes to it. Of several announced keys the current one is therefore the last or the
    /// one before it, and the older ones are skipped.
    fn renew(&mut self, place: usize) -> Result<()> {
        while let Ok(Some(announcement)) = self.channel.announcement(Duration::ZERO) {
            self.announced.push_back(announcement);
        }
        let name = &self.grants[place].name;
        let mut own = self.announced.iter().filter(|one| one.granted.name == *name).count();
        self.announced.retain(|one| {
            let outdated = one.granted.name == *name && own > 2;
            own -= usize::from(outdated);
            !outdated
        });
        let next = self.announced.iter().position(|one| one.granted.name == *name);
        if let Some(next) = next.and_then(|next| self.announced.remove(next)) {
            self.grants[place].grant = next.granted.grant;
            return Ok(());
        }
        self.ask()
    }

    /// Fetches all grants over a new connection.
    fn ask(&mut self) -> Result<()> {
        let identity = self.portal.identity();
        let (channel, grants) = Channel::open(self.pin, &self.credential, &identity, self.timeout)?;
        self.asked += 1;
        let names = |grants: &[RegionGrant]| grants.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        if names(&grants) != names(&self.grants) {
            // Another server has taken its place, so the earlier checks of rights and bounds may not hold.
            return Err(Error::HungUp(self.pin.address));
        }
        for RegionGrant { grant, .. } in &grants {
            self.rma.reach(grant.server)?;
        }
        (self.channel, self.grants) = (channel, grants);
        self.announced.clear();
        Ok(())
    }

    fn no_answer(&mut self, grant: &Grant) -> Error {
        let ended = self.channel.has_ended();
        let nic = SocketAddr::new(IpAddr::from(grant.server.address), grant.server.udp_port);
        Error::NoAnswer { nic, ended }
    }
}
