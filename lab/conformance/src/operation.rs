//! A random work request and its effect on the model.

use remora_nic::CompletionKind;

use remora_fault::Random;

/// The verb of a work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of `remora_nic::Operation`")]
pub enum Verb {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    LocalInv,
    Nop,
}

impl Verb {
    /// All verbs of the test.
    pub const ALL: [Verb; 10] = [
        Verb::Send,
        Verb::SendImm,
        Verb::SendInv,
        Verb::Write,
        Verb::WriteImm,
        Verb::Read,
        Verb::CompareSwap,
        Verb::FetchAdd,
        Verb::LocalInv,
        Verb::Nop,
    ];

    /// Returns the kind of the completion.
    pub fn completion(self) -> CompletionKind {
        match self {
            Verb::Send | Verb::SendImm | Verb::SendInv => CompletionKind::Send,
            Verb::Write | Verb::WriteImm => CompletionKind::Write,
            Verb::Read => CompletionKind::Read,
            Verb::CompareSwap => CompletionKind::CompareSwap,
            Verb::FetchAdd => CompletionKind::FetchAdd,
            Verb::LocalInv => CompletionKind::LocalInv,
            Verb::Nop => CompletionKind::Nop,
        }
    }

    /// Returns true if the verb uses a receive work request at the peer.
    pub fn takes_receive(self) -> bool {
        matches!(self, Verb::Send | Verb::SendImm | Verb::SendInv | Verb::WriteImm)
    }

    /// Returns true if the data goes to a receive work request.
    pub fn is_send(self) -> bool {
        matches!(self, Verb::Send | Verb::SendImm | Verb::SendInv)
    }

    /// Returns true for the two atomics.
    pub fn is_atomic(self) -> bool {
        matches!(self, Verb::CompareSwap | Verb::FetchAdd)
    }

    /// Returns true if the verb changes memory of the peer at a given address.
    pub fn changes_target(self) -> bool {
        matches!(self, Verb::Write | Verb::WriteImm) || self.is_atomic()
    }

    /// Returns a weighted random verb: invalidations are rare, all others about equally frequent.
    pub fn random(random: &mut Random) -> Verb {
        match random.below(100) {
            0..18 => Verb::Write,
            18..36 => Verb::Read,
            36..50 => Verb::Send,
            50..58 => Verb::SendImm,
            58..68 => Verb::WriteImm,
            68..80 => Verb::FetchAdd,
            80..92 => Verb::CompareSwap,
            92..97 => Verb::Nop,
            97 => Verb::SendInv,
            98 => Verb::LocalInv,
            _ => Verb::Write,
        }
    }
}

/// A work request of the test.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub verb: Verb,
    /// Seed of the data for [`bytes_of`].
    pub seed: u64,
    pub len: usize,
    /// Offset in the peer's target.
    pub offset: usize,
    /// Offset in the local arena.
    pub local: usize,
    /// Head of the arena's ring after this request.
    pub arena_end: u64,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    pub inline: bool,
    /// Expected bytes of a READ, or old value of an atomic.
    pub expected: Vec<u8>,
    /// Operands of an atomic.
    pub compare: u64,
    pub operand: u64,
    pub imm: u32,
    /// Key to invalidate.
    pub key: remora_memory::Key,
    /// True if this request causes the planned error.
    pub is_trouble: bool,
}

/// Returns the pseudorandom bytes of a seed.
pub(super) fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Returns a random message length for this path MTU, including lengths at packet boundaries.
pub(super) fn random_len(random: &mut Random, mtu: usize, most: usize) -> usize {
    let len = match random.below(16) {
        0 => 0,
        1 => 1,
        2 => mtu - 1,
        3 => mtu,
        4 => mtu + 1,
        5 => 2 * mtu,
        6 => 3 * mtu - 1,
        7..9 => random.below(4 * mtu as u64) as usize,
        9 => 8,
        _ => random.below(200) as usize,
    };
    len.min(most)
}

impl Op {
    /// Applies the request to a model of the target.
    pub(crate) fn apply(&self, model: &mut [u8]) {
        match self.verb {
            Verb::Write | Verb::WriteImm => {
                model[self.offset..self.offset + self.len].copy_from_slice(&bytes_of(self.seed, self.len));
            }
            Verb::CompareSwap | Verb::FetchAdd => {
                let old = word(model, self.offset);
                let new = match self.verb {
                    Verb::FetchAdd => old.wrapping_add(self.operand),
                    _ if old == self.compare => self.operand,
                    _ => old,
                };
                model[self.offset..self.offset + 8].copy_from_slice(&new.to_ne_bytes());
            }
            _ => {}
        }
    }

    /// Returns the range of the target that the request reads or changes.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let touches = self.verb.changes_target() || self.verb == Verb::Read;
        self.offset..self.offset + if touches { self.len } else { 0 }
    }
}

/// Returns the word at `offset`, in native byte order.
pub(super) fn word(model: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&model[offset..offset + 8]);
    u64::from_ne_bytes(word)
}
