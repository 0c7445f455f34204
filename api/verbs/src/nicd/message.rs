//! A program's requests to the daemon, and the daemon's replies, as bytes: one packet each. Integers are
//! little-endian.
//!
//! ```text
//!  0  kind 8   1  fields in the order of their declaration
//! ```
//!
//! A text or a block of bytes begins with its length, 16 bits.
//!
//! A packet is not trusted: one that is too short or too long, or has an impossible value, is no message.

use remora_host::connect::{Agreement, Full, Hello, LASTING, Message};
use remora_host::{PortFacts, PortKind};
use remora_nic::rma::{RegionKey, Rights};
use remora_nic::{Fetching, Service};
use remora_port::Peer;
use remora_transport::state::State;
use remora_wire::frame::{Address, Endpoint};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::{Access, QpOptions};

/// Version of this format.
pub(crate) const VERSION: u16 = 4;
/// Bytes of a packet at most.
pub(crate) const MAX_PACKET: usize = 2048;
/// Bytes of a name at most.
pub(crate) const MAX_NAME: usize = 64;
/// Parts of a code region, and regions of a kernel, at most.
pub(crate) const MAX_PARTS: usize = 64;
/// First bytes of the first packet.
const MAGIC: u64 = u64::from_le_bytes(*b"RemoraNd");

/// A tenant, as the daemon's owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantFacts {
    /// The user id of its programs.
    pub uid: u32,
    /// Its name; empty for a tenant that ends with its program.
    pub name: String,
    /// True while a program is attached.
    pub attached: bool,
    /// Regions of the tenant.
    pub regions: usize,
    /// Completion queues of the tenant.
    pub queues: usize,
    /// Queue pairs of the tenant.
    pub pairs: usize,
    /// Bytes of its regions and queues.
    pub bytes: u64,
    /// Command slots of 1RMA.
    pub rma_slots: usize,
    /// Regions of 1RMA.
    pub rma_regions: usize,
}

/// A request for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocate {
    pub domain: u32,
    pub len: u64,
    pub access: u32,
    pub name: String,
}

/// A request for a completion queue. Channel 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateCq {
    pub depth: u32,
    pub channel: u32,
    pub tag: u64,
    pub counted: bool,
}

/// A request for a code region: fresh memory, and the slots of send queues, under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateCode {
    pub domain: u32,
    /// Bytes of the memory.
    pub len: u64,
    pub parts: Vec<CodePart>,
}

/// A part of a code region, and its address there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodePart {
    pub of: CodeOf,
    pub iova: u64,
}

/// A request to deploy a kernel that ships.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deploy {
    pub domain: u32,
    pub kernel: u32,
    pub lanes: u32,
    pub opcode: Option<u64>,
    pub longest: u32,
    pub answers: u32,
    pub limit: u64,
    /// Keys of regions.
    pub grants: Vec<u32>,
}

/// The source of a part of a code region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum CodeOf {
    /// Of the fresh memory: offset and length in bytes.
    Memory(u64, u64),
    /// All slots of this queue pair's send queue.
    Pair(u32),
}

/// A request for a RegionId of 1RMA, for the region with this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegisterRma {
    pub region: u32,
    pub rights: Rights,
    /// K_r, which Debug output does not have.
    pub key: RegionKey,
}

/// A request for a command portal of 1RMA.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatePortal {
    pub domain: u32,
    pub cq: u32,
    pub slots: u16,
    /// Its commands are of the bulk class only.
    pub bulk_only: bool,
}

