//! The order in which items were used: a list through an array, so that nothing is allocated.

/// The number that stands for no node.
pub const NONE: u32 = u32::MAX;

#[derive(Copy, Clone)]
struct Link {
    newer: u32,
    older: u32,
}

/// Nodes from the one used last to the one not used for longest.
pub struct Lru {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    /// For nodes numbered below `nodes`; none is in it.
    pub fn new(nodes: u32) -> Lru {
        Lru { links: Vec::with_capacity(nodes as usize), newest: NONE, oldest: NONE }
    }

    /// The node that was not used for longest.
    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Puts in a node that is not in it, as the one used last.
    pub fn push(&mut self, node: u32) {
        let link = Link { newer: NONE, older: self.newest };
        // Numbers are given out one after the other: the array grows within the capacity it was made with.
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

    /// Takes out a node that is in it.
    pub fn remove(&mut self, node: u32) {
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

    /// Makes a node that is in it the one used last.
    pub fn touch(&mut self, node: u32) {
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
        let (mut lru, mut plain, mut random) = (Lru::new(16), Vec::new(), Random::new(1));
        (0..16).for_each(|node| {
            lru.push(node);
            plain.push(node);
        });
        for _ in 0..10_000 {
            let node = random.below(16) as u32;
            match plain.iter().position(|other| *other == node) {
                Some(at) if random.below(2) == 0 => {
                    plain.remove(at);
                    lru.remove(node);
                }
                Some(at) => {
                    plain.remove(at);
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
