//! The second process of a benchmark. It executes the commands of the bench, pinned to its own core.

mod incast;
mod nic;
mod raw;
mod rma;

use std::io::{BufRead as _, BufReader, Stdin};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;

use self::incast::IncastServers;
use self::nic::Served;
use self::raw::Raw;
use crate::strom::calls::Calls;
use crate::testbed::Network;
use crate::testbed::page::{Page, Ticket};
use crate::testbed::protocol::{Command, IncastCommand, Message, NicCommand, PeerAddresses};
use crate::testbed::veth::{RAW, Side};
use crate::{PortName, floor, floor_xdp};
use remora_options::cores::pin;
use remora_options::{ending, print};

/// Arguments of the hidden command that runs the second process of a measurement.
#[derive(Parser)]
pub struct Args {
    /// The name of the shared page.
    #[arg(long)]
    page: String,
    /// The CPU core to run on.
    #[arg(long)]
    core: usize,
    /// True if this process is at the far end of the veth pairs.
    #[arg(long)]
    veth: bool,
    /// The path of a WebAssembly kernel to deploy in addition to the others.
    #[arg(long)]
    kernel: Option<PathBuf>,
}

/// All ends of the peer.
struct Ends {
    shm: Served,
    udp: Served,
    /// The NIC and the raw end at the far side of the veth pairs, which exist only there.
    xdp: Option<Served>,
    raw_xdp: Option<floor_xdp::Raw>,
    raw: Raw,
    tcp: Calls,
    /// The NICs of the incast, after the first command that needs them.
    incast: Option<IncastServers>,
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
            incast: None,
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

    /// Returns the NIC of this port, and the server for calls over TCP.
    fn nic(&mut self, port: PortName) -> Result<(&mut Served, &mut Calls)> {
        let nic = match port {
            PortName::Shm => &mut self.shm,
            PortName::Udp => &mut self.udp,
            PortName::Xdp => self.xdp.as_mut().context("the peer has no NIC over AF_XDP")?,
        };
        Ok((nic, &mut self.tcp))
    }

    /// Prepares the peer for a command before the bench continues.
    fn prepare(&mut self, command: Command, page: &Page) -> Result<()> {
        match command {
            Command::Udp { to: udp_port, .. }
            | Command::Stream { to: udp_port }
            | Command::Packets { to: udp_port, .. } => {
                self.raw.resolve(udp_port);
            }
            Command::Ring { .. } => self.raw.accept()?,
            Command::CpuTime => page.answer(crate::cpu_ns()),
            Command::Resident => page.answer(crate::resident_bytes()?),
            Command::Nic { port, command: NicCommand::Echo { .. } } => self.nic(port)?.0.start_echo()?,
            Command::Nic { port, command: NicCommand::Rma(command) } => {
                self.nic(port)?.0.rma(command, page)?;
            }
            Command::Incast(IncastCommand::Open { key }) => {
                page.answer_bytes(&self.incast.insert(IncastServers::open(key)?).ports());
            }
            _ => {}
        }
        Ok(())
    }

    /// Executes a command. A command without an end lasts until the next command.
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
            Command::Incast(command) => {
                let crowd = self.incast.as_mut().context("the peer has not opened the NICs of the incast")?;
                crowd.carry_out(command, page, ticket)
            }
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
            NicCommand::ServeAndAccept { reads } => nic.serve_and_accept(reads, page, ticket),
            NicCommand::Echo { answer } => nic.answer(answer, page, ticket),
            NicCommand::Refill { buffers } => nic.refill(buffers),
            NicCommand::Tcp => tcp.serve(&nic.target, page, ticket),
            NicCommand::Attach { counts, checks } => nic.attach(counts, checks),
            // The command was answered when it was prepared.
            NicCommand::Rma(_) => nic.serve(page, ticket),
            NicCommand::Forget => {
                nic.forget();
                Ok(())
            }
        }
    }
}

/// The sequence of commands from the bench.
struct Commands {
    page: Page,
    input: BufReader<Stdin>,
    last: Ticket,
    parent: Option<rustix::process::Pid>,
}

impl Commands {
    fn open(page: &Page) -> Commands {
        let input = BufReader::new(std::io::stdin());
        let parent = rustix::process::getppid();
        Commands { page: page.clone(), input, last: Ticket::default(), parent }
    }

    /// Waits for the next command.
    fn next(&mut self) -> Result<Message> {
        while self.page.is_wanted(self.last) {
            // The interval is long, so that the measurements show only the needs of an idle NIC.
            std::thread::sleep(Duration::from_millis(10));
            if rustix::process::getppid() != self.parent {
                bail!("the bench process has ended");
            }
        }
        self.last = self.page.wanted();
        loop {
            let mut line = String::new();
            self.input.read_line(&mut line).context("reading a command of the bench")?;
            let message: Message = serde_json::from_str(&line).context("a command of the bench")?;
            // The bench may have given up on earlier messages.
            if message.ticket == self.last {
                return Ok(message);
            }
        }
    }
}

/// Runs the peer until the bench sends `Command::Exit` or dies.
pub fn run(args: Args) -> Result<()> {
    pin(args.core)?;
    ending::end_with_parent()?;
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
