//! Calculations: atomic operations on 8 bytes beyond those of the InfiniBand specification, as some vendors
//! offer them (RedN, Table 3).

use remora_memory::{AccessError, Span};

use crate::wqe_opcode::WqeOpcode;

/// The function that computes the new value of the target from its old value and the operand. Both are
/// unsigned; the old value is returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Calculation {
    /// Maximum of target and operand.
    Max,
    /// Minimum of target and operand.
    Min,
    /// Bitwise AND of both operands.
    BitAnd,
    /// Bitwise OR of both operands.
    BitOr,
    /// Bitwise XOR of both operands.
    BitXor,
    /// 1 if both values are nonzero, else 0.
    LogicalAnd,
    /// 1 if at least one value is nonzero, else 0.
    LogicalOr,
    /// 1 if exactly one value is nonzero, else 0.
    LogicalXor,
}

impl Calculation {
    /// All calculations, in the order of their opcodes.
    pub const ALL: [Calculation; 8] = [
        Calculation::Max,
        Calculation::Min,
        Calculation::BitAnd,
        Calculation::BitOr,
        Calculation::BitXor,
        Calculation::LogicalAnd,
        Calculation::LogicalOr,
        Calculation::LogicalXor,
    ];

    /// Returns the opcode of the calculation.
    pub fn opcode(self) -> WqeOpcode {
        WqeOpcode(WqeOpcode::MAX.0 + self as u8)
    }

    /// Returns the calculation of an opcode; `None` for other opcodes.
    pub fn of(opcode: WqeOpcode) -> Option<Calculation> {
        opcode.is_calculation().then(|| Calculation::ALL[usize::from(opcode.0 - WqeOpcode::MAX.0)])
    }

    /// Returns the new value of the target.
    pub fn result(self, target: u64, operand: u64) -> u64 {
        match self {
            Calculation::Max => target.max(operand),
            Calculation::Min => target.min(operand),
            Calculation::BitAnd => target & operand,
            Calculation::BitOr => target | operand,
            Calculation::BitXor => target ^ operand,
            Calculation::LogicalAnd => u64::from(target != 0 && operand != 0),
            Calculation::LogicalOr => u64::from(target != 0 || operand != 0),
            Calculation::LogicalXor => u64::from((target != 0) != (operand != 0)),
        }
    }

    /// Applies the calculation to a word atomically and returns the old value.
    pub(crate) fn apply(self, word: &Span<'_>, operand: u64) -> Result<u64, AccessError> {
        let mut was = word.load64()?;
        loop {
            let current = word.compare_swap64(was, self.result(was, operand))?;
            if current == was {
                return Ok(was);
            }
            was = current;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_opcode_and_no_other_opcode_is_one() {
        for calculation in Calculation::ALL {
            assert_eq!(Calculation::of(calculation.opcode()), Some(calculation));
        }
        let others = (0..=u8::MAX).filter(|code| !(17..25).contains(code));
        assert!(others.into_iter().all(|code| Calculation::of(WqeOpcode(code)).is_none()));
    }

    #[test]
    fn results_are_unsigned() {
        let result = |calculation: Calculation| calculation.result(6, u64::MAX);
        let all = Calculation::ALL.map(result);
        assert_eq!(all, [u64::MAX, 6, 6, u64::MAX, u64::MAX - 6, 1, 1, 0]);
    }
}
