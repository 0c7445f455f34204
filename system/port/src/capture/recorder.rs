//! Bounded buffers and the thread that writes them to the file, so that the data path never waits for a
//! disk.

use super::pcapng::{self, PacketDirection};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::threads::spawn_settled;

/// Size of one buffer in bytes: more than three of the longest frames.
const CHUNK_BYTES: usize = 256 << 10;

/// Number of buffers: 8 MiB between the data path and the disk.
const CHUNKS: usize = 32;

/// Nanoseconds after which a buffer is passed to the thread even if it is not full.
const LINGER_NS: u64 = 100_000_000;

/// The number of frames that were seen, and the number of those that are missing in the file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Frames that passed the port, recorded or not.
    pub seen: u64,
    /// Frames among them that are missing in the file, because the disk was too slow, or failed, or the
    /// file has reached its limit.
    pub dropped: u64,
}

/// Complete blocks of the file, and the number of packets in them.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    packets: u64,
}

/// Records frames on the data path; a thread writes them.
#[derive(Debug)]
pub(super) struct Recorder {
    current: Option<Chunk>,
    /// Time at which `current` was begun, by the caller's clock.
    since_ns: u64,
    last_ns: u64,
    full: Option<SyncSender<Chunk>>,
    spare: Receiver<Chunk>,
    writer: Option<JoinHandle<io::Result<()>>>,
    seen: u64,
    dropped: u64,
    /// Number of bytes that may still be recorded.
    left: u64,
    /// Number of packets that the thread could not write.
    lost: Arc<AtomicU64>,
}

impl Recorder {
    /// Begins a file of up to `limit` bytes for an interface of this name, with a description unless that
    /// is empty. The last block may exceed the limit.
    ///
    /// # Errors
    /// The error of writing the file's first bytes, or of starting the thread.
    pub(super) fn new<W: Write + Send + 'static>(
        mut file: W,
        interface: &str,
        description: &str,
        limit: u64,
    ) -> io::Result<Recorder> {
        let opening = pcapng::opening(interface, description);
        file.write_all(&opening)?;
        file.flush()?;
        let (full, filled) = sync_channel(CHUNKS);
        let (emptied, spare) = channel();
        for _ in 0..CHUNKS {
            let chunk = Chunk { bytes: Vec::with_capacity(CHUNK_BYTES), packets: 0 };
            // Cannot fail, because the receiving end exists in this function.
            let _ = emptied.send(chunk);
        }
        let lost = Arc::new(AtomicU64::new(0));
        let count = lost.clone();
        let body = move || write(file, &filled, &emptied, &count);
        let writer = spawn_settled("remora-capture".to_owned(), body)?;
        Ok(Recorder {
            current: None,
            since_ns: 0,
            last_ns: 0,
            full: Some(full),
            spare,
            writer: Some(writer),
            seen: 0,
            dropped: 0,
            left: limit.saturating_sub(opening.len() as u64),
            lost,
        })
    }

    /// Records a frame, which is given in pieces. The frame is dropped and counted if all buffers are with
    /// the writing thread, or if it would exceed the file's limit. After the first frame that exceeds the
    /// limit, none is recorded.
    pub(super) fn record(&mut self, time_ns: u64, direction: PacketDirection, pieces: &[&[u8]]) {
        self.seen += 1;
        self.last_ns = time_ns;
        let len = pcapng::packet_len(pieces.iter().map(|piece| piece.len()).sum());
        let Some(left) = self.left.checked_sub(len as u64) else {
            self.left = 0;
            self.dropped += 1;
            return;
        };
        let full = self.current.as_ref().is_some_and(|chunk| chunk.bytes.len() + len > CHUNK_BYTES);
        if full || time_ns.saturating_sub(self.since_ns) > LINGER_NS {
            self.hand_over();
        }
        if self.current.is_none() {
            self.current = self.spare.try_recv().ok();
            self.since_ns = time_ns;
        }
        match &mut self.current {
            Some(chunk) if len <= CHUNK_BYTES => {
                pcapng::packet(&mut chunk.bytes, time_ns, direction, pieces);
                chunk.packets += 1;
                self.left = left;
            }
            _ => self.dropped += 1,
        }
    }

    /// Passes the recorded frames to the thread.
    pub(super) fn hand_over(&mut self) {
        if let (Some(chunk), Some(full)) = (self.current.take(), &self.full) {
            let packets = chunk.packets;
            // The queue has space for all chunks, so sending fails only if the thread has ended.
            if full.try_send(chunk).is_err() {
                self.dropped += packets;
            }
        }
    }

    /// Returns whether there are recorded frames that were not passed to the thread yet.
    pub(super) fn has_unwritten(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn recorded(&self) -> Recorded {
        Recorded { seen: self.seen, dropped: self.dropped + self.lost.load(Ordering::Relaxed) }
    }

    /// Writes all recorded frames and closes the file.
    pub(super) fn finish(&mut self) -> io::Result<Recorded> {
        let Some(writer) = self.writer.take() else { return Ok(self.recorded()) };
        self.hand_over();
        // The thread ends after it has written all earlier chunks. The last block counts the frames lost
        // until then, so it is sent to the thread with these numbers.
        if let Some(full) = self.full.take() {
            let bytes = pcapng::closing(self.last_ns, self.seen, self.recorded().dropped);
            let _ = full.send(Chunk { bytes, packets: 0 });
        }
        let written = writer.join().map_err(|_| io::Error::other("the capture's thread panicked"))?;
        written.map(|()| self.recorded())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // A caller that needs the errors has called `finish` before.
        let _ = self.finish();
    }
}

