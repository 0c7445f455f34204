//! The broker's thread: it waits for all descriptors at once, and never blocks on one program.

use remora_host::Signal;
use remora_host::acceptor::{Acceptor, Arrival};
use remora_host::packet::{PacketListener, PacketSocket, PeerCredentials, own_uid};
use remora_host::users::{Amounts, Claim, Resource, User, Users};
use remora_port::udp::{SharedEndpoint, SteeredBy};
use remora_port::user;
use remora_verbs::nicd::Daemon;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::addresses::Address;
use super::bounds::{OF_CONNECTION, OF_SHARE, bounds};
use super::cm_agent::CmAgent;
use super::error::BrokerError;
use super::notices::Notices;
use super::options::Options;
use super::programs::{Client, Clients, Share};
use crate::interface::Interfaces;
use crate::message::{BrokerFacts, CmReply, MAX_PACKET, Reply, Request, VERSION};
use crate::paths::ShownTree;
use crate::{PROGRAMS, Tally};

/// Descriptors reported by one call of epoll.
const EVENTS: usize = 64;
/// Packets of one descriptor that are processed before the others have their turn.
const TURN: usize = 32;

/// The refusal of a request that is malformed, or comes out of turn.
const NONSENSE: &str = "a program's request makes no sense to the broker";

/// The NIC that the process of a broker lends, and the socket for the programs that use it.
#[derive(Debug)]
pub(super) struct LentNic {
    pub daemon: Arc<Daemon>,
    pub listener: PacketListener,
}

/// The source of a descriptor's event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Stop,
    /// The listener of the address at this place.
    Listener(usize),
    /// The listener of programs that use the lent NIC.
    NicListener,
    /// A NIC that is lent from now on.
    LentNic,
    /// First messages of connections.
    Arrivals,
    Connection(u32),
    /// The process of this connection.
    Process(u32),
    /// The channel of the connection's share of the address at this place.
    Channel(usize, u32),
    /// The socket of the address at this place for this range.
    Socket(usize, u8),
    /// The event channel with this number.
    Events(u32),
    /// The socket for introductions of this connection.
    Introductions(u32),
    /// The kernel's notices about interfaces and addresses.
    Notices,
}

impl Source {
    pub(super) fn data(self) -> EventData {
        let (kind, address, number) = match self {
            Source::Stop => (0, 0, 0),
            Source::Listener(address) => (1, address, 0),
            Source::Connection(number) => (2, 0, number),
            Source::Process(number) => (3, 0, number),
            Source::Channel(address, number) => (4, address, number),
            Source::Socket(address, range) => (5, address, range.into()),
            Source::Events(number) => (6, 0, number),
            Source::Introductions(number) => (7, 0, number),
            Source::Notices => (8, 0, 0),
            Source::Arrivals => (9, 0, 0),
            Source::NicListener => (10, 0, 0),
            Source::LentNic => (11, 0, 0),
        };
        EventData::new_u64(kind << 48 | (address as u64 & 0xffff) << 32 | u64::from(number))
    }

    fn of(data: EventData) -> Source {
        let word = data.u64();
        let address = (word >> 32 & 0xffff) as usize;
        let number = word as u32;
        match word >> 48 {
            1 => Source::Listener(address),
            2 => Source::Connection(number),
            3 => Source::Process(number),
            4 => Source::Channel(address, number),
            5 => Source::Socket(address, number as u8),
            6 => Source::Events(number),
            7 => Source::Introductions(number),
            8 => Source::Notices,
            9 => Source::Arrivals,
            10 => Source::NicListener,
            11 => Source::LentNic,
            _ => Source::Stop,
        }
    }
}

