//! The order in which items were used: a doubly linked list in an array, so that nothing is allocated.

/// The number that stands for no node.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Copy, Clone)]
struct Link {
    newer: u32,
    older: u32,
}

/// A list of nodes from the most to the least recently used.
pub(crate) struct Lru {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    /// Returns an empty list for nodes numbered below `nodes`.
    pub(crate) fn new(nodes: u32) -> Lru {
        Lru { links: Vec::with_capacity(nodes as usize), newest: NONE, oldest: NONE }
    }

    /// Returns the least recently used node.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Adds a node, which must not be in the list, as the most recently used.
    pub(crate) fn push(&mut self, node: u32) {
        let link = Link { newer: NONE, older: self.newest };
        // Numbers are assigned consecutively, so the array grows within its initial capacity.
        if node as usize == self.links.len() {
            self.links.push(link);
        } else {
            self.links[node as usize] = link;
        }
        match self.newest {
            NONE => self.oldest = node,
            newest => self.links[newest as usize].newer = node,
        }
        self.newest = node;
    }

    /// Removes a node, which must be in the list.
    pub(crate) fn remove(&mut self, node: u32) {
        let Link { newer, older } = self.links[node as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
    }

    /// Makes a node of the list the most recently used.
    pub(crate) fn touch(&mut self, node: u32) {
        if self.newest != node {
            self.remove(node);
            self.push(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_order_is_that_of_a_plain_list() {
        let mut lru = Lru::new(16);
        let mut plain = Vec::new();
        let mut random = Random::new(1);
        (0..16).for_each(|node| {
            lru.push(node);
            plain.push(node);
        });
        for _ in 0..10_000 {
            let node = random.below(16) as u32;
            match plain.iter().position(|other| *other == node) {
                Some(index) if random.below(2) == 0 => {
                    plain.remove(index);
                    lru.remove(node);
                }
                Some(index) => {
                    plain.remove(index);
                    plain.push(node);
                    lru.touch(node);
                }
                None => {
                    plain.push(node);
                    lru.push(node);
                }
            }
            assert_eq!(lru.oldest(), plain.first().copied());
        }
    }
}
