//! The two processes of a benchmark from the bench's side: the peer process, and the bench's own ends.

use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use remora_port::shm;
use remora_port::udp::{self, Socket};
use remora_verbs::prism::Verdict;
use remora_verbs::{
    Access, CompletionQueue, EMPTY, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ready,
    RemoteMemory, Status, WorkRequest,
};
use rustix::net::SocketAddrAny;

use super::page::{LONGEST_ANSWER, Page};
use super::process::Process;
use super::protocol::{Command, Extensions, Message, NicCommand, PeerAddresses, TARGET};
use super::veth::NIC;
use super::{Network, Testbed};
use crate::PortName;
use remora_options::cores::pin;
use remora_service::flush::Flush;

/// The peer process and the page shared with it.
pub(crate) struct Peer {
    process: Process,
    commands: ChildStdin,
    page: Page,
    /// Addresses of the peer's NICs and sockets.
    pub addresses: PeerAddresses,
    /// Network of the bench's own NICs and sockets.
    network: Network,
}

impl Peer {
    /// Starts the peer on the other side of a test bed, with one NIC for each port, and pins this process.
    pub(crate) fn start(testbed: &Testbed) -> Result<Peer> {
        Peer::start_with(testbed, None)
    }

    /// Like [`start`](Peer::start); the peer also loads a WebAssembly kernel from `kernel`.
    pub(crate) fn start_with(testbed: &Testbed, kernel: Option<&Path>) -> Result<Peer> {
        let [own, other] = testbed.cores();
        let page = Page::create()?;
        let network = testbed.network();
        let mut command = testbed.program()?;
        command.args(["__peer", "--page", &page.path(), "--core", &other.to_string()]);
        if network != Network::Loopback {
            command.arg("--veth");
        }
        if let Some(kernel) = kernel {
            command.arg("--kernel").arg(kernel);
        }
        let (mut process, lines) = Process::start_ready(command.stdin(Stdio::piped()), 1)
            .context("the peer process of the benchmark did not start")?;
        let addresses = serde_json::from_str(&lines[0]).context("the peer's addresses")?;
        let commands = process.input().context("the peer's standard input")?;
        pin(own)?;
        Ok(Peer { process, commands, page, addresses, network })
    }

    /// Returns the peer process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Makes the peer carry out a command until the next one is sent.
    pub(crate) fn run(&self, command: Command) -> Result<()> {
        let message = Message { ticket: self.page.wanted().following(), command };
        let line = serde_json::to_string(&message)? + "\n";
        let result = (&self.commands).write_all(line.as_bytes());
        result.context("the peer process of the benchmark has ended")?;
        self.page.want(message.ticket)
    }

    /// Sends a question and returns the peer's answer.
    pub(crate) fn ask(&self, question: Command) -> Result<u64> {
        self.run(question)?;
        Ok(self.page.answered())
    }

    /// Sends a question and returns an answer of many bytes.
    pub(crate) fn ask_bytes(&self, question: Command) -> Result<[u8; LONGEST_ANSWER]> {
        self.run(question)?;
        Ok(self.page.answered_bytes())
    }

    /// Returns the shared page.
    pub(crate) fn page(&self) -> &Page {
        &self.page
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The peer ends at this command, or when it sees that this process has ended.
        if self.run(Command::Exit).is_ok() {
            self.process.wait();
        }
    }
}

/// The bench's raw ends for the measurements of lower bounds.
pub(crate) struct Raw {
    /// The socket, with the same settings as that of the port.
    pub socket: Socket,
    /// Address of the peer's socket.
    pub destination: SocketAddrAny,
    /// A shared-memory link without a NIC.
    pub link: shm::Link,
}

impl Raw {
    /// Opens the socket and the link.
    pub(crate) fn open(peer: &Peer) -> Result<Raw> {
        let socket = Socket::open("127.0.0.1:0".parse()?, &udp::Options::default())?;
        let destination = socket.destination(peer.addresses.raw);
        peer.run(Command::Sleep)?;
        let name = peer.addresses.ring.clone();
        let connecting =
            std::thread::spawn(move || shm::connect(&name, shm::Admit::SameUser, Duration::from_secs(5)));
        peer.run(Command::Ring { answer: 0 })?;
        let link = connecting.join().map_err(|_| anyhow::anyhow!("the ring's set-up panicked"))??;
        peer.run(Command::Sleep)?;
        Ok(Raw { socket, destination, link })
    }
}

/// The bench's NIC on one port, with a number of queue pairs to the peer's.
pub(crate) struct End {
    /// Protection domain of the queue pairs and regions.
    pub domain: ProtectionDomain,
    /// Completion queue of all queue pairs.
    pub cq: CompletionQueue,
    /// Connected queue pairs.
    pub qps: Vec<QueuePair<Ready>>,
    /// Local memory, as large as the peer's.
    pub local: MemoryRegion,
    /// Key and address of the peer's memory.
    pub remote: RemoteMemory,
    /// Port of the NIC.
    pub port: PortName,
    extensions: Extensions,
}

