//! The parts of an object that are not values: the memory of a queue, and the code of kernels.
//!
//! The host hands a part to the NIC and gets its number, which the next command names. A command takes the
//! parts that it names, even if the NIC refuses the command.

use crate::config::NicError;
use crate::kernel::Kernel;
use crate::part_number::PartNumber;
use crate::ring::Ring;

/// Largest number of parts that no command has taken.
pub const MAX_PARTS: usize = 1 << 12;

/// A part of an object.
pub enum HandedPart {
    /// The memory of a queue.
    Ring(Ring),
    /// The code of a kernel, once for each lane.
    Kernels(Vec<Box<dyn Kernel>>),
}

impl From<Ring> for HandedPart {
    fn from(ring: Ring) -> HandedPart {
        HandedPart::Ring(ring)
    }
}

impl From<Vec<Box<dyn Kernel>>> for HandedPart {
    fn from(kernels: Vec<Box<dyn Kernel>>) -> HandedPart {
        HandedPart::Kernels(kernels)
    }
}

/// The parts that no command has taken yet.
#[derive(Default)]
pub(crate) struct HandedParts {
    waiting: Vec<(PartNumber, HandedPart)>,
    next: u32,
}

impl HandedParts {
    /// Adds a part. The oldest one is dropped if [`MAX_PARTS`] wait.
    pub(crate) fn add(&mut self, part: HandedPart) -> PartNumber {
        if self.waiting.len() == MAX_PARTS {
            self.waiting.remove(0);
        }
        let number = PartNumber(self.next);
        self.next = (self.next + 1) % PartNumber::NONE.0;
        self.waiting.push((number, part));
        number
    }

    fn take(&mut self, number: PartNumber) -> Result<HandedPart, NicError> {
        let place = self.waiting.iter().position(|(known, _)| *known == number).ok_or(NicError::NoPart)?;
        Ok(self.waiting.swap_remove(place).1)
    }

    /// Takes the memory of a queue.
    pub(crate) fn ring(&mut self, number: PartNumber) -> Result<Ring, NicError> {
        match self.take(number)? {
            HandedPart::Ring(ring) => Ok(ring),
            HandedPart::Kernels(_) => Err(NicError::NoPart),
        }
    }

    /// Takes the code of a kernel.
    pub(crate) fn kernels(&mut self, number: PartNumber) -> Result<Vec<Box<dyn Kernel>>, NicError> {
        match self.take(number)? {
            HandedPart::Kernels(kernels) => Ok(kernels),
            HandedPart::Ring(_) => Err(NicError::NoPart),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> HandedPart {
        Ring::heap(1).unwrap().into()
    }

    #[test]
    fn the_oldest_part_goes_if_too_many_wait() {
        let mut parts = HandedParts::default();
        let first = parts.add(ring());
        let second = parts.add(ring());
        for _ in 1..MAX_PARTS {
            parts.add(ring());
        }
        assert_eq!(parts.waiting.len(), MAX_PARTS);
        assert_eq!(parts.ring(first).err(), Some(NicError::NoPart));
        assert!(parts.ring(second).is_ok());
    }

    #[test]
    fn a_part_is_taken_once_and_also_by_a_command_that_wants_another_kind() {
        let mut parts = HandedParts::default();
        let number = parts.add(ring());
        assert!(parts.ring(number).is_ok());
        assert_eq!(parts.ring(number).err(), Some(NicError::NoPart));
        let number = parts.add(ring());
        assert_eq!(parts.kernels(number).err(), Some(NicError::NoPart));
        assert!(parts.waiting.is_empty());
    }
}
