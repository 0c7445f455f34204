//! Which IPv4 identification explains a syndrome: linear algebra over GF(2), cached by frame length.

use super::tables;

/// The largest identification of a Remora NIC's frames. Frames of a train are numbered from 0, and no train
/// is longer than 128.
pub const MAX_UNKNOWN_ID: u16 = 127;

/// Bits of an identification up to [`MAX_UNKNOWN_ID`].
const SMALL: usize = 7;
/// Bits of any identification.
const ANY: usize = 16;

/// Lengths remembered. A train has one length, and an application few.
const ENTRIES: usize = 64;
/// Lengths remembered of frames with any identification: only strangers send them.
const ANY_ENTRIES: usize = 16;

/// The syndromes of one length, as a basis in which each vector has a bit that no other one has. It has as
/// many dimensions as the identification has bits that may be set.
#[derive(Copy, Clone, Debug)]
struct Span<const BITS: usize> {
    /// Bytes from BTH to before the ICRC; `u32::MAX`: none.
    transport_len: u32,
    /// The basis of the space of syndromes.
    vector: [u32; BITS],
    /// The bit of `vector[i]` that no other vector has.
    pivot: [u8; BITS],
    /// The identification whose syndrome `vector[i]` is.
    id: [u16; BITS],
}

impl<const BITS: usize> Span<BITS> {
    const EMPTY: Self = Span { transport_len: u32::MAX, vector: [0; BITS], pivot: [0; BITS], id: [0; BITS] };

    /// The reduced basis for a length.
    fn new(transport_len: usize) -> Self {
        let mut span = Span { transport_len: transport_len as u32, ..Self::EMPTY };
        // The bits of a byte are read lowest first, and the upper byte before the lower one. So each bit is
        // worth x times the one that is read behind it.
        let last = if BITS > 8 { 7 } else { BITS - 1 };
        let mut vector = tables::advance(tables::ip_id(1 << last), transport_len);
        for bit in (0..=last).rev().chain((8..BITS).rev()) {
            span.vector[bit] = vector;
            span.id[bit] = 1 << bit;
            vector = tables::times_x(vector);
        }
        for i in 0..BITS {
            // Neighbouring powers of x, fewer than 32, are independent: so no vector ever becomes zero.
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
            id ^= self.id[i] & chosen as u16;
        }
        (explained == syndrome).then_some(id)
    }
}

/// A cache of the ICRC differences of identifications, by frame length; 5 KiB, never grows. A length that is
/// not in it costs a microsecond once, or some of them where any identification is looked for.
#[derive(Clone, Debug)]
pub struct IdSpans {
    small: [Span<SMALL>; ENTRIES],
    any: [Span<ANY>; ANY_ENTRIES],
}

/// The entry of a length. Transport lengths are multiples of four.
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
    /// An empty cache.
    pub const fn new() -> IdSpans {
        IdSpans { small: [Span::EMPTY; ENTRIES], any: [Span::EMPTY; ANY_ENTRIES] }
    }

    /// The identification up to [`MAX_UNKNOWN_ID`] that explains `syndrome` in a frame of `transport_len`
    /// bytes.
    #[inline]
    pub(super) fn small_id(&mut self, syndrome: u32, transport_len: usize) -> Option<u16> {
        entry(&mut self.small, transport_len).id_of(syndrome)
    }

    /// The same for any identification.
    pub(super) fn any_id(&mut self, syndrome: u32, transport_len: usize) -> Option<u16> {
        entry(&mut self.any, transport_len).id_of(syndrome)
    }
}

impl Default for IdSpans {
    fn default() -> IdSpans {
        IdSpans::new()
    }
}