/// A request for a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateQp {
    pub domain: u32,
    pub send_cq: u32,
    pub receive_cq: u32,
    pub service: Service,
    pub options: Box<QpOptions>,
}

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The first: the tenant's name, and whether its objects outlive the program.
    Attach {
        version: u16,
        name: String,
        kept: bool,
    },
    AllocDomain,
    FreeDomain(u32),
    Allocate(Allocate),
    Deregister(u32),
    CreateChannel,
    DestroyChannel(u32),
    CreateCq(CreateCq),
    DestroyCq(u32),
    Arm {
        number: u32,
        solicited: bool,
    },
    CreateQp(CreateQp),
    DestroyQp(u32),
    /// With a socket for the answer, as the next two.
    Connect {
        number: u32,
        address: SocketAddr,
    },
    ConnectPair {
        one: u32,
        other: u32,
    },
    /// With the TCP connection too.
    Answer {
        number: u32,
        hello: Box<Hello>,
    },
    Agreement(u32),
    State(u32),
    Fail(u32),
    /// The kept object with this index.
    Kept(u32),
    SetChannel {
        number: u32,
        channel: u32,
    },
    /// A queue pair that is connected to itself.
    CreateLoopback(CreateQp),
    CreateCode(CreateCode),
    Enable {
        number: u32,
        count: u64,
    },
    Deploy(Deploy),
    RemoveKernel(u32),
    /// Who is this program for servers of 1RMA?
    Identify,
    RegisterRma(RegisterRma),
    /// Of this RegionId, as the next two.
    DeregisterRma(u32),
    RekeyRma {
        region: u32,
        key: RegionKey,
    },
    /// The key that it has now.
    RmaKey(u32),
    CreatePortal(CreatePortal),
    DestroyPortal(u32),
    /// Finds the way to a server of 1RMA.
    Reach(Endpoint),
    /// In place of the first message: the tenants.
    List {
        version: u16,
    },
    /// In place of the first message: ends a kept tenant.
    End {
        version: u16,
        uid: u32,
        name: String,
    },
}

/// A command portal that the daemon lends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortalFacts {
    pub number: u32,
    pub bell: u32,
    /// The first of its slots.
    pub first: u16,
}

/// A region that the daemon lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegionFacts {
    pub domain: u32,
    pub key: u32,
    pub iova: u64,
    pub name: String,
}

/// A completion queue that the daemon lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueFacts {
    pub number: u32,
    pub tag: u64,
}

/// A queue pair that the daemon lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairFacts {
    pub number: u32,
    pub bell: u32,
    pub domain: u32,
    pub send_cq: u32,
    pub receive_cq: u32,
    pub service: Service,
    pub options: Box<QpOptions>,
    pub agreement: Option<Agreement>,
}

/// A reply of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A refusal, and its text.
    Refused(String),
    Done,
    /// With the memory of the doorbells, and the eventfd that wakes the engine.
    Attached {
        port: PortFacts,
        places: u32,
    },
    Number(u32),
    /// With its memory.
    Region(RegionFacts),
    /// With its memory.
    Queue(QueueFacts),
    /// With the memory of both queues, and the connection of the set-up if it is kept.
    Pair(Box<PairFacts>),
    Agreed(Box<Agreement>),
    State(State),
    Domain(u32),
    /// A kernel that was kept.
    Kernel {
        number: u32,
        domain: u32,
    },
    /// There is no kept object with this index.
    Nothing,
    /// The other side of a connection is full.
    Full(Full),
    /// The process number and incarnation that the NIC writes into the program's requests.
    Identity {
        pid: u32,
        incarnation: u32,
    },
    RmaKey(RegionKey),
    /// With the memory of its ring.
    Portal(PortalFacts),
    /// One of the tenants; `Nothing` ends the list.
    Tenant(TenantFacts),
}

/// Overwrites the bytes of a packet, which may hold a key.
pub(crate) fn wipe(packet: &mut [u8]) {
    packet.fill(0);
    // The stores stay, although nobody reads them.
    std::hint::black_box(packet);
}

/// A writer of little-endian fields.
struct Out(Vec<u8>);

