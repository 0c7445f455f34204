//! Which IPv4 identification explains a syndrome: linear algebra over GF(2), cached by frame length.

use super::tables;

/// The largest identification that a receiver tries if it cannot see the number. Frames of a train are
/// numbered from 0, and no train is longer than 128.
pub const MAX_UNKNOWN_ID: u16 = 127;

/// Dimensions of the space of syndromes: bits of the identification that may be set.
const BITS: usize = 7;

/// Lengths remembered. A train has one length, and an application few.
const ENTRIES: usize = 64;

/// The syndromes of one length, as a basis in which each vector has a bit that no other one has.
#[derive(Copy, Clone, Debug)]
struct Span {
    /// Bytes from BTH to before the ICRC; `u32::MAX`: none.
    transport_len: u32,
    /// The basis of the space of syndromes.
    vector: [u32; BITS],
    /// The bit of `vector[i]` that no other vector has.
    pivot: [u8; BITS],
    /// The identification whose syndrome `vector[i]` is.
    id: [u8; BITS],
}

impl Span {
    const EMPTY: Span = Span { transport_len: u32::MAX, vector: [0; BITS], pivot: [0; BITS], id: [0; BITS] };

    /// The reduced basis for a length.
    fn new(transport_len: usize) -> Span {
        let mut span = Span { transport_len: transport_len as u32, ..Span::EMPTY };
        // The bits of a byte are read lowest first, so each bit is worth x times the next one.
        let mut vector = tables::advance(tables::ip_id(1 << (BITS - 1)), transport_len);
        for bit in (0..BITS).rev() {
            span.vector[bit] = vector;
            span.id[bit] = 1 << bit;
            vector = tables::times_x(vector);
        }
        for i in 0..BITS {
            // Seven neighbouring powers of x are independent below degree 32, so no vector ever becomes zero.
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

    /// The identification with this syndrome, if the span holds it.
    #[inline]
    fn id_of(&self, syndrome: u32) -> Option<u16> {
        let mut explained = 0;
        let mut id = 0;
        for i in 0..BITS {
            let chosen = (syndrome >> self.pivot[i] & 1).wrapping_neg();
            explained ^= self.vector[i] & chosen;
            id ^= self.id[i] & chosen as u8;
        }
        (explained == syndrome).then_some(u16::from(id))
    }
}

/// A cache of the ICRC differences of identifications below 128, by frame length; 3 KiB, never grows. A
/// length that is not in it costs about a microsecond once.
#[derive(Clone, Debug)]
pub struct IdSpans {
    entries: [Span; ENTRIES],
}

impl IdSpans {
    /// An empty cache.
    pub const fn new() -> IdSpans {
        IdSpans { entries: [Span::EMPTY; ENTRIES] }
    }

    /// The identification that explains `syndrome` in a frame of `transport_len` bytes.
    #[inline]
    pub(super) fn id_of(&mut self, syndrome: u32, transport_len: usize) -> Option<u16> {
        // Transport lengths are multiples of four.
        let entry = &mut self.entries[transport_len / 4 % ENTRIES];
        if entry.transport_len != transport_len as u32 {
            *entry = Span::new(transport_len);
        }
        entry.id_of(syndrome)
    }
}

impl Default for IdSpans {
    fn default() -> IdSpans {
        IdSpans::new()
    }
}
