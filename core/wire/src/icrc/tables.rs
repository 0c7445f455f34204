//! CRC arithmetic: the contribution of a single field to the CRC state before the BTH.
//!
//! A state is a polynomial over GF(2) of degree less than 32, with the coefficient of x^0 in the highest bit
//! (the reflected form of CRC-32). Reading a byte XORs it into the state and multiplies the state by x^8
//! modulo the generator.

/// Generator polynomial of CRC-32, reflected, without the x^32 term.
const GENERATOR: u32 = 0xedb8_8320;

/// Returns the state multiplied by x.
pub(super) const fn times_x(state: u32) -> u32 {
    state >> 1 ^ if state & 1 == 0 { 0 } else { GENERATOR }
}

/// Returns the state divided by x. The division always exists, because the generator has a constant term.
const fn divided_by_x(state: u32) -> u32 {
    if state >> 31 == 0 { state << 1 } else { (state ^ GENERATOR) << 1 | 1 }
}

/// Returns the product of two polynomials modulo the generator.
const fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            sum ^= b;
        }
        b = times_x(b);
        bit >>= 1;
    }
    sum
}

/// x^(8 * 2^i), for every bit i of a length in bytes.
const BYTE_POWERS: [u32; 32] = {
    let mut powers = [0; 32];
    let mut power = 1 << (31 - 8);
    let mut i = 0;
    while i < 32 {
        powers[i] = power;
        power = product(power, power);
        i += 1;
    }
    powers
};

/// Returns the effect of a difference in the state after `bytes` more bytes.
pub(super) fn advance(mut state: u32, bytes: usize) -> u32 {
    for (i, power) in BYTE_POWERS.iter().enumerate() {
        if bytes >> i & 1 != 0 {
            state = product(*power, state);
        }
    }
    state
}

type Table = [u32; 256];

/// Returns the contribution of each byte value to the state `after` bytes later.
const fn contributions(after: usize) -> Table {
    let mut table = [0; 256];
    let mut bit = 0;
    while bit < 8 {
        let mut state = 1 << bit;
        let mut steps = 0;
        while steps < 8 * (after + 1) {
            state = times_x(state);
            steps += 1;
        }
        add_bit(&mut table, bit, state);
        bit += 1;
    }
    table
}

/// Adds `state` to each entry whose index has this bit set.
const fn add_bit(table: &mut Table, bit: u32, state: u32) {
    let mut value = 0;
    while value < 256 {
        if value >> bit & 1 != 0 {
            table[value] ^= state;
        }
        value += 1;
    }
}

/// Returns, for each value of BTH byte 4, the change of the state *before* the BTH that makes the byte count
/// as ones: the difference of the byte from ones, moved back by four bytes.
const fn masked() -> Table {
    let mut differences = [0; 256];
    let mut bit = 0;
    while bit < 8 {
        let mut state = 1 << bit;
        let mut steps = 0;
        while steps < 8 * 4 {
            state = divided_by_x(state);
            steps += 1;
        }
        add_bit(&mut differences, bit, state);
        bit += 1;
    }
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        table[value] = differences[value ^ 0xff];
        value += 1;
    }
    table
}

// The argument is the number of bytes between the byte and the BTH. IPv4: length at offsets 2 and 3,
// identification at 4 and 5, of 20 + 8 bytes.
static TOTAL_LEN_V4: [Table; 2] = [contributions(25), contributions(24)];
static IP_ID: [Table; 2] = [contributions(23), contributions(22)];
// IPv6: length at offsets 4 and 5 of 40 + 8 bytes.
static PAYLOAD_LEN_V6: [Table; 2] = [contributions(43), contributions(42)];
// UDP: length at offsets 4 and 5 of 8 bytes.
static UDP_LEN: [Table; 2] = [contributions(3), contributions(2)];
static MASKED: Table = masked();

#[inline]
fn word(tables: &[Table; 2], value: u16) -> u32 {
    let [high, low] = value.to_be_bytes();
    tables[0][usize::from(high)] ^ tables[1][usize::from(low)]
}

/// Returns the contribution of the IPv4 total length.
#[inline]
pub(super) fn total_len_v4(value: u16) -> u32 {
    word(&TOTAL_LEN_V4, value)
}

/// Returns the contribution of the IPv4 identification.
#[inline]
pub(super) fn ip_id(value: u16) -> u32 {
    word(&IP_ID, value)
}

/// Returns the contribution of the IPv6 payload length.
#[inline]
pub(super) fn payload_len_v6(value: u16) -> u32 {
    word(&PAYLOAD_LEN_V6, value)
}

/// Returns the contribution of the UDP length.
#[inline]
pub(super) fn udp_len(value: u16) -> u32 {
    word(&UDP_LEN, value)
}

/// Returns the change of the state that makes BTH byte 4 count as ones.
#[inline]
pub(super) fn masked_bth_byte(value: u8) -> u32 {
    MASKED[usize::from(value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_undoes_multiplication() {
        let mut state = 0x1234_5678;
        for _ in 0..100 {
            assert_eq!(divided_by_x(times_x(state)), state);
            state = times_x(state);
        }
    }

    /// Compares with another implementation: advancing the difference of two messages must give the
    /// difference of the messages extended by zero bytes.
    #[test]
    fn advance_is_zero_bytes_behind() {
        for zeros in [0, 1, 2, 3, 7, 8, 63, 64, 1000, 4096] {
            let crc = |first: u8| {
                let mut crc = crc32fast::Hasher::new();
                crc.update(&[first, 1, 2, 3]);
                crc.update(&vec![0; zeros]);
                crc.finalize()
            };
            let short = crc32fast::hash(&[0xaa, 1, 2, 3]) ^ crc32fast::hash(&[0x55, 1, 2, 3]);
            assert_eq!(advance(short, zeros), crc(0xaa) ^ crc(0x55), "{zeros} bytes");
        }
    }
}
