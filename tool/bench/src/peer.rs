//! The other process of a benchmark: it plays the role that the shared page asks for, pinned to its own core.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use remora_port::shm;
use remora_port::udp::{self, Socket};
use remora_verbs::{
    Access, CompletionQueue, EMPTY, FreeList, Listener, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Ready, RemoteMemory,
};
use serde::{Deserialize, Serialize};

use super::cores::pin;
use super::echo::Echo;
use super::prism::place::{BUFFERS, FREED};
use super::strom::calls::Calls;
use super::strom::server::Kernels;
use super::{PortName, floor, floor_xdp, packets, stream};
use crate::command::device::LOOPBACK;
use crate::command::print;
use crate::testbed::page::{Page, Ticket};
use crate::testbed::pair::Extensions;
use crate::testbed::veth::{NIC, RAW, Side};

/// What the peer can do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Role {
    /// Nothing, asleep: its NICs are on their own.
    Sleep = 1,
    /// Answer on the line floor.
    Line = 2,
    /// Answer frames on the bare ring, with frames of the first argument's length.
    Ring = 3,
    /// Answer raw UDP, with frames of the first argument's length.
    Udp = 4,
    /// Take a raw UDP stream.
    Stream = 5,
    /// Take connections of the NIC over shared memory, each for so many READs at a time as the first argument
    /// says; with what the second says beside the plain verbs (`Extensions`).
    AcceptShm = 6,
    /// Take connections of the NIC over UDP, likewise.
    AcceptUdp = 7,
    /// Poll the NIC over shared memory.
    ServeShm = 8,
    /// Poll the NIC over UDP.
    ServeUdp = 9,
    /// Answer with the CPU time used so far, in nanoseconds.
    Cpu = 10,
    /// Answer with the resident bytes.
    Resident = 11,
    /// End.
    Exit = 12,
    /// Take raw UDP packets of the first argument's length.
    Packets = 13,
    /// Give up all connections of the NIC over shared memory but the first.
    ForgetShm = 14,
    /// Likewise over UDP.
    ForgetUdp = 15,
    /// Answer messages of the first connection over shared memory, with messages of the first argument's
    /// length.
    EchoShm = 16,
    /// Over UDP, likewise.
    EchoUdp = 17,
    /// Answer raw AF_XDP frames, with frames of the first argument's length behind their headers.
    RawXdp = 18,
    /// Take connections of the NIC over AF_XDP.
    AcceptXdp = 19,
    /// Poll the NIC over AF_XDP.
    ServeXdp = 20,
    /// As [`Role::RawXdp`], and other code runs before each answer.
    RawXdpWorking = 21,
    /// Answer messages of the first connection over AF_XDP, as [`Role::EchoShm`].
    EchoXdp = 22,
    /// Post buffers of the NIC over shared memory for ALLOCATE again: so many addresses as the first argument
    /// says stand in the memory.
    RefillShm = 23,
    /// Likewise over UDP.
    RefillUdp = 24,
    /// Likewise over AF_XDP.
    RefillXdp = 25,
    /// Answer calls over TCP from the memory of the NIC over shared memory.
    TcpShm = 26,
    /// From that of the NIC over UDP.
    TcpUdp = 27,
    /// From that of the NIC over AF_XDP.
    TcpXdp = 28,
    /// Show the counting kernel of the NIC over shared memory what comes by the first connection if the first
    /// argument is not zero, else nothing; and if the second is not, let a consistency kernel check what is
    /// READ by the second connection: the one to which so many of a thousand first reads fail, less one.
    AttachShm = 29,
    /// Likewise over UDP.
    AttachUdp = 30,
    /// Likewise over AF_XDP.
    AttachXdp = 31,
}

/// Where the two processes are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both in the same network.
    Loopback,
    /// On this side of the veth pairs.
    Veth(Side),
}

impl Place {
    /// The address that NICs with this port, and their listeners, have there.
    pub fn address(self, port: PortName) -> IpAddr {
        match (self, port) {
            (Place::Loopback, _) => LOOPBACK,
            (Place::Veth(side), PortName::Xdp) => side.nic(),
            (Place::Veth(side), _) => side.kernel(),
        }
    }
}

