//! One client: its socket, its session, and what is between them.

use std::io::{self, ErrorKind, Read as _, Write as _};

use remora_store::cache::{Cache, OUTPUT, Session};
use remora_transport::Instant;

use super::stream::Stream;

/// Bytes taken from a socket at a time; a session goes on with fewer.
const INPUT: usize = 16 << 10;

/// What a connection waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Another turn.
    Turn,
    /// Its socket, to become readable or writable.
    Socket,
    /// The end.
    Close,
}

/// A client.
pub struct Connection {
    pub stream: Stream,
    session: Session,
    input: Box<[u8]>,
    /// What of it the session has not taken.
    from: usize,
    to: usize,
    output: Vec<u8>,
    /// What of it has left.
    sent: usize,
    /// Does it wait for its turn already?
    pub queued: bool,
    /// Did the client say that nothing more comes?
    pub ended: bool,
    /// Which of those it is that had its number.
    pub serial: u64,
    /// When it last sent something or took an answer.
    pub active: Instant,
    /// Does a timer run because a line of it was refused?
    pub awaited: bool,
}

/// What reading brought.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Read {
    /// All that there was: more announces itself.
    Some,
    /// As much as fitted.
    Full,
    /// Nothing now.
    Nothing,
    /// Nothing ever.
    End,
}

impl Connection {
    pub fn new(stream: Stream, session: Session, serial: u64, now: Instant) -> Connection {
        let (input, output) = (vec![0; INPUT].into_boxed_slice(), Vec::with_capacity(OUTPUT));
        Connection {
            stream,
            session,
            input,
            from: 0,
            to: 0,
            output,
            sent: 0,
            queued: false,
            ended: false,
            serial,
            active: now,
            awaited: false,
        }
    }

    /// When it has something to do though nothing comes.
    pub fn wakes(&self) -> Option<Instant> {
        self.session.wakes()
    }

    /// Reads once, answers what can be answered, and sends: a bounded piece of work, so that all get their
    /// turn.
    pub fn turn(&mut self, cache: &mut Cache, now: Instant) -> io::Result<Wish> {
        let read = if self.session.is_closed() { Read::End } else { self.read()? };
        self.from += self.session.run(cache, now, &self.input[self.from..self.to], &mut self.output);
        if read == Read::End {
            self.session.end(&mut self.output);
        }
        if matches!(read, Read::Some | Read::Full) {
            self.active = now;
        }
        // Then there may be more to answer: the session waited for space.
        let crowded = self.output.len() > OUTPUT / 2;
        let (before, sent) = (self.output.len(), self.send()?);
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
            // Its end came together with these bytes and will not be announced again.
            Read::Some if self.ended => Wish::Turn,
            Read::Some | Read::Nothing => Wish::Socket,
            // What is left is no whole command.
            Read::End => Wish::Close,
        })
    }

    fn read(&mut self) -> io::Result<Read> {
        self.input.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.to == self.input.len() {
            return Ok(Read::Full);
        }
        match self.stream.read(&mut self.input[self.to..]) {
            Ok(0) => Ok(Read::End),
            Ok(bytes) => {
                self.to += bytes;
                Ok(if self.to == self.input.len() { Read::Full } else { Read::Some })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Read::Full),
            Err(error) => Err(error),
        }
    }

    /// Sends what there is; whether all of it left.
    fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Space for more answers: a value goes on where it stopped.
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

    /// Gives back what it took of the cache.
    pub fn close(self, cache: &mut Cache) {
        self.session.close(cache);
    }
}