/// The state of a broker, which its thread owns.
pub(super) struct State {
    pub(super) options: Options,
    pub(super) uid: u32,
    pub(super) users: Arc<Users>,
    acceptor: Acceptor,
    pub(super) poll: OwnedFd,
    stop: Arc<Signal<()>>,
    fresh_nic: Arc<Signal<LentNic>>,
    lent_nic: Option<LentNic>,
    /// The kernel's notices about interfaces and addresses, if the kernel provides them.
    pub(super) notices: Option<Notices>,
    pub(super) addresses: Vec<Address>,
    pub(super) clients: Clients,
    /// Ranges that were given back while a process kept their sockets.
    withheld: Vec<(u8, Option<Claim>)>,
    /// True if the present request fails because of a limit of the broker's process.
    lacking: bool,
    /// True if the broker is to end.
    over: bool,
    pub(super) tally: Tally,
    pub(super) agent: CmAgent,
    /// True if the broker has all addresses of the network namespace, because a program has asked for them.
    pub(super) every_address: bool,
    /// The trees of paths. A tree is written when the first program asks for it.
    pub(super) trees: Vec<ShownTree>,
    /// Connections whose programs do not read their events.
    pub(super) deaf: BTreeSet<u32>,
    /// Buffer for one datagram or train.
    pub(super) buffer: Box<[u8]>,
    /// The time since which no program has a range, uses the communication manager, or reads paths.
    pub(super) idle: Option<Instant>,
}

impl State {
    pub(crate) fn new(
        address: SocketAddr,
        options: &Options,
        stop: Arc<Signal<()>>,
        fresh_nic: Arc<Signal<LentNic>>,
    ) -> Result<State, BrokerError> {
        let system = |resource| move |error: rustix::io::Errno| BrokerError::System(resource, error.into());
        let poll = epoll::create(CreateFlags::CLOEXEC).map_err(system("descriptor"))?;
        let uid = own_uid();
        let users = Users::new(uid, &options.allow, [bounds(), options.bounds.clone()].concat());
        let acceptor = Acceptor::new(options.patience);
        let mut state = State {
            options: options.clone(),
            uid,
            users: Arc::clone(&users),
            acceptor: acceptor.map_err(|error| BrokerError::System("descriptor", error))?,
            poll,
            stop,
            fresh_nic,
            lent_nic: None,
            notices: Notices::open(),
            addresses: Vec::new(),
            clients: Clients::new(),
            withheld: Vec::new(),
            lacking: false,
            over: false,
            tally: Tally::default(),
            agent: CmAgent::new(users),
            every_address: false,
            trees: Vec::new(),
            deaf: BTreeSet::new(),
            buffer: vec![0; 65_535].into_boxed_slice(),
            idle: Some(Instant::now()),
        };
        watch(&state.poll, &state.stop.as_fd(), Source::Stop).map_err(system("descriptor"))?;
        watch(&state.poll, &state.fresh_nic.as_fd(), Source::LentNic).map_err(system("descriptor"))?;
        watch(&state.poll, &state.acceptor, Source::Arrivals).map_err(system("descriptor"))?;
        if let Some(notices) = &state.notices {
            watch(&state.poll, notices, Source::Notices).map_err(system("descriptor"))?;
        }
        state.put_address(Address::new(address)?)?;
        if state.options.every_address {
            state.every_address = true;
            state.fill_gids(&Interfaces::now());
        }
        Ok(state)
    }