impl Out {
    fn u8(&mut self, value: u8) -> &mut Out {
        self.0.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Out {
        let len = bytes.len().min(u16::MAX as usize);
        self.u16(len as u16).0.extend(&bytes[..len]);
        self
    }

    fn hello(&mut self, hello: &Hello) -> &mut Out {
        self.bytes(&Message::Request(hello.clone()).emit())
    }

    fn key(&mut self, key: &RegionKey) -> &mut Out {
        self.0.extend(key.bytes());
        self
    }

    fn tenant(&mut self, facts: &TenantFacts) -> &mut Out {
        let TenantFacts { uid, name, attached, regions, queues, pairs, bytes, rma_slots, rma_regions } =
            facts;
        self.u32(*uid).bytes(name.as_bytes()).u8((*attached).into());
        for count in [regions, queues, pairs, rma_slots, rma_regions] {
            self.u64(*count as u64);
        }
        self.u64(*bytes)
    }

    fn endpoint(&mut self, endpoint: Endpoint) -> &mut Out {
        self.0.extend(endpoint.address.0);
        self.u16(endpoint.udp_port)
    }

    fn address(&mut self, address: SocketAddr) -> &mut Out {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.0.extend(ip.octets());
        self.u16(address.port())
    }

    fn options(&mut self, options: &QpOptions) -> &mut Out {
        let QpOptions { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline, .. } = *options;
        for word in [max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline, options.path_mtu] {
            self.u32(word);
        }
        let QpOptions { max_rd_atomic, max_dest_rd_atomic, timeout, retry_cnt, rnr_retry, .. } = *options;
        for byte in [max_rd_atomic, max_dest_rd_atomic, timeout, retry_cnt, rnr_retry, options.min_rnr_timer]
        {
            self.u8(byte);
        }
        for flag in [options.signal_all, options.irn, options.prism, options.strom, options.lasting] {
            self.u8(flag.into());
        }
        self.u8(options.fetching as u8).u32(options.access.bits()).bytes(&options.private_data);
        self.u64(options.connect_timeout.as_millis().min(u64::MAX.into()) as u64)
    }

    fn agreement(&mut self, agreement: &Agreement) -> &mut Out {
        self.u32(agreement.peer.0).u32(agreement.path_mtu).u8(agreement.max_rd_atomic);
        self.u64(agreement.extensions).u8(agreement.irn.is_some().into()).u32(agreement.irn.unwrap_or(0));
        self.u8(agreement.prism.into()).u8(agreement.strom.into()).hello(&agreement.remote)
    }

    fn create_qp(&mut self, asked: &CreateQp) -> &mut Out {
        self.u32(asked.domain).u32(asked.send_cq).u32(asked.receive_cq);
        self.u8(asked.service as u8).options(&asked.options)
    }

    fn code(&mut self, asked: &CreateCode) -> &mut Out {
        self.u32(asked.domain).u64(asked.len).u8(asked.parts.len().min(MAX_PARTS) as u8);
        for part in asked.parts.iter().take(MAX_PARTS) {
            match part.of {
                CodeOf::Memory(offset, len) => self.u8(0).u64(offset).u64(len),
                CodeOf::Pair(number) => self.u8(1).u32(number),
            }
            .u64(part.iova);
        }
        self
    }

    fn deploy(&mut self, asked: &Deploy) -> &mut Out {
        self.u32(asked.domain).u32(asked.kernel).u32(asked.lanes);
        self.u8(asked.opcode.is_some().into()).u64(asked.opcode.unwrap_or(0));
        self.u32(asked.longest).u32(asked.answers).u64(asked.limit);
        self.u8(asked.grants.len().min(MAX_PARTS) as u8);
        asked.grants.iter().take(MAX_PARTS).fold(self, |out, key| out.u32(*key))
    }

    fn pair(&mut self, facts: &PairFacts) -> &mut Out {
        for word in [facts.number, facts.bell, facts.domain, facts.send_cq, facts.receive_cq] {
            self.u32(word);
        }
        self.u8(facts.service as u8).options(&facts.options).u8(facts.agreement.is_some().into());
        if let Some(agreement) = &facts.agreement {
            self.agreement(agreement);
        }
        self
    }
}

/// A reader of little-endian fields; it reads nothing beyond the end.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let len = self.u16()? as usize;
        if len > most {
            return None;
        }
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self, most: usize) -> Option<String> {
        std::str::from_utf8(self.bytes(most)?).ok().map(str::to_owned)
    }

    fn fetching(&mut self) -> Option<Fetching> {
        let number = self.u8()?;
        [Fetching::Posted, Fetching::Enabled, Fetching::Recycled].into_iter().find(|how| *how as u8 == number)
    }

    fn service(&mut self) -> Option<Service> {
        let number = self.u8()?;
        Service::ALL.into_iter().find(|service| *service as u8 == number)
    }

    fn hello(&mut self) -> Option<Hello> {
        match Message::parse(self.bytes(MAX_PACKET)?) {
            Ok(Message::Request(hello)) => Some(hello),
            _ => None,
        }
    }

    /// All zeros is no key.
    fn key(&mut self) -> Option<RegionKey> {
        RegionKey::new(self.take()?)
    }

    fn rights(&mut self) -> Option<Rights> {
        let all = Rights::READ | Rights::WRITE | Rights::REKEY;
        self.u8().map(Rights).filter(|rights| all.contains(*rights))
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        Some(Endpoint { address: Address(self.take()?), udp_port: self.u16()? })
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = Ipv6Addr::from(self.take::<16>()?).to_canonical();
        Some(SocketAddr::new(ip, self.u16()?))
    }

    fn options(&mut self) -> Option<QpOptions> {
        Some(QpOptions {
            max_send_wr: self.u32()?,
            max_recv_wr: self.u32()?,
            max_send_sge: self.u32()?,
            max_recv_sge: self.u32()?,
            max_inline: self.u32()?,
            path_mtu: self.u32()?,
            max_rd_atomic: self.u8()?,
            max_dest_rd_atomic: self.u8()?,
            timeout: self.u8()?,
            retry_cnt: self.u8()?,
            rnr_retry: self.u8()?,
            min_rnr_timer: self.u8()?,
            signal_all: self.flag()?,
            irn: self.flag()?,
            prism: self.flag()?,
            strom: self.flag()?,
            lasting: self.flag()?,
            fetching: self.fetching()?,
            access: Access::from_bits(self.u32()?)?,
            private_data: self.bytes(remora_host::connect::MAX_PRIVATE)?.to_vec(),
            connect_timeout: Duration::from_millis(self.u64()?),
            ..QpOptions::default()
        })
    }

    fn agreement(&mut self) -> Option<Agreement> {
        let (peer, path_mtu, max_rd_atomic) = (Peer(self.u32()?), self.u32()?, self.u8()?);
        let (extensions, has_irn, reach) = (self.u64()?, self.flag()?, self.u32()?);
        let (prism, strom) = (self.flag()?, self.flag()?);
        let (remote, irn, lasting) = (self.hello()?, has_irn.then_some(reach), extensions & LASTING != 0);
        Some(Agreement { peer, remote, path_mtu, max_rd_atomic, extensions, irn, prism, strom, lasting })
    }

    fn create_qp(&mut self) -> Option<CreateQp> {
        Some(CreateQp {
            domain: self.u32()?,
            send_cq: self.u32()?,
            receive_cq: self.u32()?,
            service: self.service()?,
            options: Box::new(self.options()?),
        })
    }

    fn code(&mut self) -> Option<CreateCode> {
        let (domain, len, count) = (self.u32()?, self.u64()?, self.u8()? as usize);
        let part = |from: &mut Self| {
            let of = match from.u8()? {
                0 => CodeOf::Memory(from.u64()?, from.u64()?),
                1 => CodeOf::Pair(from.u32()?),
                _ => return None,
            };
            Some(CodePart { of, iova: from.u64()? })
        };
        let parts = (0..count).map(|_| part(self)).collect::<Option<Vec<CodePart>>>()?;
        (count <= MAX_PARTS).then_some(CreateCode { domain, len, parts })
    }

    fn deploy(&mut self) -> Option<Deploy> {
        let (domain, kernel, lanes) = (self.u32()?, self.u32()?, self.u32()?);
        let (has_opcode, opcode) = (self.flag()?, self.u64()?);
        let (longest, answers, limit, count) = (self.u32()?, self.u32()?, self.u64()?, self.u8()? as usize);
        let grants = (0..count).map(|_| self.u32()).collect::<Option<Vec<u32>>>()?;
        let opcode = has_opcode.then_some(opcode);
        let asked = Deploy { domain, kernel, lanes, opcode, longest, answers, limit, grants };
        (count <= MAX_PARTS).then_some(asked)
    }

    fn pair(&mut self) -> Option<PairFacts> {
        Some(PairFacts {
            number: self.u32()?,
            bell: self.u32()?,
            domain: self.u32()?,
            send_cq: self.u32()?,
            receive_cq: self.u32()?,
            service: self.service()?,
            options: Box::new(self.options()?),
            agreement: if self.flag()? { Some(self.agreement()?) } else { None },
        })
    }

    fn port(&mut self) -> Option<PortFacts> {
        let kind = match self.u8()? {
            1 => PortKind::Shm,
            2 => PortKind::Udp,
            3 => PortKind::Xdp,
            _ => return None,
        };
        let endpoint = self.endpoint()?;
        let path_mtu = self.u32()?;
        Some(PortFacts { kind, endpoint, source: endpoint, path_mtu, manner: "through its daemon" })
    }

    fn tenant(&mut self) -> Option<TenantFacts> {
        let (uid, name, attached) = (self.u32()?, self.text(MAX_NAME)?, self.flag()?);
        let mut count = || usize::try_from(self.u64()?).ok();
        Some(TenantFacts {
            uid,
            name,
            attached,
            regions: count()?,
            queues: count()?,
            pairs: count()?,
            rma_slots: count()?,
            rma_regions: count()?,
            bytes: self.u64()?,
        })
    }

    fn state(&mut self) -> Option<State> {
        let number = self.u8()?;
        State::ALL.into_iter().find(|state| *state as u8 == number)
    }
}