/// Memory of the peer that the bench reads and writes: more than any cache.
pub const TARGET: usize = 64 << 20;

/// Arguments of the hidden command.
#[derive(Parser)]
pub struct Args {
    /// The shared page.
    #[arg(long)]
    page: String,
    /// Core to stay on.
    #[arg(long)]
    core: usize,
    /// It is at the far end of the veth pairs.
    #[arg(long)]
    veth: bool,
    /// A kernel as WebAssembly, to be deployed beside the others.
    #[arg(long)]
    kernel: Option<PathBuf>,
}

/// Where the bench finds the peer's ends; one line of JSON on its standard output.
#[derive(Debug, Serialize, Deserialize)]
pub struct PeerAddresses {
    /// Connections of the NIC over shared memory.
    pub shm: SocketAddr,
    /// Connections of the NIC over UDP.
    pub udp: SocketAddr,
    /// The raw socket.
    pub raw: SocketAddr,
    /// Name of the bare ring's link.
    pub ring: String,
    /// Connections of the NIC over AF_XDP, at the far end of veth pairs.
    pub xdp: Option<SocketAddr>,
    /// Calls over TCP.
    pub tcp: SocketAddr,
}

/// One NIC of the peer.
struct Served {
    listener: Listener,
    domain: ProtectionDomain,
    target: MemoryRegion,
    cq: CompletionQueue,
    qps: Vec<QueuePair<Ready>>,
    echo: Option<Echo>,
    /// Buffers for ALLOCATE, once somebody asks for PRISM.
    buffers: Option<FreeList>,
    /// Once somebody asks for StRoM.
    kernels: Option<Kernels>,
    /// See [`Args::kernel`].
    module: Option<PathBuf>,
}

impl Served {
    fn open(port: PortName, place: Place, module: Option<&Path>) -> Result<Served> {
        let address = place.address(port);
        let context = port.device_on(address, NIC)?.open()?;
        let domain = context.alloc_pd()?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let target = domain.allocate(TARGET, rights)?;
        super::touch(&target)?;
        let cq = context.create_cq(256)?;
        let listener = Listener::bind((address, 0))?;
        let (qps, module) = (Vec::new(), module.map(Path::to_owned));
        Ok(Served { listener, domain, target, cq, qps, echo: None, buffers: None, kernels: None, module })
    }

