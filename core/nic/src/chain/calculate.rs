//! The calculations: atomics of 8 bytes beside those of the standard, as vendors have them (RedN, Table 3).

use remora_memory::{AccessError, Span};

use crate::wqe_opcode::WqeOpcode;

/// How the target and the operand make the new value. Both are unsigned; the old value is returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Calculation {
    /// The greater of both.
    Max,
    /// The lesser of both.
    Min,
    /// Bit by bit.
    BitAnd,
    /// Bit by bit.
    BitOr,
    /// Bit by bit.
    BitXor,
    /// 1 if both are not 0, else 0.
    LogicalAnd,
    /// 1 if one of them is not 0, else 0.
    LogicalOr,
    /// 1 if exactly one of them is not 0, else 0.
    LogicalXor,
}

impl Calculation {
    /// All of them, in the order of their op-codes.
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

    /// Its op-code.
    pub fn opcode(self) -> WqeOpcode {
        WqeOpcode(WqeOpcode::MAX.0 + self as u8)
    }

    /// The one of an op-code.
    pub fn of(opcode: WqeOpcode) -> Option<Calculation> {
        opcode.is_calculation().then(|| Calculation::ALL[usize::from(opcode.0 - WqeOpcode::MAX.0)])
    }

    /// What the target becomes.
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

    /// Does it to a word, as one step; the word as it was.
    pub(super) fn apply(self, word: &Span<'_>, operand: u64) -> Result<u64, AccessError> {
        let mut was = word.load64()?;
        loop {
            let found = word.compare_swap64(was, self.result(was, operand))?;
            if found == was {
                return Ok(was);
            }
            was = found;
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
        let of = |calculation: Calculation| calculation.result(6, u64::MAX);
        let all = Calculation::ALL.map(of);
        assert_eq!(all, [u64::MAX, 6, 6, u64::MAX, u64::MAX - 6, 1, 1, 0]);
    }
}
