//! The connections of a broker, their QPN ranges, and the counters of programs that have ended.

use remora_host::acceptor::Arrival;
use remora_host::packet::PacketSocket;
use remora_host::users::{Claim, User};
use remora_port::udp::{Handover, SharedPage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::PROGRAMS;
use crate::message::{PortState, ProgramFacts};

/// A program's share of one address.
#[derive(Debug)]
pub(super) struct Share {
    /// The index of the address in the broker's list.
    pub address: usize,
    /// True if the program has the socket of its range. Otherwise the broker reads that socket for it.
    pub lent: bool,
    pub handover: Handover,
    pub _claim: Claim,
}

/// A program's subscription to changes of the port.
#[derive(Debug)]
pub(super) struct PortSubscription {
    pub socket: PacketSocket,
    /// The last state that was sent.
    pub state: PortState,
}

/// A connection of a program.
#[derive(Debug)]
pub(super) struct Client {
    pub socket: PacketSocket,
    /// A pidfd, readable when the process has ended.
    pub process: Option<OwnedFd>,
    pub pid: u32,
    pub user: User,
    /// True if the connection is for the communication manager, and has no range.
    pub connects: bool,
    /// The addresses of the tree of paths that the program reads; empty for all of the broker. `None` if it
    /// reads no tree.
    pub reads: Option<Vec<SocketAddr>>,
    /// The claim of the tree that the program reads, shared by the user's programs that read it.
    pub tree_claim: Option<Arc<Claim>>,
    pub range: Option<u8>,
    pub range_claim: Option<Claim>,
    /// True if the program's device has all addresses of the broker, whether or not it has a share of them.
    pub every_address: bool,
    pub shares: Vec<Share>,
    /// The socket for links to neighbours. `None` if the program takes no links.
    pub introductions: Option<PacketSocket>,
    /// The ranges of the neighbours that the program has a link to.
    pub links: BTreeSet<u8>,
    /// The ranges to which the program was refused a link, with the reason. Both programs stay without a
    /// link, because connections of the one that was refused first go by UDP.
    pub unlinked: BTreeMap<u8, String>,
    /// The subscription to changes of the port. `None` if the program has not asked, or reads nothing.
    pub port_events: Option<PortSubscription>,
    /// The page of the program's first share, with the counters that it publishes.
    pub page: Option<SharedPage>,
    pub counters: usize,
    /// Claims of the connection, and of its sockets for links and for events of the port.
    pub claims: Vec<Claim>,
}

impl Client {
    /// A connection that has sent its first message, and has nothing else yet.
    pub(crate) fn new(arrival: Arrival, process: Option<OwnedFd>, claims: Vec<Claim>) -> Client {
        let Arrival { socket, peer, user, .. } = arrival;
        Client {
            socket,
            process,
            pid: peer.pid,
            user,
            connects: false,
            reads: None,
            tree_claim: None,
            range: None,
            range_claim: None,
            every_address: false,
            shares: Vec::new(),
            introductions: None,
            links: BTreeSet::new(),
            unlinked: BTreeMap::new(),
            port_events: None,
            page: None,
            counters: 0,
            claims,
        }
    }

    /// The program's share of this address.
    pub(crate) fn share(&self, address: usize) -> Option<&Share> {
        self.shares.iter().find(|share| share.address == address)
    }

    /// The share by which the program receives frames for this address: its share of the address, or its
    /// first share if it has every address.
    pub(crate) fn way(&self, address: usize) -> Option<&Share> {
        let other = || self.shares.first().filter(|_| self.every_address);
        self.share(address).or_else(other)
    }

    /// Returns whether the broker must keep running for this connection although it has no range.
    pub(crate) fn stays(&self) -> bool {
        self.connects || self.reads.is_some()
    }

    fn facts(&self, range: u8) -> ProgramFacts {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        let links = self.links.len() as u16;
        ProgramFacts { range, pid: self.pid, uid: self.user.uid(), links, name: printable(name.trim_end()) }
    }
}

/// The connections of all programs.
#[derive(Debug)]
pub(super) struct Clients {
    by_number: BTreeMap<u32, Client>,
    /// The connection that has each range. Entry 0 stays empty.
    ranges: [Option<u32>; PROGRAMS + 1],
    /// The free ranges. The one that was given back last is used last.
    free: VecDeque<u8>,
    next: u32,
    /// The sums of the counters of programs that have ended.
    dead: Vec<u64>,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients {
            by_number: BTreeMap::new(),
            ranges: [None; PROGRAMS + 1],
            free: (1..=PROGRAMS as u8).collect(),
            next: 0,
            dead: Vec::new(),
        }
    }

    /// The number of programs that have a range.
    pub(crate) fn programs(&self) -> usize {
        self.ranges.iter().flatten().count()
    }

    /// Adds a connection and returns its number.
    pub(crate) fn add(&mut self, client: Client) -> u32 {
        while self.by_number.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.by_number.insert(number, client);
        number
    }

    /// The numbers of all connections.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.by_number.keys().copied().collect()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Client> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Client> {
        self.by_number.get_mut(&number)
    }

    /// Returns whether any connection satisfies `is`.
    pub(crate) fn any(&self, is: impl Fn(&Client) -> bool) -> bool {
        self.by_number.values().any(is)
    }

    /// The number of programs that use the communication manager.
    pub(crate) fn connecting(&self) -> usize {
        self.by_number.values().filter(|client| client.connects).count()
    }

    /// Returns whether any program uses the communication manager or reads the device's paths.
    pub(crate) fn any_stays(&self) -> bool {
        self.any(Client::stays)
    }

    /// The program that has this range, with its connection number.
    pub(crate) fn of_range(&self, range: u8) -> Option<(u32, &Client)> {
        let number = (*self.ranges.get(usize::from(range))?)?;
        self.by_number.get(&number).map(|client| (number, client))
    }

    /// Lends a range to a connection that has none. `None` if all ranges are taken.
    pub(crate) fn lend(&mut self, number: u32) -> Option<u8> {
        let client = self.by_number.get_mut(&number)?;
        let range = self.free.pop_front()?;
        client.range = Some(range);
        self.ranges[usize::from(range)] = Some(number);
        Some(range)
    }

    /// Removes a connection, and adds its counters to the sums. Its range can be lent once it is [given
    /// back](Clients::give_back).
    pub(crate) fn remove(&mut self, number: u32) -> Option<Client> {
        let client = self.by_number.remove(&number)?;
        if let Some(range) = client.range {
            self.ranges[usize::from(range)] = None;
            for other in self.by_number.values_mut() {
                other.links.remove(&range);
                other.unlinked.remove(&range);
            }
        }
        add(&mut self.dead, &client);
        Some(client)
    }

    /// Frees a range, which is then the last to be lent.
    pub(crate) fn give_back(&mut self, range: u8) {
        self.free.push_back(range);
    }

    /// The connections of a user.
    pub(crate) fn of_user(&self, uid: u32) -> impl Iterator<Item = (u32, &Client)> {
        self.by_number
            .iter()
            .filter(move |(_, client)| client.user.uid() == uid)
            .map(|(number, client)| (*number, client))
    }

    /// The users that have connections, in ascending order.
    pub(crate) fn users(&self) -> BTreeSet<u32> {
        self.by_number.values().map(|client| client.user.uid()).collect()
    }

    /// The program that has range `first`, or the next higher range that is lent.
    pub(crate) fn facts(&self, first: u16) -> Option<ProgramFacts> {
        let mut ranges = (1..=PROGRAMS as u8).skip_while(|range| u16::from(*range) < first);
        let range = ranges.find(|range| self.ranges[usize::from(*range)].is_some())?;
        self.of_range(range).map(|(_, client)| client.facts(range))
    }

    /// The sums of all counters that programs publish or published.
    pub(crate) fn counters(&self) -> Vec<u64> {
        let mut sums = self.dead.clone();
        self.by_number.values().for_each(|client| add(&mut sums, client));
        sums
    }
}

