//! By which ports a node reaches a host on a shortest path.

use std::collections::BTreeMap;

use super::{NodeKind, Port, Topology, TopologyError, limit};

/// Entries of the tables: nodes that choose, times groups of destinations. 256 MB of them.
const ENTRIES_MAX: u64 = 1 << 26;

/// A node that never chooses has no row in the tables.
const NONE: u32 = u32::MAX;

/// The next hops of each node towards each host. Hosts forward nothing. A switch has all ports on a shortest
/// path; a host with several links, those of them whose path has the highest rate at its slowest link.
///
/// Hosts whose only link leads to the same switch are one group, and the tables have one entry for each node
/// that chooses and each group. 1024 hosts at 128 ToRs below 320 switches take 320 x 128 entries of 4 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// For each node: its row in `entries`, or [`NONE`].
    row: Vec<u32>,
    /// For each node: its group as a destination, or [`NONE`] if nothing leads there.
    group: Vec<u32>,
    /// For each host of a group that shares a switch: that switch, and its port to the host.
    last: Vec<Option<Last>>,
    /// For each host that has one link, to a switch: its port.
    only: Vec<Option<u16>>,
    groups: usize,
    /// Row by row: which of `lists` an entry is.
    entries: Vec<u32>,
    /// Where each list of ports ends in `ports`; the first is empty.
    lists: Vec<u32>,
    ports: Vec<u16>,
}

/// The last hop to a host that has one link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Last {
    switch: u32,
    port: u16,
}

impl Routes {
    /// The routes over those links for which `is_up` says so.
    ///
    /// # Errors
    /// What [`Topology::check`] refuses, and tables beyond their bound.
    pub fn new(topology: &Topology, is_up: impl Fn(u32) -> bool) -> Result<Routes, TopologyError> {
        topology.check()?;
        let ports = topology.ports();
        let up: Vec<Vec<Hop>> = ports.iter().map(|ports| hops(topology, ports, &is_up)).collect();
        let nodes = topology.nodes.len();
        let (mut row, mut group) = (vec![NONE; nodes], vec![NONE; nodes]);
        let (mut last, mut only) = (vec![None; nodes], vec![None; nodes]);
        let (mut rows, mut sources) = (0, Vec::new());
        let mut of_switch = BTreeMap::new();
        for (node, kind) in (0u32..).zip(&topology.nodes) {
            let at = node as usize;
            match up[at][..] {
                [hop] if *kind == NodeKind::Host && !topology.is_host(hop.neighbour) => {
                    only[at] = Some(hop.port);
                    last[at] = ports[hop.neighbour as usize]
                        .iter()
                        .position(|port| port.link == hop.link)
                        .map(|port| Last { switch: hop.neighbour, port: port as u16 });
                    group[at] = *of_switch.entry(hop.neighbour).or_insert_with(|| {
                        sources.push(hop.neighbour);
                        sources.len() as u32 - 1
                    });
                }
                [] if *kind == NodeKind::Host => {}
                _ => {
                    row[at] = rows;
                    rows += 1;
                    if *kind == NodeKind::Host {
                        group[at] = sources.len() as u32;
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

    /// The ports of `node` that lie on a shortest path to `host`, by ascending number of the neighbour and
    /// then of the port. Empty: no path. `node` is a switch, or a host that sends.
    #[inline]
    pub fn ports(&self, node: u32, host: u32) -> &[u16] {
        let (node, host) = (node as usize, host as usize);
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

    /// Bytes that the tables take.
    pub fn memory(&self) -> usize {
        let nodes = self.row.len() * (4 + 4 + size_of::<Option<Last>>() + size_of::<Option<u16>>());
        nodes + 4 * (self.entries.len() + self.lists.len()) + 2 * self.ports.len()
    }

    /// One breadth-first search from each group.
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
                // A distance of 0 is the source itself, whose last hops are ports of their own.
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

/// A link that is up, seen from its node.
#[derive(Copy, Clone, Debug)]
struct Hop {
    neighbour: u32,
    port: u16,
    link: u32,
    /// Rate of the link, in bit/s.
    rate: u64,
}

/// The links of a node that are up, by neighbour and then by port.
fn hops(topology: &Topology, ports: &[Port], is_up: &impl Fn(u32) -> bool) -> Vec<Hop> {
    let numbered = (0u16..).zip(ports).filter(|(_, port)| is_up(port.link));
    let rate = |link: u32| topology.links[link as usize].rate;
    let hop =
        |(port, to): (u16, &Port)| Hop { neighbour: to.neighbour, port, link: to.link, rate: rate(to.link) };
    let mut hops: Vec<Hop> = numbered.map(hop).collect();
    hops.sort_by_key(|hop| (hop.neighbour, hop.port));
    hops
}

/// One breadth-first search, whose memory the next one uses.
struct Search {
    /// How many links each node is away from the source. [`NONE`]: no path.
    distance: Vec<u32>,
    /// The nodes with a path, the nearest first.
    order: Vec<u32>,
    /// For each of them: the rate of the slowest link of its widest shortest path, in bit/s.
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

    /// The links of a node, which is not the source, to nodes that are nearer to the source and forward to it
    /// or are the source.
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

    /// The ports of those of these links whose path has the highest rate.
    fn widest<'a>(&self, nearer: impl Iterator<Item = &'a Hop> + Clone) -> Vec<u16> {
        let highest = nearer.clone().map(|hop| self.rate_by(hop)).max();
        nearer.filter(|hop| Some(self.rate_by(hop)) == highest).map(|hop| hop.port).collect()
    }

    /// The rate of the slowest link from a link on.
    fn rate_by(&self, hop: &Hop) -> u64 {
        hop.rate.min(self.rate[hop.neighbour as usize])
    }
}
