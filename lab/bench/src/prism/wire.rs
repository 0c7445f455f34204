//! Round trips counted on the wire: the client's NIC records its frames, and each change from requests to
//! answers is a round trip.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::case::Case;
use super::client::Client;
use crate::median;
use crate::testbed::Testbed;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{Command, Extensions};

/// Extensions of the benchmark's connections.
pub(super) const PRISM: Extensions = Extensions { prism: true, strom: false };

/// Number of times that each operation is performed.
const TRIPS: usize = 32;
/// Payload of the marker frame between two operations.
const MARK: &[u8; 16] = b"between two ops.";

/// The kind and direction of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// The frame between two operations.
    Mark,
    Request,
    Answer,
}

/// Returns the median number of round trips of each case.
pub(crate) fn count(testbed: &Testbed) -> Result<Vec<(Case, f64)>> {
    let capture = Capture::new()?;
    {
        let peer = Peer::start(testbed)?;
        let end = End::with_extensions(&peer, testbed.port(), PRISM, Some(&capture.file))?;
        let mut client = Client::new(end, &peer)?;
        for case in Case::ALL {
            if case.is_call() {
                client.prepare()?;
            }
            peer.run(client.answering(case))?;
            for _ in 0..TRIPS {
                client.mark(MARK)?;
                client.trip(case)?;
            }
            peer.run(Command::Sleep)?;
        }
    }
    let frames = frames(&std::fs::read(&capture.file).context("the benchmark's own capture")?)?;
    let trips = round_trips(&frames);
    ensure!(trips.len() == Case::ALL.len() * TRIPS, "the capture lacks frames");
    let of_case = |trips: &[usize]| median(&trips.iter().map(|count| *count as f64).collect::<Vec<f64>>());
    Ok(Case::ALL.into_iter().zip(trips.chunks(TRIPS).map(of_case)).collect())
}

/// Returns for each part between two marks how often an answer followed a request, without the answer to the
/// mark.
fn round_trips(frames: &[Seen]) -> Vec<usize> {
    let marks = frames.split(|seen| *seen == Seen::Mark).skip(1);
    let turns =
        |frames: &[Seen]| frames.windows(2).filter(|pair| **pair == [Seen::Request, Seen::Answer]).count();
    marks.map(turns).collect()
}

/// Returns the frames of a pcapng file in order.
fn frames(file: &[u8]) -> Result<Vec<Seen>> {
    let mut rest = file;
    let mut seen = Vec::new();
    while let Some((block, behind)) = next_block(rest) {
        rest = behind;
        // An enhanced packet block. The last option before the end has the flags; 1 is inbound and 2
        // outbound.
        if block.first() == Some(&6) {
            let flags = block
                .len()
                .checked_sub(12)
                .and_then(|offset| block.get(offset))
                .context("the direction of a packet")?;
            seen.push(match flags & 3 {
                2 if block.windows(MARK.len()).any(|bytes| bytes == MARK) => Seen::Mark,
                2 => Seen::Request,
                _ => Seen::Answer,
            });
        }
    }
    ensure!(rest.is_empty(), "the capture ends in the middle of a block");
    Ok(seen)
}

fn next_block(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_le_bytes(*file.get(4..)?.first_chunk::<4>()?) as usize;
    if len < 12 { None } else { file.split_at_checked(len) }
}

/// A capture file in its own folder, which has a random name and can be written only by this user. Both are
/// removed when this value is dropped.
struct Capture {
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Capture {
    fn new() -> Result<Capture> {
        let folder = tempfile::Builder::new().prefix("remora-bench-prism-").tempdir()?;
        Ok(Capture { file: folder.path().join("frames.pcapng"), _folder: folder })
    }
}

#[cfg(test)]
mod tests {
    use super::Seen::{Answer, Mark, Request};
    use super::*;

    #[test]
    fn a_round_trip_is_answers_behind_requests() {
        let frames = [
            // The frames before the first mark.
            Request, Answer, //
            // A mark and its ACK, then a chain of three requests and their three answers.
            Mark, Answer, Request, Request, Request, Answer, Answer, Answer, //
            // Two READs, the second with two packets of answers.
            Mark, Answer, Request, Answer, Request, Answer, Answer, //
            // A call, and the ACK of its answer, which is not answered.
            Mark, Answer, Request, Answer, Answer, Request, //
            Mark, Answer,
        ];
        assert_eq!(round_trips(&frames), [1, 2, 1, 0]);
    }
}