impl Request {
    /// The packet with this request.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(64));
        match self {
            Request::Attach { version, name, kept } => {
                out.u8(1).u64(MAGIC).u16(*version).bytes(name.as_bytes()).u8((*kept).into())
            }
            Request::AllocDomain => out.u8(2),
            Request::FreeDomain(number) => out.u8(3).u32(*number),
            Request::Allocate(Allocate { domain, len, access, name }) => {
                out.u8(4).u32(*domain).u64(*len).u32(*access).bytes(name.as_bytes())
            }
            Request::Deregister(key) => out.u8(5).u32(*key),
            Request::CreateChannel => out.u8(6),
            Request::DestroyChannel(number) => out.u8(7).u32(*number),
            Request::CreateCq(CreateCq { depth, channel, tag, counted }) => {
                out.u8(8).u32(*depth).u32(*channel).u64(*tag).u8((*counted).into())
            }
            Request::DestroyCq(number) => out.u8(9).u32(*number),
            Request::Arm { number, solicited } => out.u8(10).u32(*number).u8((*solicited).into()),
            Request::CreateQp(asked) => out.u8(11).create_qp(asked),
            Request::DestroyQp(number) => out.u8(12).u32(*number),
            Request::Connect { number, address } => out.u8(13).u32(*number).address(*address),
            Request::ConnectPair { one, other } => out.u8(14).u32(*one).u32(*other),
            Request::Answer { number, hello } => out.u8(15).u32(*number).hello(hello),
            Request::Agreement(number) => out.u8(16).u32(*number),
            Request::State(number) => out.u8(17).u32(*number),
            Request::Fail(number) => out.u8(18).u32(*number),
            Request::Kept(place) => out.u8(19).u32(*place),
            Request::SetChannel { number, channel } => out.u8(20).u32(*number).u32(*channel),
            Request::CreateLoopback(asked) => out.u8(21).create_qp(asked),
            Request::CreateCode(asked) => out.u8(22).code(asked),
            Request::Enable { number, count } => out.u8(23).u32(*number).u64(*count),
            Request::Deploy(asked) => out.u8(24).deploy(asked),
            Request::RemoveKernel(number) => out.u8(25).u32(*number),
            Request::Identify => out.u8(26),
            Request::RegisterRma(RegisterRma { region, rights, key }) => {
                out.u8(27).u32(*region).u8(rights.0).key(key)
            }
            Request::DeregisterRma(region) => out.u8(28).u32(*region),
            Request::RekeyRma { region, key } => out.u8(29).u32(*region).key(key),
            Request::RmaKey(region) => out.u8(30).u32(*region),
            Request::CreatePortal(CreatePortal { domain, cq, slots, bulk_only }) => {
                out.u8(31).u32(*domain).u32(*cq).u16(*slots).u8((*bulk_only).into())
            }
            Request::DestroyPortal(number) => out.u8(32).u32(*number),
            Request::Reach(endpoint) => out.u8(33).endpoint(*endpoint),
            Request::List { version } => out.u8(34).u64(MAGIC).u16(*version),
            Request::End { version, uid, name } => {
                out.u8(35).u64(MAGIC).u16(*version).u32(*uid).bytes(name.as_bytes())
            }
        };
        out.0
    }

    /// The request in exactly these bytes; None: they are no request.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        let mut from = In(bytes);
        let request = match from.u8()? {
            1 if from.u64()? == MAGIC => {
                Request::Attach { version: from.u16()?, name: from.text(MAX_NAME)?, kept: from.flag()? }
            }
            2 => Request::AllocDomain,
            3 => Request::FreeDomain(from.u32()?),
            4 => Request::Allocate(Allocate {
                domain: from.u32()?,
                len: from.u64()?,
                access: from.u32()?,
                name: from.text(MAX_NAME)?,
            }),
            5 => Request::Deregister(from.u32()?),
            6 => Request::CreateChannel,
            7 => Request::DestroyChannel(from.u32()?),
            8 => Request::CreateCq(CreateCq {
                depth: from.u32()?,
                channel: from.u32()?,
                tag: from.u64()?,
                counted: from.flag()?,
            }),
            9 => Request::DestroyCq(from.u32()?),
            10 => Request::Arm { number: from.u32()?, solicited: from.flag()? },
            11 => Request::CreateQp(from.create_qp()?),
            12 => Request::DestroyQp(from.u32()?),
            13 => Request::Connect { number: from.u32()?, address: from.address()? },
            14 => Request::ConnectPair { one: from.u32()?, other: from.u32()? },
            15 => Request::Answer { number: from.u32()?, hello: Box::new(from.hello()?) },
            16 => Request::Agreement(from.u32()?),
            17 => Request::State(from.u32()?),
            18 => Request::Fail(from.u32()?),
            19 => Request::Kept(from.u32()?),
            20 => Request::SetChannel { number: from.u32()?, channel: from.u32()? },
            21 => Request::CreateLoopback(from.create_qp()?),
            22 => Request::CreateCode(from.code()?),
            23 => Request::Enable { number: from.u32()?, count: from.u64()? },
            24 => Request::Deploy(from.deploy()?),
            25 => Request::RemoveKernel(from.u32()?),
            26 => Request::Identify,
            27 => Request::RegisterRma(RegisterRma {
                region: from.u32()?,
                rights: from.rights()?,
                key: from.key()?,
            }),
            28 => Request::DeregisterRma(from.u32()?),
            29 => Request::RekeyRma { region: from.u32()?, key: from.key()? },
            30 => Request::RmaKey(from.u32()?),
            31 => Request::CreatePortal(CreatePortal {
                domain: from.u32()?,
                cq: from.u32()?,
                slots: from.u16()?,
                bulk_only: from.flag()?,
            }),
            32 => Request::DestroyPortal(from.u32()?),
            33 => Request::Reach(from.endpoint()?),
            34 if from.u64()? == MAGIC => Request::List { version: from.u16()? },
            35 if from.u64()? == MAGIC => {
                Request::End { version: from.u16()?, uid: from.u32()?, name: from.text(MAX_NAME)? }
            }
            _ => return None,
        };
        from.0.is_empty().then_some(request)
    }
}

