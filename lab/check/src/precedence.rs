//! The order of transactions with its reasons: a directed graph that is kept transitively closed, so that a
//! cycle is detected with the edge that closes it.

use fixedbitset::FixedBitSet;
use petgraph::graph::{DiGraph, NodeIndex};

/// The reason why a transaction precedes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The second transaction read this value, which the first wrote (wr).
    Read { key: u64, value: u64 },
    /// The second transaction replaced the value that the first read (rw).
    Replaced { key: u64, read: Option<u64>, by: u64 },
    /// Both transactions wrote this key, and `reader`, which follows the first, read the value of the second
    /// (ww).
    Overwrote { key: u64, reader: usize },
    /// The first transaction returned before the second was invoked.
    Returned,
}

/// A cycle: each transaction with the reason why it precedes the next, and the last why it precedes the
/// first.
pub(crate) type Cycle = Vec<(usize, Reason)>;

/// The known part of the order of transactions.
#[derive(Clone)]
pub(crate) struct Precedence {
    /// Set of transactions after each transaction.
    after: Vec<FixedBitSet>,
    /// Edges added by `insert`.
    edges: Vec<(usize, usize, Reason)>,
    /// For each transaction, the first one that was invoked after it returned.
    next: Vec<usize>,
}

impl Precedence {
    /// Returns the order in which transaction `i` precedes all transactions from `next[i]` on. Transactions
    /// are numbered in the order of their invocations.
    pub(crate) fn new(next: Vec<usize>) -> Self {
        let all = next.len();
        let following = |&next: &usize| {
            let mut set = FixedBitSet::with_capacity(all);
            set.insert_range(next.min(all)..);
            set
        };
        Self { after: next.iter().map(following).collect(), edges: Vec::new(), next }
    }

    /// Returns true if `first` is known to precede `second`.
    pub(crate) fn holds(&self, first: usize, second: usize) -> bool {
        self.after[first].contains(second)
    }

    /// Adds an edge from `first` to `second`.
    ///
    /// # Errors
    /// The shortest cycle that the edge closes.
    pub(crate) fn insert(&mut self, first: usize, second: usize, because: Reason) -> Result<(), Cycle> {
        self.edges.push((first, second, because));
        if first == second || self.holds(second, first) {
            return Err(self.cycle(first, second, because));
        }
        if self.holds(first, second) {
            return Ok(());
        }
        let mut gained = self.after[second].clone();
        gained.insert(second);
        for earlier in 0..self.after.len() {
            let gains = (earlier == first || self.holds(earlier, first)) && !self.holds(earlier, second);
            if gains {
                self.after[earlier].union_with(&gained);
            }
        }
        Ok(())
    }

    /// Returns the cycle of the new edge and the shortest path back.
    fn cycle(&self, first: usize, second: usize, because: Reason) -> Cycle {
        let mut graph: DiGraph<(), Reason> = DiGraph::new();
        let nodes: Vec<NodeIndex> = self.after.iter().map(|_| graph.add_node(())).collect();
        // A read or a replaced value is a better explanation than time. `find_edge` returns the edge that
        // was added last, so these are added after the others.
        for (earlier, &next) in self.next.iter().enumerate() {
            for later in next..nodes.len() {
                graph.add_edge(nodes[earlier], nodes[later], Reason::Returned);
            }
        }
        for &(earlier, later, because) in &self.edges {
            graph.add_edge(nodes[earlier], nodes[later], because);
        }
        let start = nodes[second];
        let goal = nodes[first];
        let way = petgraph::algo::astar(&graph, start, |node| node == goal, |_| 1, |_| 0);
        let (_, way) = way.expect("the transitive closure contains a path back");
        let mut cycle = vec![(first, because)];
        for pair in way.windows(2) {
            let edge = graph.find_edge(pair[0], pair[1]).expect("a path consists of edges");
            cycle.push((pair[0].index(), graph[edge]));
        }
        cycle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Reason = Reason::Read { key: 0, value: 0 };

    fn concurrent(all: usize) -> Precedence {
        Precedence::new(vec![all; all])
    }

    #[test]
    fn what_follows_from_two_edges_holds() {
        let mut order = concurrent(4);
        order.insert(2, 1, READ).expect("no cycle");
        order.insert(3, 2, READ).expect("no cycle");
        order.insert(1, 0, READ).expect("no cycle");
        assert!(order.holds(3, 0) && order.holds(2, 0) && !order.holds(0, 3) && !order.holds(0, 0));
    }

    #[test]
    fn the_shortest_cycle_is_told_with_its_reasons() {
        let mut order = concurrent(5);
        for (first, second) in [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)] {
            order.insert(first, second, READ).expect("no cycle");
        }
        let back = Reason::Replaced { key: 9, read: None, by: 7 };
        let cycle = order.insert(4, 0, back).unwrap_err();
        assert_eq!(cycle, [(4, back), (0, READ), (3, READ)]);
    }

    #[test]
    fn returns_come_before_later_invocations() {
        // 0 returned before 2 was invoked; 1 overlaps both.
        let mut order = Precedence::new(vec![2, 3, 3]);
        assert!(order.holds(0, 2) && !order.holds(0, 1) && !order.holds(1, 2));
        order.insert(2, 1, READ).expect("no cycle");
        assert!(order.holds(0, 1));
        assert_eq!(order.insert(1, 0, READ).unwrap_err(), [(1, READ), (0, Reason::Returned), (2, READ)]);
    }

    #[test]
    fn nothing_comes_before_itself() {
        assert_eq!(concurrent(2).insert(1, 1, READ).unwrap_err(), [(1, READ)]);
    }
}
