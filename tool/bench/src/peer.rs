//! The other process of a benchmark: it carries out what the bench tells it, pinned to its own core.

use std::io::{BufRead as _, BufReader, Stdin};
use std::net::SocketAddr;
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

use super::cores::pin;
use super::echo::Echo;
use super::prism::place::{BUFFERS, FREED};
use super::strom::calls::Calls;
use super::strom::server::Kernels;
use super::{PortName, floor, floor_xdp, packets, stream};
use crate::command::print;
use crate::testbed::page::{Page, Ticket};
use crate::testbed::protocol::{Command, Extensions, Message, Network, NicCommand, PeerAddresses, TARGET};
use crate::testbed::veth::{NIC, RAW, Side};

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
    fn open(port: PortName, network: Network, module: Option<&Path>) -> Result<Served> {
        let address = network.address(port);
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

    fn accept(&mut self, reads: u8, extensions: Extensions, page: &Page, ticket: Ticket) -> Result<()> {
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
                // Answers of kernels stand here until they are acknowledged; there is nothing else.
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
    fn refill(&mut self, buffers: usize) -> Result<()> {
        let list = self.buffers.as_mut().context("nobody has asked for buffers")?;
        for at in 0..buffers {
            let address: u64 = self.target.get(FREED as usize + at * 8)?;
            list.post(list.index(address).context("a client gives back what is no buffer")?)?;
        }
        Ok(())
    }

    /// What [`NicCommand::Attach`] says.
    fn attach(&self, counts: bool, checks: Option<u32>) -> Result<()> {
        let kernels = self.kernels.as_ref().context("nobody has asked for kernels")?;
        let qp = self.qps.first().context("nobody is connected")?;
        qp.attach(counts.then(|| kernels.counting()))?;
        if let Some(failing) = checks {
            let qp = self.qps.get(1).context("nobody has a second connection")?;
            let kernel = kernels.consistency(failing).context("no kernel fails as often")?;
            qp.check_reads(Some(kernel))?;
        }
        Ok(())
    }

    /// Before messages are answered: the first of them must have a buffer.
    fn start_echo(&mut self) -> Result<()> {
        match (&mut self.echo, self.qps.first_mut()) {
            (Some(echo), Some(qp)) => echo.start(qp),
            _ => Ok(()),
        }
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

impl Raw {
    fn open() -> Result<Raw> {
        let geometry = shm::Geometry::new(4096, 4352).context("the ring's shape")?;
        Ok(Raw {
            socket: Socket::open("127.0.0.1:0".parse()?, &udp::Options::default())?,
            bench: None,
            link: None,
            listener: shm::Listener::new(geometry, shm::Admit::SameUser)?,
            cold: vec![1; stream::COLD],
        })
    }

    /// The bench's socket; it has but one.
    fn resolve(&mut self, port: u16) {
        let bench = SocketAddr::from(([127, 0, 0, 1], port));
        self.bench.get_or_insert_with(|| self.socket.destination(bench));
    }

    /// Takes the bench's link, if that has not been done.
    fn accept(&mut self) -> Result<()> {
        let started = std::time::Instant::now();
        while self.link.is_none() && started.elapsed() < Duration::from_secs(5) {
            self.link = self.listener.accept()?;
        }
        Ok(())
    }

    fn udp(&self, answer: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let to = self.bench.as_ref().context("the bench's socket")?;
        floor::udp_peer(&self.socket, to, answer, page, ticket)
    }

    fn stream(&mut self, page: &Page, ticket: Ticket) -> Result<()> {
        let to = self.bench.as_ref().context("the bench's socket")?;
        stream::sink(&mut self.socket, to, &mut self.cold, page, ticket)
    }

    fn packets(&mut self, len: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let to = self.bench.as_ref().context("the bench's socket")?;
        packets::sink(&mut self.socket, to, len, page, ticket)
    }

    fn ring(&mut self, answer: usize, page: &Page, ticket: Ticket) -> Result<()> {
        let link = self.link.as_mut().context("the bench's ring")?;
        floor::ring_peer(link.rings(), answer, page, ticket)
    }
}

/// All ends of the peer.
struct Ends {
    shm: Served,
    udp: Served,
    /// These two are at the far end of veth pairs alone.
    xdp: Option<Served>,
    raw_xdp: Option<floor_xdp::Raw>,
    raw: Raw,
    tcp: Calls,
}

impl Ends {
    fn open(args: &Args) -> Result<Ends> {
        let network = if args.veth { Network::Veth(Side::Far) } else { Network::Loopback };
        let served = |port| Served::open(port, network, args.kernel.as_deref());
        Ok(Ends {
            shm: served(PortName::Shm)?,
            udp: served(PortName::Udp)?,
            raw_xdp: args.veth.then(|| floor_xdp::Raw::open(RAW, Side::Near.raw())).transpose()?,
            xdp: args.veth.then(|| served(PortName::Xdp)).transpose()?,
            raw: Raw::open()?,
            tcp: Calls::bind(network.address(PortName::Udp))?,
        })
    }

    fn addresses(&self) -> Result<PeerAddresses> {
        Ok(PeerAddresses {
            shm: self.shm.listener.address(),
            udp: self.udp.listener.address(),
            raw: self.raw.socket.local(),
            ring: self.raw.listener.name().to_owned(),
            xdp: self.xdp.as_ref().map(|xdp| xdp.listener.address()),
            tcp: self.tcp.address()?,
        })
    }

    /// The NIC with this port, and what answers over TCP.
    fn nic(&mut self, port: PortName) -> Result<(&mut Served, &mut Calls)> {
        let nic = match port {
            PortName::Shm => &mut self.shm,
            PortName::Udp => &mut self.udp,
            PortName::Xdp => self.xdp.as_mut().context("the peer has no NIC over AF_XDP")?,
        };
        Ok((nic, &mut self.tcp))
    }

    /// What there is to do before the bench goes on.
    fn prepare(&mut self, command: Command, page: &Page) -> Result<()> {
        match command {
            Command::Udp { to, .. } | Command::Stream { to } | Command::Packets { to, .. } => {
                self.raw.resolve(to);
            }
            Command::Ring { .. } => self.raw.accept()?,
            Command::CpuTime => page.answer(super::cpu_ns()),
            Command::Resident => page.answer(super::resident_bytes()?),
            Command::Nic { port, command: NicCommand::Echo { .. } } => self.nic(port)?.0.start_echo()?,
            _ => {}
        }
        Ok(())
    }

    /// Carries a command out. One that has no end lasts until the next command.
    fn carry_out(&mut self, command: Command, page: &Page, ticket: Ticket) -> Result<()> {
        match command {
            Command::Sleep | Command::CpuTime | Command::Resident | Command::Exit => Ok(()),
            Command::Line => {
                floor::line_peer(page, ticket);
                Ok(())
            }
            Command::Ring { answer } => self.raw.ring(answer, page, ticket),
            Command::Udp { answer, .. } => self.raw.udp(answer, page, ticket),
            Command::Stream { .. } => self.raw.stream(page, ticket),
            Command::Packets { len, .. } => self.raw.packets(len, page, ticket),
            Command::RawXdp { answer, works } => {
                let raw = self.raw_xdp.as_mut().context("the peer has no raw AF_XDP end")?;
                match works {
                    true => raw.answer(answer, floor_xdp::work, page, ticket),
                    false => raw.answer(answer, || (), page, ticket),
                }
            }
            Command::Nic { port, command } => self.carry_out_on(port, command, page, ticket),
        }
    }

    fn carry_out_on(
        &mut self,
        port: PortName,
        command: NicCommand,
        page: &Page,
        ticket: Ticket,
    ) -> Result<()> {
        let (nic, tcp) = self.nic(port)?;
        match command {
            NicCommand::Accept { reads, extensions } => nic.accept(reads, extensions, page, ticket),
            NicCommand::Serve => nic.serve(page, ticket),
            NicCommand::Echo { answer } => nic.answer(answer, page, ticket),
            NicCommand::Refill { buffers } => nic.refill(buffers),
            NicCommand::Tcp => tcp.serve(&nic.target, page, ticket),
            NicCommand::Attach { counts, checks } => nic.attach(counts, checks),
            NicCommand::Forget => {
                nic.qps.truncate(1);
                Ok(())
            }
        }
    }
}

/// What the bench says.
struct Commands {
    page: Page,
    input: BufReader<Stdin>,
    last: Ticket,
    parent: Option<rustix::process::Pid>,
}

impl Commands {
    fn open(page: &Page) -> Commands {
        let (input, parent) = (BufReader::new(std::io::stdin()), rustix::process::getppid());
        Commands { page: page.clone(), input, last: Ticket::default(), parent }
    }

    /// Waits for the next one.
    fn next(&mut self) -> Result<Message> {
        while self.page.is_wanted(self.last) {
            // Rarely enough that an idle NIC's own needs are what is measured.
            std::thread::sleep(Duration::from_millis(10));
            if rustix::process::getppid() != self.parent {
                bail!("the bench is gone");
            }
        }
        self.last = self.page.wanted();
        loop {
            let mut line = String::new();
            self.input.read_line(&mut line).context("reading a command of the bench")?;
            let message: Message = serde_json::from_str(&line).context("a command of the bench")?;
            // The bench may have given up on those before.
            if message.ticket == self.last {
                return Ok(message);
            }
        }
    }
}

/// Runs until the bench says [`Command::Exit`] or is gone.
pub fn run(args: Args) -> Result<()> {
    pin(args.core)?;
    crate::command::ending::end_with_parent()?;
    let page = Page::open(&args.page)?;
    let mut ends = Ends::open(&args)?;
    print::line(serde_json::to_string(&ends.addresses()?)?);
    let mut commands = Commands::open(&page);
    loop {
        let Message { ticket, command } = commands.next()?;
        ends.prepare(command, &page)?;
        page.begin(ticket);
        if command == Command::Exit {
            return Ok(());
        }
        ends.carry_out(command, &page, ticket)?;
    }
}