/// Runs the writing thread: writes chunks until the recorder is dropped. After a failure it continues to
/// take chunks, so that buffers return and lost frames are counted.
fn write<W: Write>(
    mut file: W,
    filled: &Receiver<Chunk>,
    emptied: &Sender<Chunk>,
    lost: &AtomicU64,
) -> io::Result<()> {
    let mut outcome = Ok(());
    for mut chunk in filled {
        if outcome.is_ok() {
            outcome = file.write_all(&chunk.bytes).and_then(|()| file.flush());
        }
        if outcome.is_err() {
            lost.fetch_add(chunk.packets, Ordering::Relaxed);
        }
        chunk.bytes.clear();
        chunk.packets = 0;
        // Fails if the recorder is closing already.
        let _ = emptied.send(chunk);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A disk that blocks while its mutex is held, and keeps what was written.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<Vec<u8>>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_stands_still_costs_frames_and_never_time_and_they_are_counted() {
        let disk = Disk(Arc::new(Mutex::new(Vec::new())));
        let mut recorder = Recorder::new(disk.clone(), "test", "", u64::MAX).unwrap();
        let held = disk.0.lock().unwrap();
        let frame = [7; 4096];
        let fits = (CHUNKS * (CHUNK_BYTES / pcapng::packet_len(frame.len()))) as u64;
        for time in 0..fits + 500 {
            recorder.record(time, PacketDirection::In, &[&frame]);
        }
        assert_eq!(recorder.recorded(), Recorded { seen: fits + 500, dropped: 500 });
        drop(held);
        assert_eq!(recorder.finish().unwrap(), Recorded { seen: fits + 500, dropped: 500 });
        let file = disk.0.lock().unwrap();
        assert_eq!(packets(&file), fits as usize);
        assert!(
            file.windows(8).any(|bytes| bytes == 500u64.to_le_bytes()),
            "the file counts the frames that it lacks"
        );
    }

    #[test]
    fn a_disk_that_fails_is_told_and_what_it_lost_is_counted() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut recorder = Recorder::new(Full(1000), "test", "", u64::MAX).unwrap();
        for time in 0..100 {
            recorder.record(time, PacketDirection::Out, &[&[1; 100]]);
        }
        assert_eq!(recorder.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(recorder.recorded(), Recorded { seen: 100, dropped: 100 });
    }

    /// Regression: a flood of a stranger wrote 1.25 GB into a capture in ten seconds.
    #[test]
    fn a_capture_ends_at_its_limit_and_says_how_many_frames_it_lacks() {
        let disk = Disk(Arc::new(Mutex::new(Vec::new())));
        let limit = 20_000;
        let mut recorder = Recorder::new(disk.clone(), "test", "", limit).unwrap();
        for time in 0..1000 {
            // Small frames that would still fit are not recorded after one that did not fit.
            recorder.record(
                time,
                PacketDirection::In,
                &[&[1; 1000][..if time % 2 == 0 { 1000 } else { 10 }]],
            );
        }
        let Recorded { seen, dropped } = recorder.finish().unwrap();
        let file = disk.0.lock().unwrap();
        assert_eq!((seen, packets(&file) as u64), (1000, 1000 - dropped));
        let closing = pcapng::closing(999, seen, dropped).len();
        let len = file.len() - closing;
        assert!(len as u64 <= limit && len as u64 > limit - 1100, "{len} bytes");
        assert_eq!(file[len..], pcapng::closing(999, seen, dropped));
    }

    #[test]
    fn old_frames_do_not_wait_for_a_full_buffer() {
        let disk = Disk(Arc::new(Mutex::new(Vec::new())));
        let mut recorder = Recorder::new(disk.clone(), "test", "", u64::MAX).unwrap();
        recorder.record(0, PacketDirection::In, &[&[1; 64]]);
        recorder.record(LINGER_NS + 1, PacketDirection::In, &[&[2; 64]]);
        while packets(&disk.0.lock().unwrap()) == 0 {
            std::thread::yield_now();
        }
        assert!(recorder.has_unwritten());
    }

    fn packets(file: &[u8]) -> usize {
        let mut rest = file;
        let mut count = 0;
        while rest.len() >= 12 {
            count += usize::from(rest[0] == 6);
            rest = &rest[u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize..];
        }
        count
    }
}