/// Replaces the control characters of a name that a program chose, since a terminal would obey them.
fn printable(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Adds a program's counters to the sums.
fn add(sums: &mut Vec<u64>, client: &Client) {
    let Some(page) = &client.page else { return };
    let count = client.counters.min(SharedPage::COUNTERS);
    if sums.len() < count {
        sums.resize(count, 0);
    }
    for (sum, value) in sums.iter_mut().zip(page.counters(count)) {
        *sum = sum.wrapping_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_host::users::Users;

    fn client() -> Client {
        let (socket, _) = PacketSocket::pair().unwrap();
        let peer = socket.peer().unwrap();
        let user = Users::new(peer.uid, &[], Vec::new()).user(peer.uid);
        Client::new(Arrival { socket, peer, user, message: Vec::new() }, None, Vec::new())
    }

    /// Regression: `remora doctor` printed the name of a guest's program with its escape sequences.
    #[test]
    fn a_programs_name_has_nothing_that_a_terminal_obeys() {
        assert_eq!(printable("ib_write_bw"), "ib_write_bw");
        assert_eq!(printable("\u{1b}[2J\u{9b}31m\r"), "\u{fffd}[2J\u{fffd}31m\u{fffd}");
    }

    #[test]
    fn each_range_is_one_programs_and_the_one_given_back_last_is_lent_last() {
        let mut clients = Clients::new();
        let numbers: Vec<u32> = (0..PROGRAMS + 1).map(|_| clients.add(client())).collect();
        for (place, number) in numbers.iter().take(PROGRAMS).enumerate() {
            assert_eq!(clients.lend(*number), Some(place as u8 + 1));
        }
        assert_eq!(clients.lend(numbers[PROGRAMS]), None, "all {PROGRAMS} are taken");
        assert_eq!(clients.programs(), PROGRAMS);
        for range in [40u8, 7] {
            let (number, _) = clients.of_range(range).unwrap();
            clients.remove(number).unwrap();
            assert!(clients.of_range(range).is_none());
            clients.give_back(range);
        }
        let newcomers = [clients.add(client()), clients.add(client())];
        assert_eq!(newcomers.map(|number| clients.lend(number)), [Some(40), Some(7)]);
        assert_eq!(clients.facts(0).map(|facts| facts.range), Some(1));
        assert_eq!(clients.facts(PROGRAMS as u16).map(|facts| facts.range), Some(PROGRAMS as u8));
        assert_eq!(clients.facts(PROGRAMS as u16 + 1), None);
        assert_eq!(clients.facts(u16::MAX), None);
        assert!(clients.of_range(0).is_none(), "range 0 belongs to no program");
    }

    /// Regression: `remora doctor` missed a running program when another one ended meanwhile, because
    /// programs were listed by index.
    #[test]
    fn who_lists_the_programs_misses_none_though_others_end_meanwhile() {
        let mut clients = Clients::new();
        let numbers = [(); 3].map(|()| clients.add(client()));
        let ranges = numbers.map(|number| clients.lend(number).unwrap());
        assert_eq!(clients.facts(0).map(|facts| facts.range), Some(ranges[0]));
        clients.remove(numbers[0]).unwrap();
        let next = clients.facts(u16::from(ranges[0]) + 1);
        assert_eq!(next.map(|facts| facts.range), Some(ranges[1]));
    }
}