impl End {
    /// Opens a NIC and connects one queue pair.
    pub(crate) fn open(peer: &Peer, port: PortName) -> Result<End> {
        let mut end = End::unconnected(peer, port, None)?;
        end.connect(peer, 1, 256, 128)?;
        Ok(end)
    }

    /// Like [`open`](End::open), for connections with extensions. Records the packets of the port to
    /// `capture`, if given.
    pub(crate) fn with_extensions(
        peer: &Peer,
        port: PortName,
        extensions: Extensions,
        capture: Option<&Path>,
    ) -> Result<End> {
        let mut end = End::unconnected(peer, port, capture)?;
        end.extensions = extensions;
        end.connect(peer, 1, 256, 128)?;
        Ok(end)
    }

    fn unconnected(peer: &Peer, port: PortName, capture: Option<&Path>) -> Result<End> {
        let mut device = port.device_on(peer.network.address(port), NIC)?;
        if let Some(file) = capture {
            device = device.capture(file);
        }
        let context = device.open()?;
        let domain = context.alloc_pd()?;
        let local = domain.allocate(TARGET, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        crate::touch(&local)?;
        let cq = context.create_cq(1 << 15)?;
        let remote = RemoteMemory { addr: 0, len: 0, rkey: remora_verbs::Key::new(0) };
        Ok(End { domain, cq, qps: Vec::new(), local, remote, port, extensions: Extensions::default() })
    }

    /// Connects `count` more queue pairs of `depth` slots, with at most `reads` READs outstanding each.
    pub(crate) fn connect(&mut self, peer: &Peer, count: usize, depth: u32, reads: u8) -> Result<()> {
        let address = match self.port {
            PortName::Shm => peer.addresses.shm,
            PortName::Udp => peer.addresses.udp,
            PortName::Xdp => peer.addresses.xdp.context("the peer has no NIC over AF_XDP")?,
        };
        peer.run(self.command(NicCommand::Accept { reads, extensions: self.extensions }))?;
        for _ in 0..count {
            let options = QpOptions {
                max_send_wr: depth,
                max_recv_wr: 16,
                max_rd_atomic: reads,
                private_data: self.local.remote_memory().to_bytes().to_vec(),
                prism: self.extensions.prism,
                strom: self.extensions.strom,
                // Lasting connections would need a file descriptor each, and there are up to ten thousand.
                lasting: false,
                ..QpOptions::default()
            };
            let qp = self.domain.create_qp(&self.cq, &self.cq, &options)?.connect(address)?;
            self.remote = RemoteMemory::from_bytes(qp.peer_private_data()).context("the peer's memory")?;
            self.qps.push(qp);
        }
        peer.run(Command::Sleep)
    }

    /// Returns the maximum payload of a packet in bytes. The ports of both sides are alike.
    pub(crate) fn packet(&self) -> usize {
        1 << self.domain.context().port().path_mtu.min(4096).ilog2()
    }

    /// Returns a command to the peer's NIC on this port.
    pub(crate) fn command(&self, command: NicCommand) -> Command {
        Command::Nic { port: self.port, command }
    }

    /// Waits for `count` completions.
    #[inline]
    pub(crate) fn complete(&mut self, mut count: usize) -> Result<()> {
        let mut done = [EMPTY; 32];
        let started = Instant::now();
        let mut spins = 0u32;
        while count > 0 {
            let most = count.min(done.len());
            let got = self.cq.poll(&mut done[..most])?;
            for completion in &done[..got] {
                anyhow::ensure!(
                    completion.status == Status::Success,
                    "the benchmark's request failed: {}",
                    completion.status.explain()
                );
                let outcome = completion.outcome;
                anyhow::ensure!(
                    outcome == Verdict::Done,
                    "the benchmark's request had no effect: {outcome:?}"
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

    /// Posts a number of requests with `window` of them in flight; `post` posts the request of a given
    /// number.
    pub(crate) fn stream(
        &mut self,
        count: usize,
        window: usize,
        mut post: impl FnMut(&mut End, usize) -> Result<()>,
    ) -> Result<()> {
        let mut posted = 0;
        let mut done = 0;
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

    /// Posts one request and waits for its completion.
    #[inline]
    pub(crate) fn one(&mut self, request: &WorkRequest<'_>) -> Result<()> {
        self.one_by(0, request)
    }

    /// Like [`one`](End::one), on queue pair `qp`.
    #[inline]
    pub(crate) fn one_by(&mut self, qp: usize, request: &WorkRequest<'_>) -> Result<()> {
        self.qps[qp].post_send(request)?;
        self.complete(1)
    }

    /// Polls until the peer has acknowledged everything that was sent, so that it can be stopped.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let mut flush = Flush::of("the benchmark's peer");
        while flush.goes_on(self.qps.first_mut())? {
            let mut done = [EMPTY];
            if self.cq.poll(&mut done)? > 0 {
                let status = done[0].status;
                let fine = flush.takes(&done[0])? || status == Status::Success;
                anyhow::ensure!(fine, "the benchmark's request failed: {}", status.explain());
            }
        }
        Ok(())
    }
}
