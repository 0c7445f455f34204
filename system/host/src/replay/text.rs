//! Frames and completions as text.

use remora_nic::cqe::Cqe;
use remora_nic::wqe::SLOT;
use remora_port::Start;
use remora_wire::{Qpn, packet};

use crate::recording::{Abridged, below_bth};

/// Returns a frame as text: op-code, PSN, lengths and destination.
pub(super) fn frame(start: Start, frame: &Abridged) -> String {
    let described = with_packet(start, frame, |view| {
        let psn = view.bth.psn().get();
        let payload = view.payload.len();
        let ack = view.aeth().map_or(String::new(), |aeth| format!(", {} MSN {}", aeth.syndrome, aeth.msn));
        let qp = view.bth.dest_qp();
        format!("{} PSN {psn}, {payload} bytes of payload{ack}, for queue pair {qp}", view.bth.opcode())
    });
    described.unwrap_or_else(|| format!("{} bytes that are no packet", frame.len))
}

/// Returns the queue pair that a frame is for.
pub(super) fn destination(start: Start, frame: &Abridged) -> Option<Qpn> {
    with_packet(start, frame, |view| view.bth.dest_qp())
}

fn with_packet<T>(start: Start, frame: &Abridged, describe: impl FnOnce(packet::View<'_>) -> T) -> Option<T> {
    let bytes = frame.bytes()?;
    let view = packet::View::new(bytes.get(below_bth(start, &bytes)?..)?).ok()?;
    Some(describe(view))
}

/// Returns two frames as text that differ.
pub(super) fn frames(start: Start, expected: &Abridged, found: &Abridged) -> [String; 2] {
    let texts = [expected, found].map(|one| frame(start, one));
    if texts[0] != texts[1] {
        return texts;
    }
    let place = expected.head.iter().zip(&found.head).position(|(one, other)| one != other);
    let place = place.unwrap_or_else(|| expected.head.len().min(found.head.len()));
    let byte =
        |frame: &Abridged| frame.head.get(place).map_or("none".to_owned(), |byte| format!("{byte:#04x}"));
    let [first, second] = texts;
    let add = |text: String, frame: &Abridged| format!("{text}, byte {place} of its headers {}", byte(frame));
    [add(first, expected), add(second, found)]
}

/// Completions of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Completions<'a> {
    pub cq: u32,
    pub first: u64,
    pub slots: &'a [u8],
}

impl Completions<'_> {
    fn slot(&self, place: usize) -> Option<&[u8; SLOT]> {
        self.slots.as_chunks::<SLOT>().0.get(place)
    }

    fn parsed(&self, place: usize) -> Option<Cqe> {
        let slot = self.slot(place)?;
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(slot.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(Cqe::parse(&words))
    }

    /// Returns the place of the first completion that differs; `None` if all are equal.
    pub(super) fn difference(&self, other: &Completions<'_>) -> Option<usize> {
        if (self.cq, self.first) != (other.cq, other.first) {
            return Some(0);
        }
        let most = self.slots.len().max(other.slots.len()) / SLOT;
        (0..most).find(|place| self.slot(*place) != other.slot(*place))
    }

    /// Returns the queue pair of a completion.
    pub(super) fn qp(&self, place: usize) -> Option<Qpn> {
        self.parsed(place).map(|cqe| Qpn::new(cqe.completion.qp_num))
    }

    /// Returns a completion as text.
    pub(super) fn text(&self, place: usize) -> String {
        let Some(Cqe { completion, wqe_index, .. }) = self.parsed(place) else { return "none".to_owned() };
        let number = self.first + place as u64 + 1;
        format!(
            "completion {number} of queue {}: id {:#x}, {:?}, {:?}, {} bytes, work queue index {wqe_index}",
            self.cq, completion.id, completion.kind, completion.status, completion.byte_len
        )
    }
}
