//! Shortest paths of a network and the times that they take without other traffic.

use remora_fabric::engine::{Picos, transmission};
use remora_fabric::simulation::Charging;
use remora_fabric::topology::{Link, Routes, Topology};

/// Number of hosts whose paths are searched for the longest one. Larger networks are sampled evenly.
const SOUGHT_FROM: usize = 64;
/// Largest number of links in a path.
const HOPS_MAX: usize = 64;

/// The shortest paths of a network whose links are all up.
pub struct Paths {
    topology: Topology,
    routes: Routes,
    ports: Vec<Vec<remora_fabric::topology::Port>>,
    longest_delay: u64,
    most_links: usize,
    fastest: u64,
}

impl Paths {
    /// Computes the paths.
    ///
    /// # Errors
    /// Fails if [`Routes::new`] rejects the topology.
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

    /// Returns the propagation delay of the shortest path with the longest delay, in picoseconds.
    pub fn longest_delay(&self) -> u64 {
        self.longest_delay
    }

    /// Returns the highest rate of a link of a host, in bit/s.
    pub fn fastest(&self) -> u64 {
        self.fastest
    }

    /// Returns the round-trip time of a full packet of `full` bytes on the longest path, in picoseconds: the
    /// propagation delay both ways, and the time to send the packet on each link at the highest rate of a
    /// host. The transmission time of the acknowledgement is left out.
    pub fn round_trip(&self, full: u32) -> u64 {
        2 * self.longest_delay + self.most_links as u64 * transmission(u64::from(full), self.fastest)
    }

    /// Returns the bandwidth-delay product of a path in bytes, as HPCC's programs compute it: twice the
    /// propagation delay plus the time of one payload on each link, in whole nanoseconds, times the rate of
    /// the slowest link.
    pub fn product(&self, source: u32, destination: u32, payload: u32) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let path = self.of(source, destination);
        let delay: u64 = path.iter().map(|link| link.delay / Picos::NANOSECOND).sum();
        let ns = |link: &Link| (u128::from(payload) * 8 * SECOND / u128::from(link.rate.max(1))) as u64;
        let round_trip = 2 * delay + path.iter().map(ns).sum::<u64>();
        let slowest = path.iter().map(|link| link.rate).min().unwrap_or(0);
        (u128::from(round_trip) * u128::from(slowest) / SECOND / 8) as u64
    }

    /// Returns the largest [`Paths::product`] between two hosts.
    pub fn window(&self, payload: u32) -> u32 {
        let pairs = self.pairs().map(|(source, destination)| self.product(source, destination, payload));
        u32::try_from(pairs.max().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Returns ordered pairs of hosts: all of them in a network with few hosts, and those of a sample of
    /// sources in a large one.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let hosts = || self.topology.hosts();
        let step = hosts().count().div_ceil(SOUGHT_FROM).max(1);
        let destinations = move |source| {
            hosts().filter(move |host| *host != source).map(move |destination| (source, destination))
        };
        self.topology.hosts().step_by(step).flat_map(destinations)
    }

    /// Returns the links of a shortest path between two nodes, always by the first of several ports. Empty if
    /// there is no path.
    pub fn of(&self, source: u32, destination: u32) -> Vec<Link> {
        let mut node = source;
        let mut links = Vec::new();
        while node != destination && links.len() < HOPS_MAX {
            let Some(port) = self.routes.ports(node, destination).first() else { return Vec::new() };
            let port = self.ports[node as usize][usize::from(*port)];
            links.push(self.topology.links[port.link as usize]);
            node = port.neighbour;
        }
        links
    }

    /// Packs the path from a host over its own switch and then the switches `above`, in the format of
    /// [`remora_fabric::network::path`].
    ///
    /// # Errors
    /// Fails if the switches are not on a shortest path.
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

    /// Returns the completion time of a flow on an idle path, in picoseconds, from its start until the sender
    /// has the last acknowledgement: all packets at the rate of the slowest link, the last packet stored and
    /// forwarded on each link, and the acknowledgement on the way back. `extra` bytes are added to each data
    /// packet.
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
        let mtu = u64::from(mtu);
        let size = size.max(1);
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
