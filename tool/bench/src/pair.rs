//! The two processes of a benchmark, as the bench sees them: the peer, and the bench's own ends of
//! everything.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use remora_port::shm;
use remora_port::udp::{self, Socket};
use remora_verbs::prism::Outcome;
use remora_verbs::{
    Access, CompletionQueue, EMPTY, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ready,
    RemoteMemory, Status, WorkRequest,
};
use rustix::net::SocketAddrAny;

use super::PortName;
use super::cores::pin;
use super::page::Page;
use super::peer::{PeerAddresses, Place, Role, TARGET};
use super::veth::NIC;
use remora_service::flush::Flush;

/// The peer process and the page shared with it.
pub struct Peer {
    child: Child,
    page: Page,
    /// Where its ends are.
    pub addresses: PeerAddresses,
    /// Where the bench's own ends are.
    place: Place,
}

impl Peer {
    /// Starts it on the core `other` and pins this process to `own`.
    pub fn start(cores: [usize; 2]) -> Result<Peer> {
        Peer::start_at(cores, Place::Loopback, &[])
    }

    /// The same where `place` is the bench's; `within` are the words that a program there is started with.
    pub fn start_at(cores: [usize; 2], place: Place, within: &[&str]) -> Result<Peer> {
        Peer::start_with(cores, place, within, None)
    }

