//! One memcached client: its socket, its session, and the buffers between them.

use std::io::{self, ErrorKind, Read as _, Write as _};

use remora_store::cache::{Cache, OUTPUT, Session};
use remora_transport::Instant;

use super::stream::Stream;

/// Bytes of the input buffer. A session needs fewer to make progress.
const INPUT: usize = 16 << 10;

/// The event that a connection waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// The connection needs another turn.
    Turn,
    /// The connection waits for its socket to become readable or writable.
    Socket,
    /// The connection must be closed.
    Close,
}

/// A connection of a client.
pub(crate) struct Connection {
    pub stream: Stream,
    session: Session,
    input: Box<[u8]>,
    /// Bounds of the bytes in `input` that the session has not consumed.
    start: usize,
    end: usize,
    output: Vec<u8>,
    /// Number of bytes of `output` that were sent.
    sent: usize,
    /// True if the connection is queued for its turn.
    pub queued: bool,
    /// True if the client has shut down its sending side.
    pub ended: bool,
    /// Serial number of the connection, so that a stale timer of the same slot is recognised.
    pub serial: u64,
    /// Time at which a byte was last received from the client or sent to it.
    pub active: Instant,
    /// True if a timer runs because a line of the client was refused.
    pub awaited: bool,
}

/// The result of reading from the socket.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Read {
    /// The socket was drained; epoll reports when more arrives.
    Some,
    /// The input buffer is full.
    Full,
    /// The socket has no data now.
    Nothing,
    /// The client has closed the connection.
    End,
}

impl Connection {
    pub(crate) fn new(stream: Stream, session: Session, serial: u64, now: Instant) -> Connection {
        let input = vec![0; INPUT].into_boxed_slice();
        let output = Vec::with_capacity(OUTPUT);
        Connection {
            stream,
            session,
            input,
            start: 0,
            end: 0,
            output,
            sent: 0,
            queued: false,
            ended: false,
            serial,
            active: now,
            awaited: false,
        }
    }

    /// Returns the time at which the session must be resumed without input.
    pub(crate) fn wakes(&self) -> Option<Instant> {
        self.session.wakes()
    }

    /// Reads once, answers what can be answered, and sends. The amount of work is bounded, so that all
    /// connections get their turn.
    pub(crate) fn turn(&mut self, cache: &mut Cache, now: Instant) -> io::Result<Wish> {
        let read = if self.session.is_closed() { Read::End } else { self.read()? };
        self.start += self.session.run(cache, now, &self.input[self.start..self.end], &mut self.output);
        if read == Read::End {
            self.session.end(&mut self.output);
        }
        if matches!(read, Read::Some | Read::Full) {
            self.active = now;
        }
        // The session may have stopped for lack of space, so there may be more to answer.
        let crowded = self.output.len() > OUTPUT / 2;
        let before = self.output.len();
        let sent = self.send()?;
        if self.output.len() < before {
            self.active = now;
        }
        if !sent {
            return Ok(Wish::Socket);
        }
        Ok(match read {
            _ if self.session.is_closed() => Wish::Close,
            _ if crowded || self.session.is_busy() => Wish::Turn,
            Read::Full => Wish::Turn,
            // The end of the input was reported together with these bytes and will not be reported once
            // more.
            Read::Some if self.ended => Wish::Turn,
            Read::Some | Read::Nothing => Wish::Socket,
            // The remaining bytes are no complete command.
            Read::End => Wish::Close,
        })
    }

    fn read(&mut self) -> io::Result<Read> {
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.input.len() {
            return Ok(Read::Full);
        }
        match self.stream.read(&mut self.input[self.end..]) {
            Ok(0) => Ok(Read::End),
            Ok(bytes) => {
                self.end += bytes;
                Ok(if self.end == self.input.len() { Read::Full } else { Read::Some })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Read::Full),
            Err(error) => Err(error),
        }
    }

    /// Sends the buffered output. Returns true if all of it was sent.
    fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Frees space for more answers, so that a value continues where it stopped.
                    self.output.drain(..self.sent);
                    self.sent = 0;
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Releases what the session holds of the cache.
    pub(crate) fn close(self, cache: &mut Cache) {
        self.session.close(cache);
    }
}