    fn accept(&mut self, [reads, speaks]: [u64; 2], page: &Page, ticket: Ticket) -> Result<()> {
        let mut about = self.target.remote_memory().to_bytes().to_vec();
        let Extensions { prism, strom } = Extensions::from_number(speaks);
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
                // Answers of kernels stand here until they are acknowledged; there is nothing else.
                max_send_wr: if strom { 128 } else { 16 },
                max_recv_wr: 16,
                max_dest_rd_atomic: reads as u8,
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

    /// Number of the free list, which is made and filled if it is not there.
    fn free_list(&mut self) -> Result<u64> {
        if let Some(list) = &self.buffers {
            return Ok(list.number());
        }
        let mut list = self.domain.create_free_list(&self.target, &BUFFERS)?;
        (0..BUFFERS.count).try_for_each(|index| list.post(index))?;
        Ok(self.buffers.insert(list).number())
    }

    /// Posts the buffers again whose addresses a client has written.
    fn refill(&mut self, count: u64) -> Result<()> {
        let list = self.buffers.as_mut().context("nobody has asked for buffers")?;
        for at in 0..count as usize {
            let address: u64 = self.target.get(FREED as usize + at * 8)?;
            list.post(list.index(address).context("a client gives back what is no buffer")?)?;
        }
        Ok(())
    }

    /// The counting kernel sees what the first connection brings, or nothing any more; a consistency kernel
    /// checks what is READ by the second one, if it is to ([`Role::AttachShm`]).
    fn attach(&self, [counts, checks]: [u64; 2]) -> Result<()> {
        let kernels = self.kernels.as_ref().context("nobody has asked for kernels")?;
        let qp = self.qps.first().context("nobody is connected")?;
        qp.attach((counts != 0).then(|| kernels.counting()))?;
        if let Some(failing) = checks.checked_sub(1) {
            let qp = self.qps.get(1).context("nobody has a second connection")?;
            let kernel = kernels.consistency(failing as u32).context("no kernel fails as often")?;
            qp.check_reads(Some(kernel))?;
        }
        Ok(())
    }

    /// Before the role is played whose messages are answered: the first of them must have a buffer.
    fn prepare(&mut self, echo: bool) -> Result<()> {
        if let (true, Some(echo), Some(qp)) = (echo, &mut self.echo, self.qps.first_mut()) {
            echo.start(qp)?;
        }
        Ok(())
    }

    /// Answers messages of the first connection.
    fn answer(&mut self, back: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let (Some(echo), Some(qp)) = (&mut self.echo, self.qps.first_mut()) else {
            bail!("nobody is connected whose messages could be answered")
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

    fn serve(&mut self, page: &Page, ticket: Ticket) -> Result<()> {
        let mut done = [EMPTY; 16];
        while page.is_wanted(ticket) {
            for _ in 0..64 {
                self.cq.poll(&mut done)?;
            }
        }
        Ok(())
    }
}

/// The raw ends of the floors.
struct Raw {
    socket: Socket,
    bench: Option<rustix::net::SocketAddrAny>,
    link: Option<shm::Link>,
    listener: shm::Listener,
    cold: Vec<u8>,
}

/// Runs until the bench says `Exit` or is gone.
pub fn run(args: Args) -> Result<()> {
    pin(args.core)?;
    crate::command::ending::end_with_parent()?;
    let page = Page::open(&args.page)?;
    let geometry = shm::Geometry::new(4096, 4352).context("the ring's shape")?;
    let place = if args.veth { Place::Veth(Side::Far) } else { Place::Loopback };
    let module = args.kernel.as_deref();
    let mut shm_nic = Served::open(PortName::Shm, place, module)?;
    let mut udp_nic = Served::open(PortName::Udp, place, module)?;
    let mut xdp = if args.veth { Some(Xdp::open(place, module)?) } else { None };
    let mut raw = Raw {
        socket: Socket::open("127.0.0.1:0".parse()?, &udp::Options::default())?,
        bench: None,
        link: None,
        listener: shm::Listener::new(geometry, shm::Admit::SameUser)?,
        cold: vec![1; stream::COLD],
    };
    let mut tcp = Calls::bind(place.address(PortName::Udp))?;
    let addresses = PeerAddresses {
        tcp: tcp.address()?,
        shm: shm_nic.listener.address(),
        udp: udp_nic.listener.address(),
        raw: raw.socket.local(),
        ring: raw.listener.name().to_owned(),
        xdp: xdp.as_ref().map(|xdp| xdp.nic.listener.address()),
    };
    print::line(serde_json::to_string(&addresses)?);
    let parent = rustix::process::getppid();
    loop {
        let (ticket, role, first, second) = page.role();
        raw.prepare(role, second)?;
        shm_nic.prepare(role == Role::EchoShm as u64)?;
        udp_nic.prepare(role == Role::EchoUdp as u64)?;
        if let Some(xdp) = &mut xdp {
            xdp.nic.prepare(role == Role::EchoXdp as u64)?;
        }
        page.playing(ticket);
        match role {
            r if r == Role::AcceptShm as u64 => shm_nic.accept([first, second], &page, ticket)?,
            r if r == Role::AcceptUdp as u64 => udp_nic.accept([first, second], &page, ticket)?,
            r if r == Role::ServeShm as u64 => shm_nic.serve(&page, ticket)?,
            r if r == Role::ServeUdp as u64 => udp_nic.serve(&page, ticket)?,
            r if r == Role::ForgetShm as u64 => shm_nic.qps.truncate(1),
            r if r == Role::ForgetUdp as u64 => udp_nic.qps.truncate(1),
            r if r == Role::EchoShm as u64 => shm_nic.answer(first as usize, &page, ticket)?,
            r if r == Role::EchoUdp as u64 => udp_nic.answer(first as usize, &page, ticket)?,
            r if r == Role::RefillShm as u64 => shm_nic.refill(first)?,
            r if r == Role::TcpShm as u64 => tcp.serve(&shm_nic.target, &page, ticket)?,
            r if r == Role::AttachShm as u64 => shm_nic.attach([first, second])?,
            r if r == Role::RefillUdp as u64 => udp_nic.refill(first)?,
            r if r == Role::TcpUdp as u64 => tcp.serve(&udp_nic.target, &page, ticket)?,
            r if r == Role::AttachUdp as u64 => udp_nic.attach([first, second])?,
            r if r == Role::Cpu as u64 => page.answer(super::cpu_ns()),
            r if r == Role::Resident as u64 => page.answer(super::resident_bytes()?),
            r if r == Role::Exit as u64 => return Ok(()),
            _ => match &mut xdp {
                Some(xdp) => xdp.play(role, [first, second], &mut tcp, (&page, ticket))?,
                None => raw.play(role, first, &page, ticket)?,
            },
        }
        while page.is_wanted(ticket) {
            // Rarely enough that an idle NIC's own needs are what is measured.
            std::thread::sleep(Duration::from_millis(10));
            if rustix::process::getppid() != parent {
                bail!("the bench is gone");
            }
        }
    }
}

/// What the peer has at the far end of veth pairs.
struct Xdp {
    nic: Served,
    raw: floor_xdp::Raw,
}

impl Xdp {
    fn open(place: Place, module: Option<&Path>) -> Result<Xdp> {
        let raw = floor_xdp::Raw::open(RAW, Side::Near.raw())?;
        Ok(Xdp { nic: Served::open(PortName::Xdp, place, module)?, raw })
    }

    fn play(
        &mut self,
        role: u64,
        [first, second]: [u64; 2],
        tcp: &mut Calls,
        (page, ticket): (&Page, Ticket),
    ) -> Result<()> {
        match role {
            r if r == Role::RawXdp as u64 => self.raw.answer(first as usize, || (), page, ticket),
            r if r == Role::RawXdpWorking as u64 => {
                self.raw.answer(first as usize, floor_xdp::work, page, ticket)
            }
            r if r == Role::AcceptXdp as u64 => self.nic.accept([first, second], page, ticket),
            r if r == Role::TcpXdp as u64 => tcp.serve(&self.nic.target, page, ticket),
            r if r == Role::AttachXdp as u64 => self.nic.attach([first, second]),
            r if r == Role::EchoXdp as u64 => self.nic.answer(first as usize, page, ticket),
            r if r == Role::RefillXdp as u64 => self.nic.refill(first),
            r if r == Role::ServeXdp as u64 => self.nic.serve(page, ticket),
            _ => Ok(()),
        }
    }
}

impl Raw {
    /// Opens what the role needs, before the bench is told that it is played.
    fn prepare(&mut self, role: u64, port: u64) -> Result<()> {
        let raw = [Role::Udp, Role::Stream, Role::Packets].map(|role| role as u64);
        if raw.contains(&role) && self.bench.is_none() {
            let bench = SocketAddr::from(([127, 0, 0, 1], port as u16));
            self.bench = Some(self.socket.destination(bench));
        }
        let started = std::time::Instant::now();
        while role == Role::Ring as u64 && self.link.is_none() && started.elapsed() < Duration::from_secs(5) {
            self.link = self.listener.accept()?;
        }
        Ok(())
    }

    fn play(&mut self, role: u64, back: u64, page: &Page, ticket: Ticket) -> Result<()> {
        let back = back as usize;
        match (role, &self.bench, &mut self.link) {
            (r, _, _) if r == Role::Line as u64 => floor::line_peer(page, ticket),
            (r, Some(to), _) if r == Role::Udp as u64 => {
                floor::udp_peer(&self.socket, to, back, page, ticket)?
            }
            (r, Some(to), _) if r == Role::Stream as u64 => {
                stream::sink(&mut self.socket, to, &mut self.cold, page, ticket)?;
            }
            (r, Some(to), _) if r == Role::Packets as u64 => {
                packets::sink(&mut self.socket, to, back, page, ticket)?;
            }
            (r, _, Some(link)) if r == Role::Ring as u64 => {
                floor::ring_peer(link.rings(), back, page, ticket)?
            }
            _ => {}
        }
        Ok(())
    }
}