    /// Serves until it is told to stop, or until nothing was borrowed for long enough.
    pub(crate) fn serve(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while let Some(wait) = self.wait() {
            events.clear();
            let timeout = wait.map(|wait| rustix::event::Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: wait.subsec_nanos().into(),
            });
            let filled =
                epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if filled.is_err() {
                continue;
            }
            for event in &events {
                // Copied because the kernel's struct is packed.
                let data = event.data;
                match Source::of(data) {
                    Source::Stop => return,
                    Source::Listener(address) => self.accept(Some(address)),
                    Source::NicListener => self.accept(None),
                    Source::LentNic => self.begin_lending(),
                    Source::Arrivals => self.begin_arrivals(),
                    Source::Connection(number) => self.answer(number),
                    Source::Process(number) => self.hang_up(number),
                    Source::Channel(address, number) => self.take_strays(address, number),
                    Source::Socket(address, range) => self.receive(address, range),
                    Source::Events(number) => self.look_at_channel(number),
                    Source::Introductions(number) => self.introduce(number),
                    Source::Notices => self.look_at_interfaces(),
                }
                self.hang_up_on_the_deaf();
                if self.over {
                    return;
                }
            }
        }
    }

    /// Returns the time to wait for descriptors (inner `None`: without limit), or `None` if the broker is to
    /// end. Also hangs up on connections that have not sent a first message in time.
    fn wait(&mut self) -> Option<Option<Duration>> {
        self.expire_cm();
        self.hang_up_on_the_deaf();
        // Closes connections that have been silent for too long.
        self.begin_arrivals();
        let now = Instant::now();
        let end = match (self.idle, self.options.linger) {
            (Some(since), Some(linger)) => Some(linger.saturating_sub(now.duration_since(since))),
            _ => None,
        };
        if end.is_some_and(|left| left.is_zero()) {
            return None;
        }
        // One millisecond more, so that the kernel does not wake the thread too early.
        let wait = [self.acceptor.rest(), end, self.agent.rest()].into_iter().flatten().min();
        Some(wait.map(|wait| wait + Duration::from_millis(1)))
    }

    /// Accepts connections at an address, or, without one, at the socket of the lent NIC.
    fn accept(&mut self, address: Option<usize>) {
        let State { acceptor, addresses, lent_nic, options, users, uid, .. } = self;
        let listener = match address {
            Some(place) => addresses.get(place).map(|address| &address.listener),
            None => lent_nic.as_ref().map(|nic| &nic.listener),
        };
        let Some(listener) = listener else { return };
        let admit = |peer: &PeerCredentials| {
            if options.alone && !peer.is_this_process() {
                return Err(format!(
                    "the program with number {} has the address alone (REMORA_ALONE): end it, or run both without",
                    std::process::id()
                ));
            }
            users.admit(peer).ok_or_else(|| not_admitted(*uid, peer.uid))
        };
        if let Err(error) = acceptor.accept(listener, admit) {
            // Most likely there are no descriptors left. The connection waits in the listener, and the pause
            // is short for all others.
            tracing::warn!("a program waits for the broker: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Claims places for a program. Descriptors of the broker's own user are counted and not limited: the
    /// system refuses them.
    ///
    /// # Errors
    /// A line with the user's places and the remedy, if the user has its share.
    pub(super) fn claim(&self, number: u32, kind: Resource, amount: u64) -> Result<Claim, String> {
        let user = &self.clients.get(number).ok_or("the connection is gone")?.user;
        claim(user, kind, amount)
    }

    fn begin_lending(&mut self) {
        let Some(nic) = self.fresh_nic.take() else { return };
        if let Err(error) = watch(&self.poll, &nic.listener, Source::NicListener) {
            tracing::error!("programs find the lent NIC at the address only: {error}");
        }
        self.lent_nic = Some(nic);
    }

    /// Begins to serve connections whose first messages have arrived.
    fn begin_arrivals(&mut self) {
        for _ in 0..TURN {
            let Some(arrival) = self.acceptor.next_arrival() else { return };
            self.welcome(arrival);
        }
    }

    /// Adds a connection and answers its first request, or refuses it.
    fn welcome(&mut self, arrival: Arrival) {
        let arrival = match &self.lent_nic {
            Some(nic) => match nic.daemon.serve(arrival) {
                Ok(()) => return,
                Err(arrival) => arrival,
            },
            None => arrival,
        };
        let Some(request) = Request::parse(&arrival.message).filter(Request::is_first) else {
            return self.refuse(&arrival.socket, NONSENSE.to_owned());
        };
        let parts = [(Resource::Connection, 1), (Resource::Descriptor, OF_CONNECTION)];
        let claims = parts.map(|(kind, amount)| claim(&arrival.user, kind, amount));
        let claims = match claims.into_iter().collect::<Result<_, _>>() {
            Ok(claims) => claims,
            Err(words) => return self.refuse(&arrival.socket, words),
        };
        if arrival.socket.wait_for_nothing().is_err() {
            return;
        }
        let process = arrival.socket.peer_process(self.options.found).ok();
        let number = self.clients.add(Client::new(arrival, process, claims));
        let Some(client) = self.clients.get(number) else { return };
        let watched = watch(&self.poll, &client.socket, Source::Connection(number)).and_then(|()| {
            client
                .process
                .as_ref()
                .map_or(Ok(()), |process| watch(&self.poll, process, Source::Process(number)))
        });
        match watched {
            Ok(()) => self.respond(number, request, true),
            Err(_) => self.hang_up(number),
        }
    }

    fn refuse(&mut self, socket: &PacketSocket, words: String) {
        self.tally.refused += 1;
        let _ = socket.send(&Reply::Refused(words).emit(), &[]);
    }

    /// Receives one request and answers it.
    fn answer(&mut self, number: u32) {
        let mut buffer = [0; MAX_PACKET];
        let Some(client) = self.clients.get(number) else { return };
        let request = match client.socket.receive(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return,
            Ok(packet) if packet.len > 0 && !packet.cut && packet.descriptors.is_empty() => {
                Request::parse(&buffer[..packet.len])
            }
            Ok(packet) if packet.len > 0 => None,
            _ => return self.hang_up(number),
        };
        let connects = client.connects;
        let fits = |request: &Request| !request.is_first() && connects == matches!(request, Request::Cm(_));
        match request.filter(fits) {
            Some(request) => self.respond(number, request, false),
            None => self.send_away(number, NONSENSE.to_owned()),
        }
    }

    /// Executes a request and sends the reply. `first` is true for the first request of a connection, which
    /// ends with it if it is refused.
    fn respond(&mut self, number: u32, request: Request, first: bool) {
        self.lacking = false;
        match self.reply(number, request) {
            Ok(Some(reply)) => self.send(number, &reply, &[]),
            Ok(None) => {}
            Err(words) if first && self.lacking && self.gives_way(number) => {
                self.over = true;
                self.send(number, &Reply::Ends(words), &[]);
            }
            Err(words) if first => self.send_away(number, words),
            Err(words) => {
                self.tally.refused += 1;
                self.send(number, &Reply::Refused(words), &[]);
            }
        }
    }

    /// Returns the reply, or `None` if it was sent already, with descriptors.
    fn reply(&mut self, number: u32, request: Request) -> Result<Option<Reply>, String> {
        Ok(Some(match request {
            Request::Open { version, .. }
            | Request::Ask { version }
            | Request::OpenCm { version }
            | Request::Paths { version, .. }
                if version != VERSION =>
            {
                return Err(format!(
                    "the program speaks version {version} to its broker, which speaks {VERSION}: update the older one; `remora \
                     doctor` names the broker's process"
                ));
            }
            Request::Open { address, counters, every_address, .. } => {
                if let Some(client) = self.clients.get_mut(number) {
                    (client.counters, client.every_address) = (counters.into(), every_address);
                }
                if every_address {
                    self.have_every_address(number);
                }
                return self.lend(number, address).map(|()| None);
            }
            Request::Address(address) => return self.lend(number, address).map(|()| None),
            Request::Ask { .. } => Reply::Facts(self.facts()),
            Request::User(first_uid) => self.user_facts(first_uid).map_or(Reply::Nothing, Reply::User),
            Request::EndUser(uid) => Reply::Ended(self.end_user(number, uid)?),
            Request::EndProgram(range) => Reply::Ended(self.end_program(number, range)?),
            Request::Program(range) => self.clients.facts(range).map_or(Reply::Nothing, Reply::Program),
            Request::Counters => Reply::Counters(self.clients.counters()),
            Request::Port => Reply::Port(self.whole_port()),
            Request::Paths { addresses, .. } => return self.hand_out_tree(number, addresses).map(|()| None),
            Request::Counter { name, .. } => return self.hand_out_counter(number, &name).map(|()| None),
            Request::Neighbours => return self.open_introductions(number).map(|()| None),
            Request::PortEvents => return self.open_port_events(number).map(|()| None),
            Request::Link(_) => return Err("links are asked for on a socket of their own".to_owned()),
            Request::OpenCm { .. } => {
                if let Some(client) = self.clients.get_mut(number) {
                    client.connects = true;
                }
                self.idle = None;
                Reply::Cm(CmReply::Opened)
            }
            Request::Cm(request) => {
                self.answer_cm(number, request);
                return Ok(None);
            }
        }))
    }

    /// Returns whether the broker is to end in favour of a new one: it may give way, and no other program
    /// uses it.
    fn gives_way(&self, number: u32) -> bool {
        let uses = |client: &Client| client.stays() || client.range.is_some();
        let others = self.clients.numbers().into_iter().filter(|other| *other != number);
        self.options.gives_way && !others.filter_map(|other| self.clients.get(other)).any(uses)
    }

    /// Returns the message about a limit of the broker's process, whose limits and folders are those of the
    /// program that started it.
    pub(super) fn lack(&mut self, words: &str) -> String {
        self.lacking = true;
        let pid = std::process::id();
        format!(
            "{words}. This is a limit of the broker, process {pid} of user {}, which keeps the limits and folders of the program \
             that started it: end its programs and then it (`kill {pid}`), or start one by `remora broker` where the limits \
             suffice",
            self.uid
        )
    }

    fn facts(&self) -> BrokerFacts {
        let groups = self.addresses.iter().filter_map(|address| address.group.as_ref());
        BrokerFacts {
            pid: std::process::id(),
            uid: self.uid,
            address: self.addresses[0].local,
            bound: groups.clone().count() as u16,
            relays: groups.clone().any(|group| group.steered() == SteeredBy::Reader) && !self.options.alone,
            alone: self.options.alone,
            programs: self.clients.programs() as u16,
            tally: Tally {
                refused: self.tally.refused + self.acceptor.refused(),
                dropped: self.tally.dropped + self.acceptor.dropped(),
                ..self.tally
            },
        }
    }

    /// Lends a share of an address. A program has the same range on each of its addresses.
    fn lend(&mut self, number: u32, local: SocketAddr) -> Result<(), String> {
        let place = self.have_address(number, local)?;
        let client = self.clients.get(number).ok_or("the connection is gone")?;
        if client.share(place).is_some() {
            return Err(format!("the program has its share of {} already", local.ip()));
        }
        self.complete(place)?;
        self.look_at_withheld();
        let descriptors = self.claim(number, Resource::Descriptor, OF_SHARE)?;
        let fresh = client_range(&self.clients, number).is_none();
        let range_claim = if fresh { Some(self.claim(number, Resource::Range, 1)?) } else { None };
        let range = match client_range(&self.clients, number) {
            Some(range) if !self.is_fit(range) => {
                return Err(format!(
                    "a process still has the socket that this program had at {}, such as a child that it forked: end that process, \
                     or open the device anew",
                    local.ip()
                ));
            }
            Some(range) => range,
            None => self.clients.lend(number).ok_or_else(|| {
                format!(
                    "{PROGRAMS} programs have the address {}, and no QPN range is left: end one",
                    local.ip()
                )
            })?,
        };
        self.idle = None;
        if fresh {
            self.tally.lent += 1;
            if let Some(client) = self.clients.get_mut(number) {
                client.range_claim = range_claim;
            }
        }
        self.hand_out(number, place, range, descriptors)
            .map_err(|error| self.lack(&format!("lending a QPN range failed: {error}")))
    }

    /// Returns the place of an address, which is added if it is new. A guest can only use addresses that the
    /// broker has.
    pub(super) fn have_address(&mut self, number: u32, local: SocketAddr) -> Result<usize, String> {
        let guest = self.clients.get(number).is_none_or(|client| client.user.is_guest());
        match self.addresses.iter().position(|address| address.local == local) {
            Some(place) => Ok(place),
            None if guest => Err(format!(
                "the broker of {} belongs to user {} and does not serve {} to other users: have it started with `remora broker \
                 --every-address`, or name one of the addresses that `remora doctor` shows",
                self.addresses[0].local.ip(),
                self.uid,
                local.ip()
            )),
            None => self.add_address(local).map_err(|error| match error {
                BrokerError::Running(other, Some(holder)) if holder.is_trusted(&[]) => format!(
                    "another broker has {} (process {} of user {}), and the addresses of a device belong to one broker: name that \
                     address first, or wait until that broker is gone, ten seconds after its last program",
                    other.ip(),
                    holder.pid,
                    holder.uid
                ),
                error => error.to_string(),
            }),
        }
    }

    /// Sends the descriptors of a share to its program. A program of the broker's own user gets the socket of
    /// its range. The socket belongs to that user: it cannot be taken back, and its holder can change it. For
    /// guests the broker therefore reads the socket itself.
    fn hand_out(&mut self, number: u32, place: usize, range: u8, claim: Claim) -> std::io::Result<()> {
        let none = || std::io::Error::from(std::io::ErrorKind::NotConnected);
        let guest = self.clients.get(number).ok_or_else(none)?.user.is_guest();
        self.drain(place, range);
        let local = self.addresses[place].local;
        let group = self.addresses[place].group.as_mut().ok_or_else(none)?;
        group.join(range, guest);
        let own = match (self.options.alone, guest) {
            (true, _) => Some(group.sockets()[0].as_fd().try_clone_to_owned()?),
            (false, true) => None,
            (false, false) => group.duplicate(range)?,
        };
        let lent = own.is_some();
        let (share, handover) = match own {
            Some(own) => SharedEndpoint::share(local, range, own)?,
            None => SharedEndpoint::relay(local, range)?,
        };
        watch(&self.poll, &handover, Source::Channel(place, number))?;
        if let Some(socket) = self.lent_socket(place, range).filter(|_| lent) {
            // The socket is watched, unless an earlier borrower kept its predecessor.
            let _ = epoll::delete(&self.poll, socket);
        }
        let client = self.clients.get_mut(number).ok_or_else(none)?;
        client.page.get_or_insert_with(|| handover.page().clone());
        client.shares.push(Share { address: place, lent, handover, _claim: claim });
        let descriptors = share.descriptors().ok_or_else(none)?;
        self.send(number, &Reply::Lent { range, address: local }, &descriptors);
        self.tell_of_port(number);
        Ok(())
    }

    /// The socket of a range, if a program with the range reads it and not the broker.
    fn lent_socket(&self, place: usize, range: u8) -> Option<&remora_port::udp::Socket> {
        let group = self.addresses[place].group.as_ref()?;
        if self.options.alone {
            // The program reads the only socket, and hands over frames for others.
            return group.sockets().first();
        }
        let steered = group.steered() == SteeredBy::Kernel;
        group.sockets().get(usize::from(range)).filter(|_| steered)
    }

    pub(super) fn send(&mut self, number: u32, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        let Some(client) = self.clients.get(number) else { return };
        if client.socket.send(&reply.emit(), descriptors).is_err() {
            // The program reads nothing, or is gone.
            self.tally.dropped += 1;
            self.hang_up(number);
        }
    }

    /// Refuses a connection's request and hangs up.
    fn send_away(&mut self, number: u32, words: String) {
        if let Some(client) = self.clients.get(number) {
            self.tally.refused += 1;
            let _ = client.socket.send(&Reply::Refused(words).emit(), &[]);
        }
        self.hang_up(number);
    }

    /// Takes back a program's share of an address. The program keeps the range and its other shares.
    pub(super) fn end_share(&mut self, place: usize, number: u32) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let Some(ended) = client.shares.iter().position(|share| share.address == place) else { return };
        let share = client.shares.remove(ended);
        if let Some(range) = client.range {
            self.take_socket(&share, range);
        }
    }

    /// Makes the broker read the socket of a range again. The borrower may have kept the old socket, and may
    /// have changed its options, so the socket is replaced.
    fn take_socket(&mut self, share: &Share, range: u8) {
        if !share.lent {
            return;
        }
        if let Some(group) = &mut self.addresses[share.address].group {
            group.renew(range);
        }
        if let Some(socket) = self.lent_socket(share.address, range) {
            let _ = watch(&self.poll, socket, Source::Socket(share.address, range));
        }
    }

    /// Returns whether no earlier borrower of the range has kept a socket of it.
    fn is_fit(&mut self, range: u8) -> bool {
        let mut groups = self.addresses.iter_mut().filter_map(|address| address.group.as_mut());
        groups.all(|group| group.is_fit(range))
    }

    /// Frees withheld ranges whose earlier borrowers have closed their sockets.
    fn look_at_withheld(&mut self) {
        for (range, claim) in std::mem::take(&mut self.withheld) {
            self.give_back(range, claim);
        }
    }

    fn give_back(&mut self, range: u8, claim: Option<Claim>) {
        if self.is_fit(range) {
            self.clients.give_back(range);
        } else {
            self.withheld.push((range, claim));
        }
    }

    /// Ends connections whose programs have too many unread events.
    fn hang_up_on_the_deaf(&mut self) {
        while let Some(number) = self.deaf.pop_first() {
            self.tally.dropped += 1;
            self.hang_up(number);
        }
    }

    /// Ends a connection, and takes back its range or its ids.
    pub(super) fn hang_up(&mut self, number: u32) {
        let Some(mut client) = self.clients.remove(number) else { return };
        client.socket.hang_up();
        if client.connects {
            self.end_cm_of(number);
        }
        if let Some(range) = client.range {
            self.tally.taken_back += 1;
            for share in &client.shares {
                self.take_socket(share, range);
            }
            self.give_back(range, client.range_claim.take());
        }
        let borrowed = client.range.is_some() || client.stays();
        if borrowed && self.clients.programs() == 0 && !self.clients.any_stays() {
            self.idle = Some(Instant::now());
        }
    }
}

/// The refusal of a process whose user `uid` a broker of user `own` does not admit.
fn not_admitted(own: u32, uid: u32) -> String {
    let begin = format!("the broker of this address belongs to user {own} and does not admit");
    match user::is_mapped(uid) {
        true => format!(
            "{begin} user {uid}: start it with `remora broker --allow-uid {uid}`, or choose another address"
        ),
        false => {
            format!("{begin} {}: run both in one user namespace, or choose another address", user::name(uid))
        }
    }
}

fn claim(user: &User, kind: Resource, amount: u64) -> Result<Claim, String> {
    let amounts = Amounts::of(kind, amount);
    match kind {
        Resource::Descriptor if !user.is_guest() => Ok(user.hold(amounts)),
        _ => user.claim(amounts),
    }
}

fn client_range(clients: &Clients, number: u32) -> Option<u8> {
    clients.get(number).and_then(|client| client.range)
}

pub(super) fn watch(poll: &OwnedFd, descriptor: &impl AsFd, source: Source) -> Result<(), rustix::io::Errno> {
    epoll::add(poll, descriptor, source.data(), EventFlags::IN)
}

#[cfg(test)]
mod tests {
    use super::super::addresses::ADDRESSES;
    use super::*;

    #[test]
    fn a_source_comes_back_from_the_kernels_word() {
        for source in [
            Source::Stop,
            Source::Listener(7),
            Source::Connection(u32::MAX),
            Source::Process(3),
            Source::Channel(2, 99),
            Source::Socket(ADDRESSES - 1, 127),
            Source::Events(u32::MAX),
            Source::Introductions(8),
            Source::Notices,
            Source::Arrivals,
            Source::NicListener,
            Source::LentNic,
        ] {
            assert_eq!(Source::of(source.data()), source);
        }
    }
}
