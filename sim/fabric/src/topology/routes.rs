//! Shortest-path routes: the ports by which a node reaches each host.

use std::collections::BTreeMap;

use super::{NodeKind, Port, Topology, TopologyError, limit};

/// Largest number of table entries (forwarding nodes times groups of destinations); they take 256 MB.
const ENTRIES_MAX: u64 = 1 << 26;

/// Marks a node without a row or group.
const NONE: u32 = u32::MAX;

/// The next hops of each node towards each host. Hosts do not forward. A switch uses all ports on shortest
/// paths. A host with several links uses, among these, the ports whose path has the highest rate on its
/// slowest link.
///
/// Hosts with a single link to the same switch form a group, and the tables have an entry for each pair of a
/// choosing node and a group. For 1024 hosts at 128 ToRs of 320 switches, that is 320 x 128 entries of 4
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// For each node: its row in `entries`, or [`NONE`] if it never chooses.
    row: Vec<u32>,
    /// For each node: its group as a destination, or [`NONE`] if no path leads to it.
    group: Vec<u32>,
    /// For each host in a group of a switch: this switch, and its port to the host.
    last: Vec<Option<Last>>,
    /// For each host with a single link, to a switch: the port of this link.
    only: Vec<Option<u16>>,
    groups: usize,
    /// Indices of `lists`, row by row.
    entries: Vec<u32>,
    /// End of each list of ports in `ports`. The first list is empty.
    lists: Vec<u32>,
    ports: Vec<u16>,
}

/// The last hop to a host that has a single link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Last {
    switch: u32,
    port: u16,
}

impl Routes {
    /// Computes the routes over the links for which `is_up` returns true.
    ///
    /// # Errors
    /// Fails if [`Topology::check`] rejects the topology, or if the tables would be too large.
    pub fn new(topology: &Topology, is_up: impl Fn(u32) -> bool) -> Result<Routes, TopologyError> {
        topology.check()?;
        let ports = topology.ports();
        let up: Vec<Vec<Hop>> = ports.iter().map(|ports| hops(topology, ports, &is_up)).collect();
        let nodes = topology.nodes.len();
        let mut row = vec![NONE; nodes];
        let mut group = vec![NONE; nodes];
        let mut last = vec![None; nodes];
        let mut only = vec![None; nodes];
        let mut rows = 0;
        let mut sources = Vec::new();
        let mut of_switch = BTreeMap::new();
        for (node, kind) in (0u32..).zip(&topology.nodes) {
            let index = node as usize;
            match up[index][..] {
                [hop] if *kind == NodeKind::Host && !topology.is_host(hop.neighbour) => {
                    only[index] = Some(hop.port);
                    last[index] = ports[hop.neighbour as usize]
                        .iter()
                        .position(|port| port.link == hop.link)
                        .map(|port| Last { switch: hop.neighbour, port: port as u16 });
                    group[index] = *of_switch.entry(hop.neighbour).or_insert_with(|| {
                        sources.push(hop.neighbour);
                        sources.len() as u32 - 1
                    });
                }
                [] if *kind == NodeKind::Host => {}
                _ => {
                    row[index] = rows;
                    rows += 1;
                    if *kind == NodeKind::Host {
                        group[index] = sources.len() as u32;
                        sources.push(node);
                    }
                }
            }
        }
        limit("entries of the routes", u64::from(rows) * sources.len() as u64, ENTRIES_MAX)?;
        let groups = sources.len();
        let entries = vec![0; rows as usize * groups];
        let mut routes =
            Routes { row, group, last, only, groups, entries, lists: vec![0], ports: Vec::new() };
        routes.fill(topology, &up, &sources);
        Ok(routes)
    }

    /// Returns the ports of `node` on shortest paths to `host`, ordered by the node number of the neighbour
    /// and then by port. Empty if there is no path. `node` must be a switch, or a host that sends.
    #[inline]
    pub fn ports(&self, node: u32, host: u32) -> &[u16] {
        let node = node as usize;
        let host = host as usize;
        if let Some(port) = &self.only[node] {
            return if self.group[host] == NONE { &[] } else { std::slice::from_ref(port) };
        }
        if let Some(last) = &self.last[host]
            && last.switch as usize == node
        {
            return std::slice::from_ref(&last.port);
        }
        if self.row[node] == NONE || self.group[host] == NONE {
            return &[];
        }
        let entry = self.row[node] as usize * self.groups + self.group[host] as usize;
        let list = self.entries[entry] as usize;
        let start = if list == 0 { 0 } else { self.lists[list - 1] };
        &self.ports[start as usize..self.lists[list] as usize]
    }

    /// Returns the size of the tables in bytes.
    pub fn memory(&self) -> usize {
        let nodes = self.row.len() * (4 + 4 + size_of::<Option<Last>>() + size_of::<Option<u16>>());
        nodes + 4 * (self.entries.len() + self.lists.len()) + 2 * self.ports.len()
    }