    /// The same, with a kernel as WebAssembly.
    pub fn start_with(
        [own, other]: [usize; 2],
        place: Place,
        within: &[&str],
        kernel: Option<&Path>,
    ) -> Result<Peer> {
        let page = Page::create()?;
        let program = std::env::current_exe()?;
        let mut command = match within {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(["__peer", "--page", &page.path(), "--core", &other.to_string()]);
        if place != Place::Loopback {
            command.arg("--veth");
        }
        if let Some(kernel) = kernel {
            command.arg("--kernel").arg(kernel);
        }
        let mut child =
            command.stdout(Stdio::piped()).spawn().context("starting the peer process of the benchmark")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the peer's output")?).read_line(&mut line)?;
        let addresses =
            serde_json::from_str(&line).context("the peer process of the benchmark did not start")?;
        pin(own)?;
        Ok(Peer { child, page, addresses, place })
    }

    /// Its process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// It plays `role` from now on.
    pub fn play(&self, role: Role, first: u64, second: u64) -> Result<()> {
        self.page.play(role as u64, first, second)
    }

    /// Its answer to a question.
    pub fn ask(&self, role: Role) -> Result<u64> {
        self.play(role, 0, 0)?;
        std::thread::sleep(Duration::from_millis(5));
        Ok(self.page.answered())
    }

    /// The shared page.
    pub fn page(&self) -> &Page {
        &self.page
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself when told to, or when it sees that we are gone.
        if self.page.play(Role::Exit as u64, 0, 0).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// The bench's raw ends.
pub struct Raw {
    /// A socket with the port's own settings.
    pub socket: Socket,
    /// The peer's.
    pub to: SocketAddrAny,
    /// A bare link.
    pub link: shm::Link,
}

impl Raw {
    /// Opens them.
    pub fn open(peer: &Peer) -> Result<Raw> {
        let socket = Socket::open("127.0.0.1:0".parse()?, &udp::Options::default())?;
        let to = socket.destination(peer.addresses.raw);
        peer.play(Role::Sleep, 0, 0)?;
        let name = peer.addresses.ring.clone();
        let connecting =
            std::thread::spawn(move || shm::connect(&name, shm::Admit::SameUser, Duration::from_secs(5)));
        peer.play(Role::Ring, 0, 0)?;
        let link = connecting.join().map_err(|_| anyhow::anyhow!("the ring's set-up panicked"))??;
        peer.play(Role::Sleep, 0, 0)?;
        Ok(Raw { socket, to, link })
    }
}

/// What connections ask for beside the plain verbs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// PRISM, and buffers for ALLOCATE.
    pub prism: bool,
    /// StRoM, and the kernels of its benchmark.
    pub strom: bool,
}

impl Extensions {
    /// As an argument of a role.
    pub fn number(self) -> u64 {
        u64::from(self.prism) | u64::from(self.strom) << 1
    }

    /// From an argument of a role.
    pub fn from_number(number: u64) -> Extensions {
        Extensions { prism: number & 1 != 0, strom: number & 2 != 0 }
    }
}

/// The bench's NIC on one port, with a number of queue pairs to the peer's.
pub struct End {
    /// Where everything of it belongs.
    pub domain: ProtectionDomain,
    /// Where completions come.
    pub cq: CompletionQueue,
    /// Connected queue pairs.
    pub qps: Vec<QueuePair<Ready>>,
    /// Local memory, as large as the peer's.
    pub local: MemoryRegion,
    /// The peer's memory.
    pub remote: RemoteMemory,
    /// Which port.
    pub port: PortName,
    speaks: Extensions,
}

impl End {
    /// Opens a NIC and connects one queue pair.
    pub fn open(peer: &Peer, port: PortName) -> Result<End> {
        let mut end = End::unconnected(peer, port, None)?;
        end.connect(peer, 1, 256, 128)?;
        Ok(end)
    }

    /// The same with more than the plain verbs; what passes its port is recorded in `capture`, if that is
    /// wanted.
    pub fn speaking(peer: &Peer, port: PortName, speaks: Extensions, capture: Option<&Path>) -> Result<End> {
        let mut end = End::unconnected(peer, port, capture)?;
        end.speaks = speaks;
        end.connect(peer, 1, 256, 128)?;
        Ok(end)
    }

    fn unconnected(peer: &Peer, port: PortName, capture: Option<&Path>) -> Result<End> {
        let mut device = port.device_on(peer.place.address(port), NIC)?;
        if let Some(file) = capture {
            device = device.capture(file);
        }
        let context = device.open()?;
        let domain = context.alloc_pd()?;
        let local = domain.allocate(TARGET, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        super::touch(&local)?;
        let cq = context.create_cq(1 << 15)?;
        let remote = RemoteMemory { addr: 0, len: 0, rkey: remora_verbs::Key::new(0) };
        Ok(End { domain, cq, qps: Vec::new(), local, remote, port, speaks: Extensions::default() })
    }

    /// Connects `count` more queue pairs of `depth` slots, with `reads` READs outstanding at most.
    pub fn connect(&mut self, peer: &Peer, count: usize, depth: u32, reads: u8) -> Result<()> {
        let (role, door) = match self.port {
            PortName::Shm => (Role::AcceptShm, peer.addresses.shm),
            PortName::Udp => (Role::AcceptUdp, peer.addresses.udp),
            PortName::Xdp => (Role::AcceptXdp, peer.addresses.xdp.context("the peer has no xdp NIC")?),
        };
        peer.play(role, u64::from(reads), self.speaks.number())?;
        for _ in 0..count {
            let options = QpOptions {
                max_send_wr: depth,
                max_recv_wr: 16,
                max_rd_atomic: reads,
                private_data: self.local.remote_memory().to_bytes().to_vec(),
                prism: self.speaks.prism,
                strom: self.speaks.strom,
                // Ten thousand of them would be as many descriptors.
                lasting: false,
                ..QpOptions::default()
            };
            let qp = self.domain.create_qp(&self.cq, &self.cq, &options)?.connect(door)?;
            self.remote = RemoteMemory::from_bytes(qp.peer_private_data()).context("the peer's memory")?;
            self.qps.push(qp);
        }
        peer.play(Role::Sleep, 0, 0)
    }

    /// Bytes of payload that a packet carries at most; both sides' ports are alike.
    pub fn packet(&self) -> usize {
        1 << self.domain.context().port().path_mtu.min(4096).ilog2()
    }

    /// The role in which the peer serves this port.
    pub fn serving(&self) -> Role {
        match self.port {
            PortName::Shm => Role::ServeShm,
            PortName::Udp => Role::ServeUdp,
            PortName::Xdp => Role::ServeXdp,
        }
    }

    /// The role in which the peer gives up all connections but the first.
    pub fn forgetting(&self) -> Role {
        match self.port {
            PortName::Shm => Role::ForgetShm,
            PortName::Udp => Role::ForgetUdp,
            // Nobody makes many there.
            PortName::Xdp => Role::Sleep,
        }
    }

    /// The role in which the peer answers messages on this port.
    pub fn answering(&self) -> Role {
        match self.port {
            PortName::Shm => Role::EchoShm,
            PortName::Udp => Role::EchoUdp,
            PortName::Xdp => Role::EchoXdp,
        }
    }

    /// The role in which the peer posts buffers for ALLOCATE again.
    pub fn refilling(&self) -> Role {
        match self.port {
            PortName::Shm => Role::RefillShm,
            PortName::Udp => Role::RefillUdp,
            PortName::Xdp => Role::RefillXdp,
        }
    }

    /// The role in which the peer answers over TCP from the memory of this port's NIC.
    pub fn calling(&self) -> Role {
        match self.port {
            PortName::Shm => Role::TcpShm,
            PortName::Udp => Role::TcpUdp,
            PortName::Xdp => Role::TcpXdp,
        }
    }

    /// The role in which the peer attaches its counting kernel, or takes it away, and a kernel that checks
    /// READs.
    pub fn attaching(&self) -> Role {
        match self.port {
            PortName::Shm => Role::AttachShm,
            PortName::Udp => Role::AttachUdp,
            PortName::Xdp => Role::AttachXdp,
        }
    }

    /// Waits until `count` completions have come.
    #[inline]
    pub fn complete(&mut self, mut count: usize) -> Result<()> {
        let mut done = [EMPTY; 32];
        let started = Instant::now();
        let mut spins = 0u32;
        while count > 0 {
            let most = count.min(done.len());
            let got = self.cq.poll(&mut done[..most])?;
            for completion in &done[..got] {
                anyhow::ensure!(
                    completion.status == Status::Success,
                    "the benchmark's request ended: {}",
                    completion.status.explain()
                );
                let outcome = completion.outcome;
                anyhow::ensure!(
                    outcome == Outcome::Done,
                    "the benchmark's request was not done: {outcome:?}"
                );
            }
            count -= got;
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(1 << 20) {
                anyhow::ensure!(
                    started.elapsed() < Duration::from_secs(30),
                    "the benchmark's request does not end"
                );
            }
        }
        Ok(())
    }

    /// So many requests, `window` of them on their way at a time; `post` posts the one of a number.
    pub fn stream(
        &mut self,
        count: usize,
        window: usize,
        mut post: impl FnMut(&mut End, usize) -> Result<()>,
    ) -> Result<()> {
        let (mut posted, mut done) = (0, 0);
        while done < count {
            if posted < count && posted - done < window {
                post(self, posted)?;
                posted += 1;
            } else {
                self.complete(1)?;
                done += 1;
            }
        }
        Ok(())
    }

    /// One request and its completion.
    #[inline]
    pub fn one(&mut self, request: &WorkRequest<'_>) -> Result<()> {
        self.one_by(0, request)
    }

    /// The same by another queue pair.
    #[inline]
    pub fn one_by(&mut self, qp: usize, request: &WorkRequest<'_>) -> Result<()> {
        self.qps[qp].post_send(request)?;
        self.complete(1)
    }

    /// Until the peer has acknowledged whatever was sent to it: then it may be stopped.
    pub fn settle(&mut self) -> Result<()> {
        let mut flush = Flush::of("the benchmark's peer");
        while flush.goes_on(self.qps.first_mut())? {
            let mut done = [EMPTY];
            if self.cq.poll(&mut done)? > 0 {
                let status = done[0].status;
                let fine = flush.takes(&done[0])? || status == Status::Success;
                anyhow::ensure!(fine, "the benchmark's request ended: {}", status.explain());
            }
        }
        Ok(())
    }
}
