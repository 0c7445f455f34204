//! The checksum of self-verifying structures.

use crc_fast::CrcAlgorithm::Crc64Nvme;

/// CRC-64/NVME (polynomial 0xad93d23594c93659, reflected, initial value and final xor all ones).
///
/// Pilaf §4.2 uses a CRC64 and does not say which. This one has the fastest well-kept implementation and a
/// specification (NVM Express base specification 1.0d, 64b CRC). It does not map all-zero bytes to zero.
#[inline]
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::crc64;

    #[test]
    fn check_value_of_the_catalogue() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn zeros_are_not_valid_by_accident() {
        assert_ne!(crc64(&[0; 56]), 0);
    }
}
