//! A client whole: its NIC's portal, its grants, and the channel that renews them.

use remora_verbs::rma::{Grant, Portal, RegionKey, Rights, Rma, RmaError, RmaOptions, RmaRegion, Status};
use remora_verbs::{Access, Context, PortKind};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::channel::{Announcement, Channel, Credential, Pin};
use crate::message::RegionGrant;
use crate::{Error, Result};

/// Bytes of the local region that operations go through.
const BUFFER: usize = 1 << 20;
/// Commands in flight.
const SLOTS: u16 = 64;
/// Grants that may be outdated when they are used, one after the other.
const RENEWALS: usize = 4;

/// Reads and writes a server's regions. While the server announces keys it follows them; otherwise it asks
/// again when one is outdated.
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

/// What an operation does, for its checks and its words.
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
    /// How long an operation or a hand-shake may take, unless [`set_timeout`](RmaSession::set_timeout) says
    /// otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Gets the grants of a server for this NIC.
    ///
    /// # Errors
    /// Those of a [`Channel`]; `Shm`; the NIC's.
    pub fn open(context: &Context, pin: Pin, credential: Credential) -> Result<RmaSession> {
        RmaSession::open_within(context, pin, credential, RmaSession::TIMEOUT)
    }

    /// The same, with another bound for the hand-shake and each operation.
    ///
    /// # Errors
    /// As [`open`](RmaSession::open).
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

    /// What the server grants.
    pub fn regions(&self) -> &[RegionGrant] {
        &self.grants
    }

    /// How often it has asked for grants.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// How often an operation failed because its grant was outdated, and was done again by another one.
    pub fn outdated(&self) -> u64 {
        self.outdated
    }

    /// Bounds each operation.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Reads a region, from `offset` on.
    ///
    /// # Errors
    /// `NoRegion`, `NoRight`, `OutOfBounds`; how the operation ended.
    pub fn read(&mut self, region: &str, offset: u64, into: &mut [u8]) -> Result<()> {
        let place = self.checked(region, Verb::Read, offset, into.len())?;
        let mut at = offset;
        for piece in into.chunks_mut(BUFFER) {
            self.operate(place, Verb::Read, at, piece.len())?;
            self.buffer.memory().read(0, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes a region, from `offset` on.
    ///
    /// # Errors
    /// As [`read`](RmaSession::read). One that has not ended well may have taken effect in part.
    pub fn write(&mut self, region: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let place = self.checked(region, Verb::Write, offset, bytes.len())?;
        let mut at = offset;
        for piece in bytes.chunks(BUFFER) {
            self.buffer.memory().write(0, piece)?;
            self.operate(place, Verb::Write, at, piece.len())?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Changes the key of a region, and gets the grants under the new one.
    ///
    /// # Errors
    /// As [`read`](RmaSession::read).
    pub fn rekey(&mut self, region: &str, key: &RegionKey) -> Result<()> {
        let place = self.checked(region, Verb::Rekey, 0, 0)?;
        self.buffer.memory().write(0, key.bytes())?;
        let changed = self.operate(place, Verb::Rekey, 0, key.bytes().len());
        self.buffer.memory().write(0, &[0; 16])?;
        changed?;
        self.ask()
    }

    /// The place of a region that grants this.
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

    /// One operation on the buffer, with as many grants as it takes.
    fn operate(&mut self, place: usize, verb: Verb, offset: u64, len: usize) -> Result<()> {
        for _ in 0..=RENEWALS {
            let grant = self.grants[place].grant;
            let (len, timeout) = (len as u64, self.timeout);
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

    /// Takes a key that was announced for this region, or asks for grants. A server announces one key before
    /// it changes to it: of several, the last is in force or the one before it.
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

    /// Asks for all grants anew.
    fn ask(&mut self) -> Result<()> {
        let identity = self.portal.identity();
        let (channel, grants) = Channel::open(self.pin, &self.credential, &identity, self.timeout)?;
        self.asked += 1;
        let names = |grants: &[RegionGrant]| grants.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        if names(&grants) != names(&self.grants) {
            // Another server took its place: what was checked before may not hold.
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