impl Reply {
    /// The packet with this reply.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(64));
        match self {
            Reply::Refused(words) => out.u8(1).bytes(words.as_bytes()),
            Reply::Done => out.u8(2),
            Reply::Attached { port, places } => {
                let kind = match port.kind {
                    PortKind::Shm => 1,
                    PortKind::Udp => 2,
                    PortKind::Xdp => 3,
                };
                out.u8(3).u8(kind).endpoint(port.endpoint).u32(port.path_mtu).u32(*places)
            }
            Reply::Number(number) => out.u8(4).u32(*number),
            Reply::Region(RegionFacts { domain, key, iova, name }) => {
                out.u8(5).u32(*domain).u32(*key).u64(*iova).bytes(name.as_bytes())
            }
            Reply::Queue(QueueFacts { number, tag }) => out.u8(6).u32(*number).u64(*tag),
            Reply::Pair(facts) => out.u8(7).pair(facts),
            Reply::Agreed(agreement) => out.u8(8).agreement(agreement),
            Reply::State(state) => out.u8(9).u8(*state as u8),
            Reply::Domain(number) => out.u8(10).u32(*number),
            Reply::Nothing => out.u8(11),
            Reply::Kernel { number, domain } => out.u8(12).u32(*number).u32(*domain),
            Reply::Full(full) => out.u8(13).bytes(&Message::Full(*full).emit()),
            Reply::Identity { pid, incarnation } => out.u8(14).u32(*pid).u32(*incarnation),
            Reply::RmaKey(key) => out.u8(15).key(key),
            Reply::Portal(PortalFacts { number, bell, first }) => {
                out.u8(16).u32(*number).u32(*bell).u16(*first)
            }
            Reply::Tenant(facts) => out.u8(17).tenant(facts),
        };
        out.0
    }

    /// The reply in exactly these bytes; None: they are no reply.
    pub fn parse(bytes: &[u8]) -> Option<Reply> {
        let mut from = In(bytes);
        let reply = match from.u8()? {
            1 => Reply::Refused(from.text(MAX_PACKET)?),
            2 => Reply::Done,
            3 => Reply::Attached { port: from.port()?, places: from.u32()? },
            4 => Reply::Number(from.u32()?),
            5 => Reply::Region(RegionFacts {
                domain: from.u32()?,
                key: from.u32()?,
                iova: from.u64()?,
                name: from.text(MAX_NAME)?,
            }),
            6 => Reply::Queue(QueueFacts { number: from.u32()?, tag: from.u64()? }),
            7 => Reply::Pair(Box::new(from.pair()?)),
            8 => Reply::Agreed(Box::new(from.agreement()?)),
            9 => Reply::State(from.state()?),
            10 => Reply::Domain(from.u32()?),
            11 => Reply::Nothing,
            12 => Reply::Kernel { number: from.u32()?, domain: from.u32()? },
            13 => match Message::parse(from.bytes(MAX_PACKET)?) {
                Ok(Message::Full(full)) => Reply::Full(full),
                _ => return None,
            },
            14 => Reply::Identity { pid: from.u32()?, incarnation: from.u32()? },
            15 => Reply::RmaKey(from.key()?),
            16 => Reply::Portal(PortalFacts { number: from.u32()?, bell: from.u32()?, first: from.u16()? }),
            17 => Reply::Tenant(from.tenant()?),
            _ => return None,
        };
        from.0.is_empty().then_some(reply)
    }
}
