//! The opcodes of work queue entries.

/// Returns a set of opcodes below 64, as a mask with one bit per opcode.
const fn set(opcodes: &[WqeOpcode]) -> u64 {
    let mut set = 0;
    let mut index = 0;
    while index < opcodes.len() {
        set |= 1 << opcodes[index].0;
        index += 1;
    }
    set
}

/// The opcode of a WQE: the first byte of its header. Executing an unknown opcode fails with a local QP
/// operation error.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WqeOpcode(pub u8);

#[allow(missing_docs, reason = "the names are those of the work requests in `request.rs`")]
impl WqeOpcode {
    pub const NOP: WqeOpcode = WqeOpcode(0);
    pub const SEND: WqeOpcode = WqeOpcode(1);
    pub const SEND_IMM: WqeOpcode = WqeOpcode(2);
    pub const SEND_INV: WqeOpcode = WqeOpcode(3);
    pub const WRITE: WqeOpcode = WqeOpcode(4);
    pub const WRITE_IMM: WqeOpcode = WqeOpcode(5);
    pub const READ: WqeOpcode = WqeOpcode(6);
    pub const COMPARE_SWAP: WqeOpcode = WqeOpcode(7);
    pub const FETCH_ADD: WqeOpcode = WqeOpcode(8);
    pub const LOCAL_INV: WqeOpcode = WqeOpcode(9);
    pub const BIND_MW: WqeOpcode = WqeOpcode(10);
    pub const PRISM_READ: WqeOpcode = WqeOpcode(11);
    pub const PRISM_WRITE: WqeOpcode = WqeOpcode(12);
    pub const PRISM_COMPARE_SWAP: WqeOpcode = WqeOpcode(13);
    pub const PRISM_FETCH_ADD: WqeOpcode = WqeOpcode(14);
    pub const WAIT: WqeOpcode = WqeOpcode(15);
    pub const ENABLE: WqeOpcode = WqeOpcode(16);
    pub const MAX: WqeOpcode = WqeOpcode(17);
    pub const MIN: WqeOpcode = WqeOpcode(18);
    pub const BIT_AND: WqeOpcode = WqeOpcode(19);
    pub const BIT_OR: WqeOpcode = WqeOpcode(20);
    pub const BIT_XOR: WqeOpcode = WqeOpcode(21);
    pub const LOGICAL_AND: WqeOpcode = WqeOpcode(22);
    pub const LOGICAL_OR: WqeOpcode = WqeOpcode(23);
    pub const LOGICAL_XOR: WqeOpcode = WqeOpcode(24);
    pub const RPC: WqeOpcode = WqeOpcode(32);
    pub const RPC_WRITE: WqeOpcode = WqeOpcode(33);
    /// An answer of a local StRoM kernel; not valid in a queue.
    pub(crate) const ANSWER: WqeOpcode = WqeOpcode(63);

    /// Returns true if the opcode is in the mask `set`. Opcodes from 64 on are in no set.
    #[inline(always)]
    const fn is_in(self, set: u64) -> bool {
        self.0 < 64 && set >> self.0 & 1 != 0
    }

    /// Returns true if the request has a scatter/gather list of any length.
    #[inline]
    pub fn has_list(self) -> bool {
        const LISTS: u64 = set(&[
            WqeOpcode::SEND,
            WqeOpcode::SEND_IMM,
            WqeOpcode::SEND_INV,
            WqeOpcode::WRITE,
            WqeOpcode::WRITE_IMM,
            WqeOpcode::READ,
            WqeOpcode::RPC,
            WqeOpcode::RPC_WRITE,
        ]);
        self.is_in(LISTS)
    }

    /// Returns true for a request to a StRoM kernel of the peer's NIC.
    #[inline]
    pub fn is_strom(self) -> bool {
        self == WqeOpcode::RPC || self == WqeOpcode::RPC_WRITE
    }

    /// Returns true for the calculations: atomics that only a loopback queue pair executes.
    #[inline]
    pub fn is_calculation(self) -> bool {
        (WqeOpcode::MAX.0..=WqeOpcode::LOGICAL_XOR.0).contains(&self.0)
    }

    /// Returns true if the start of the request may depend on other work, such as earlier requests or another
    /// queue.
    #[inline]
    pub(crate) fn may_have_to_wait(self) -> bool {
        const WAITING: u64 =
            set(&[WqeOpcode::LOCAL_INV, WqeOpcode::BIND_MW, WqeOpcode::WAIT, WqeOpcode::ENABLE]);
        self.is_in(WAITING)
    }

    /// Returns true for PRISM operations, which take at least two slots.
    #[inline]
    pub fn is_prism(self) -> bool {
        (WqeOpcode::PRISM_READ.0..=WqeOpcode::PRISM_FETCH_ADD.0).contains(&self.0)
    }
}
