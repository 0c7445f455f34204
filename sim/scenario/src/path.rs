//! Paths of a network without traffic: their delays, their slowest links, and how long a flow alone takes.

use remora_fabric::engine::{Picos, transmission};
use remora_fabric::simulation::Charging;
use remora_fabric::topology::{Link, Routes, Topology};

/// Hosts from which the longest path is sought: all of them in a small network.
const SOUGHT_FROM: usize = 64;
/// Links of a path, at most.
const HOPS_MAX: usize = 64;

/// The shortest paths of a network.
pub struct Paths {
    topology: Topology,
    routes: Routes,
    ports: Vec<Vec<remora_fabric::topology::Port>>,
    longest_delay: u64,
    most_links: usize,
    fastest: u64,
}

impl Paths {
    /// Of a network whose links are all up.
    ///
    /// # Errors
    /// What the routes refuse.
    pub fn new(topology: &Topology) -> Result<Paths, String> {
        let routes = Routes::new(topology, |_| true).map_err(|error| error.to_string())?;
        let ports = topology.ports();
        let rate =
            |host: u32| ports[host as usize].iter().map(|port| topology.links[port.link as usize].rate).max();
        let fastest = topology.hosts().filter_map(rate).max().unwrap_or(0);
        let topology = topology.clone();
        let mut paths = Paths { topology, routes, ports, longest_delay: 0, most_links: 0, fastest };
        let longest = paths.pairs().map(|(source, destination)| {
            let path = paths.of(source, destination);
            (path.iter().map(|link| link.delay).sum(), path.len())
        });
        let most = |(delay, links): (u64, usize), path: (u64, usize)| (delay.max(path.0), links.max(path.1));
        let (longest_delay, most_links) = longest.fold((0, 0), most);
        (paths.longest_delay, paths.most_links) = (longest_delay, most_links);
        Ok(paths)
    }

    /// Picoseconds of propagation on the longest of the shortest paths.
    pub fn longest_delay(&self) -> u64 {
        self.longest_delay
    }

    /// The highest rate of a host's link, in bit/s.
    pub fn fastest(&self) -> u64 {
        self.fastest
    }

    /// Picoseconds from a full packet's first bit until its acknowledgement is there, on the longest path:
    /// the propagation both ways, and the packet stored and forwarded at hosts' highest rate. The
    /// acknowledgement's own time is left out.
    pub fn round_trip(&self, full: u32) -> u64 {
        2 * self.longest_delay + self.most_links as u64 * transmission(u64::from(full), self.fastest)
    }

    /// Bytes that fill the path between two nodes and back, as HPCC's programs count: the propagation both
    /// ways and each link's time for so much payload, in whole nanoseconds, at the slowest link's rate.
    pub fn product(&self, source: u32, destination: u32, payload: u32) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let path = self.of(source, destination);
        let delay: u64 = path.iter().map(|link| link.delay / Picos::NANOSECOND).sum();
        let ns = |link: &Link| (u128::from(payload) * 8 * SECOND / u128::from(link.rate.max(1))) as u64;
        let round_trip = 2 * delay + path.iter().map(ns).sum::<u64>();
        let slowest = path.iter().map(|link| link.rate).min().unwrap_or(0);
        (u128::from(round_trip) * u128::from(slowest) / SECOND / 8) as u64
    }

    /// The most that [`Paths::product`] is between any two hosts.
    pub fn window(&self, payload: u32) -> u32 {
        let pairs = self.pairs().map(|(source, destination)| self.product(source, destination, payload));
        u32::try_from(pairs.max().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Pairs of hosts: all of them in a small network.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let hosts = || self.topology.hosts();
        let step = hosts().count().div_ceil(SOUGHT_FROM).max(1);
        let from = move |source| hosts().filter(move |host| *host != source).map(move |to| (source, to));
        self.topology.hosts().step_by(step).flat_map(from)
    }

    /// The links of a shortest path between two nodes, the first of each choice; empty if there is none.
    pub fn of(&self, source: u32, destination: u32) -> Vec<Link> {
        let (mut node, mut links) = (source, Vec::new());
        while node != destination && links.len() < HOPS_MAX {
            let Some(port) = self.routes.ports(node, destination).first() else { return Vec::new() };
            let port = self.ports[node as usize][usize::from(*port)];
            links.push(self.topology.links[port.link as usize]);
            node = port.neighbour;
        }
        links
    }

    /// The choices that lead from a host by its own switch over these switches, as the fabric packs them.
    ///
    /// # Errors
    /// They are not on a shortest path.
    pub fn choices(&self, source: u32, destination: u32, above: &[u32]) -> Result<u32, String> {
        let first = self.routes.ports(source, destination).first();
        let mut node = first.map_or(source, |port| self.ports[source as usize][usize::from(*port)].neighbour);
        let mut choices = Vec::new();
        for next in above {
            let ports = self.routes.ports(node, destination);
            let leads = |port: &u16| self.ports[node as usize][usize::from(*port)].neighbour == *next;
            let choice = ports.iter().position(leads).and_then(|choice| u8::try_from(choice).ok());
            choices.push(choice.ok_or_else(|| {
                format!(
                    "switch {next} is not next to {node} on a shortest path from {source} to {destination}"
                )
            })?);
            node = *next;
        }
        Ok(remora_fabric::network::path(&choices))
    }

    /// Picoseconds from the start of a flow until its sender has the last acknowledgement, on an idle path:
    /// all packets at the rate of the slowest link, the last one stored and forwarded on the others, and an
    /// acknowledgement back.
    pub fn alone(
        &self,
        source: u32,
        destination: u32,
        size: u64,
        mtu: u32,
        charging: Charging,
        extra: u16,
    ) -> u64 {
        let path = self.of(source, destination);
        let (mtu, size) = (u64::from(mtu), size.max(1));
        let last = (size - 1) % mtu + 1;
        let full = u64::from(charging.full(mtu as u32) + extra);
        let last = u64::from(charging.full(last as u32) + extra);
        let slowest = path.iter().map(|link| link.rate).min().unwrap_or(1);
        let ahead = size.div_ceil(mtu) - 1;
        let delay: u64 = path.iter().map(|link| link.delay).sum();
        let store: u64 = path.iter().map(|link| transmission(last, link.rate)).sum();
        let back: u64 =
            path.iter().map(|link| transmission(u64::from(charging.acknowledgement()), link.rate)).sum();
        ahead * transmission(full, slowest) + 2 * delay + store + back
    }
}