    /// Fills the tables by a breadth-first search from each group.
    fn fill(&mut self, topology: &Topology, up: &[Vec<Hop>], sources: &[u32]) {
        let mut known = BTreeMap::from([(Vec::new(), 0)]);
        let mut search = Search::new(up.len());
        let hosts_choose = (0u32..).zip(&self.row).any(|(node, row)| *row != NONE && topology.is_host(node));
        for (group, &source) in sources.iter().enumerate() {
            search.distances(topology, up, source);
            if hosts_choose {
                search.rates(topology, up);
            }
            let distance = &search.distance;
            for (node, hops) in up.iter().enumerate() {
                // Distance 0 is the source itself, whose ports to its hosts are in `last`.
                if self.row[node] == NONE || distance[node] == NONE || distance[node] == 0 {
                    continue;
                }
                let nearer = search.nearer(topology, node, hops);
                let list: Vec<u16> = match hosts_choose && topology.is_host(node as u32) {
                    true => search.widest(nearer),
                    false => nearer.map(|hop| hop.port).collect(),
                };
                let number = *known.entry(list).or_insert_with_key(|list| {
                    self.ports.extend_from_slice(list);
                    self.lists.push(self.ports.len() as u32);
                    self.lists.len() as u32 - 1
                });
                self.entries[self.row[node] as usize * self.groups + group] = number;
            }
        }
    }
}

/// A link that is up, seen from one of its nodes.
#[derive(Copy, Clone, Debug)]
struct Hop {
    neighbour: u32,
    port: u16,
    link: u32,
    /// Rate of the link, in bit/s.
    rate: u64,
}

/// Returns the links of a node that are up, ordered by neighbour and then by port.
fn hops(topology: &Topology, ports: &[Port], is_up: &impl Fn(u32) -> bool) -> Vec<Hop> {
    let numbered = (0u16..).zip(ports).filter(|(_, port)| is_up(port.link));
    let rate = |link: u32| topology.links[link as usize].rate;
    let hop = |(number, port): (u16, &Port)| Hop {
        neighbour: port.neighbour,
        port: number,
        link: port.link,
        rate: rate(port.link),
    };
    let mut hops: Vec<Hop> = numbered.map(hop).collect();
    hops.sort_by_key(|hop| (hop.neighbour, hop.port));
    hops
}

/// A breadth-first search, whose memory is reused by the next one.
struct Search {
    /// Distance of each node from the source in links, or [`NONE`] without a path.
    distance: Vec<u32>,
    /// Nodes with a path, nearest first.
    order: Vec<u32>,
    /// For each node in `order`: rate of the slowest link of its widest shortest path, in bit/s.
    rate: Vec<u64>,
}

impl Search {
    fn new(nodes: usize) -> Search {
        Search { distance: vec![NONE; nodes], order: Vec::with_capacity(nodes), rate: vec![0; nodes] }
    }

    fn distances(&mut self, topology: &Topology, up: &[Vec<Hop>], source: u32) {
        self.distance.fill(NONE);
        self.distance[source as usize] = 0;
        self.order.clear();
        self.order.push(source);
        let mut searched = 0;
        while let Some(&node) = self.order.get(searched) {
            searched += 1;
            if node != source && topology.is_host(node) {
                continue;
            }
            let next = self.distance[node as usize] + 1;
            for hop in &up[node as usize] {
                let there = &mut self.distance[hop.neighbour as usize];
                if *there == NONE {
                    *there = next;
                    self.order.push(hop.neighbour);
                }
            }
        }
    }

    fn rates(&mut self, topology: &Topology, up: &[Vec<Hop>]) {
        let Some(source) = self.order.first() else { return };
        self.rate[*source as usize] = u64::MAX;
        for place in 1..self.order.len() {
            let node = self.order[place] as usize;
            let rates = self.nearer(topology, node, &up[node]).map(|hop| self.rate_by(hop));
            self.rate[node] = rates.max().unwrap_or(0);
        }
    }

    /// Returns the links of `node` to nodes that are nearer to the source and can forward to it. `node` must
    /// not be the source.
    #[inline]
    fn nearer<'a>(
        &'a self,
        topology: &'a Topology,
        node: usize,
        hops: &'a [Hop],
    ) -> impl Iterator<Item = &'a Hop> + Clone {
        let next = self.distance[node] - 1;
        let leads = move |hop: &&Hop| {
            self.distance[hop.neighbour as usize] == next && (next == 0 || !topology.is_host(hop.neighbour))
        };
        hops.iter().filter(leads)
    }

    /// Returns the ports of those links whose path has the highest rate.
    fn widest<'a>(&self, nearer: impl Iterator<Item = &'a Hop> + Clone) -> Vec<u16> {
        let highest = nearer.clone().map(|hop| self.rate_by(hop)).max();
        nearer.filter(|hop| Some(self.rate_by(hop)) == highest).map(|hop| hop.port).collect()
    }

    /// Returns the rate of the slowest link on the path that begins with this link.
    fn rate_by(&self, hop: &Hop) -> u64 {
        hop.rate.min(self.rate[hop.neighbour as usize])
    }
}
