//! Computes the IPv4 identification that explains an ICRC difference, by linear algebra over GF(2). Results
//! are cached by frame length.

use super::tables;

/// Largest identification that a Remora NIC uses. Frames of a train are numbered from 0, and no train is
/// longer than 128.
pub const MAX_UNKNOWN_ID: u16 = 127;

/// Number of bits of an identification up to [`MAX_UNKNOWN_ID`].
const SMALL: usize = 7;
/// Number of bits of any identification.
const ANY: usize = 16;

/// Number of cached lengths. A train has one length, and an application uses few.
const ENTRIES: usize = 64;
/// Number of cached lengths for arbitrary identifications, which only other implementations use.
const ANY_ENTRIES: usize = 16;

/// The space of differences for one frame length, as a basis in which each vector has a bit that no other
/// vector has. Its dimension is the number of identification bits.
#[derive(Copy, Clone, Debug)]
struct Span<const BITS: usize> {
    /// Bytes from the BTH up to the ICRC; `u32::MAX` marks an unused entry.
    transport_len: u32,
    /// Basis of the space.
    vector: [u32; BITS],
    /// Index of the bit of `vector[i]` that no other vector has.
    pivot: [u8; BITS],
    /// Identification whose difference is `vector[i]`.
    id: [u16; BITS],
}

impl<const BITS: usize> Span<BITS> {
    const EMPTY: Self = Span { transport_len: u32::MAX, vector: [0; BITS], pivot: [0; BITS], id: [0; BITS] };

    /// Returns the reduced basis for a length.
    fn new(transport_len: usize) -> Self {
        let mut span = Span { transport_len: transport_len as u32, ..Self::EMPTY };
        // The CRC reads the bits of a byte lowest first, and the upper byte before the lower one. Each bit
        // therefore contributes x times the contribution of the bit that is read after it.
        let last = if BITS > 8 { 7 } else { BITS - 1 };
        let mut vector = tables::advance(tables::ip_id(1 << last), transport_len);
        for bit in (0..=last).rev().chain((8..BITS).rev()) {
            span.vector[bit] = vector;
            span.id[bit] = 1 << bit;
            vector = tables::times_x(vector);
        }
        for i in 0..BITS {
            // Up to 32 consecutive powers of x are linearly independent, so no vector becomes zero.
            let pivot = span.vector[i].trailing_zeros();
            span.pivot[i] = pivot as u8;
            for other in 0..BITS {
                if other != i && span.vector[other] >> pivot & 1 != 0 {
                    span.vector[other] ^= span.vector[i];
                    span.id[other] ^= span.id[i];
                }
            }
        }
        span
    }

    /// Returns the identification with this difference, or `None` if the space does not contain it.
    #[inline]
    fn id_of(&self, syndrome: u32) -> Option<u16> {
        let mut explained = 0;
        let mut id = 0;
        for i in 0..BITS {
            let chosen = (syndrome >> self.pivot[i] & 1).wrapping_neg();
            explained ^= self.vector[i] & chosen;
            id ^= self.id[i] & chosen as u16;
        }
        (explained == syndrome).then_some(id)
    }
}

/// A cache of the ICRC differences of identifications by frame length, of fixed size (5 KiB). A miss costs
/// one microsecond, or several for arbitrary identifications.
#[derive(Clone, Debug)]
pub struct IdSpans {
    small: [Span<SMALL>; ENTRIES],
    any: [Span<ANY>; ANY_ENTRIES],
}

/// Returns the entry of a length. Transport lengths are multiples of four.
#[inline]
fn entry<const BITS: usize>(entries: &mut [Span<BITS>], transport_len: usize) -> &Span<BITS> {
    let place = transport_len / 4 % entries.len();
    let entry = &mut entries[place];
    if entry.transport_len != transport_len as u32 {
        *entry = Span::new(transport_len);
    }
    entry
}

impl IdSpans {
    /// Returns an empty cache.
    pub const fn new() -> IdSpans {
        IdSpans { small: [Span::EMPTY; ENTRIES], any: [Span::EMPTY; ANY_ENTRIES] }
    }

    /// Returns the identification, at most [`MAX_UNKNOWN_ID`], that explains the difference `syndrome` in a
    /// frame of `transport_len` bytes.
    #[inline]
    pub(super) fn small_id(&mut self, syndrome: u32, transport_len: usize) -> Option<u16> {
        entry(&mut self.small, transport_len).id_of(syndrome)
    }

    /// Returns the identification, of any value, that explains the difference `syndrome` in a frame of
    /// `transport_len` bytes.
    pub(super) fn any_id(&mut self, syndrome: u32, transport_len: usize) -> Option<u16> {
        entry(&mut self.any, transport_len).id_of(syndrome)
    }
}

impl Default for IdSpans {
    fn default() -> IdSpans {
        IdSpans::new()
    }
}
