//! A client of memcached's text protocol, with a time limit for every request.

use std::io::{Error, ErrorKind, Read, Result, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use remora_store::cache::LONGEST;

/// Maximum time for connecting, and for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum bytes of an answer in addition to its value.
const AROUND: usize = 1024;

/// A connection to a memcached server.
pub(crate) struct Memcached {
    stream: TcpStream,
    answer: Vec<u8>,
}

fn nonsense() -> Error {
    Error::new(ErrorKind::InvalidData, "an answer that is none of memcached's")
}

impl Memcached {
    /// Connects to a server.
    ///
    /// # Errors
    /// The connection is not established within five seconds.
    pub(crate) fn connect(address: SocketAddr) -> Result<Memcached> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Memcached { stream, answer: Vec::new() })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// No answer arrives within five seconds, or the answer is an error.
    pub(crate) fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        self.stream.write_all(format!("get {key}\r\n").as_bytes())?;
        let deadline = Instant::now() + PATIENCE;
        let line = self.line(deadline)?;
        let Some(head) = line.strip_prefix("VALUE ") else {
            return if line == "END" { Ok(None) } else { Err(Error::other(line)) };
        };
        let len = head.split_whitespace().nth(2).and_then(|len| len.parse().ok());
        let len: usize = len.filter(|len| *len <= LONGEST).ok_or_else(nonsense)?;
        while self.answer.len() < len + 2 {
            self.more(deadline)?;
        }
        let value = self.answer.drain(..len + 2).take(len).collect();
        match self.line(deadline)?.as_str() {
            "END" => Ok(Some(value)),
            _ => Err(nonsense()),
        }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// No answer arrives within five seconds, or the server refuses.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        self.stream.write_all(&[head.as_bytes(), value, b"\r\n"].concat())?;
        match self.line(Instant::now() + PATIENCE)?.as_str() {
            "STORED" => Ok(()),
            other => Err(Error::other(other)),
        }
    }

    /// Returns the next line, without its end.
    fn line(&mut self, deadline: Instant) -> Result<String> {
        loop {
            if let Some(end) = self.answer.windows(2).position(|two| two == b"\r\n") {
                let line = self.answer.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(|_| nonsense());
            }
            if self.answer.len() > AROUND {
                return Err(nonsense());
            }
            self.more(deadline)?;
        }
    }

    /// Reads more bytes before the deadline. A server that sends a byte now and then gets no more time than
    /// one that sends none.
    fn more(&mut self, deadline: Instant) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                self.answer.extend_from_slice(&piece[..got]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Starts a server that answers any request with these pieces, with a pause before each.
    fn answers(pieces: &'static [&'static [u8]], pause: Duration) -> Memcached {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Memcached::connect(listener.local_addr().unwrap()).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 100]);
            for piece in pieces {
                std::thread::sleep(pause);
                let _ = stream.write_all(piece);
            }
            // The client closes the connection first.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        client
    }

    #[test]
    fn answers_may_come_in_any_pieces() {
        let pieces: &[&[u8]] = &[b"VALUE key 0 ", b"7\r", b"\nva\r\nlue\r\nE", b"ND\r\n"];
        let pause = Duration::from_millis(2);
        assert_eq!(answers(pieces, pause).get("key").unwrap().as_deref(), Some(&b"va\r\nlue"[..]));
        assert_eq!(answers(&[b"END\r\n"], pause).get("key").unwrap(), None);
        answers(&[b"STORED\r\n"], pause).set("key", b"value").unwrap();
        const WRONG: [&[&[u8]]; 3] =
            [&[b"SERVER_ERROR busy\r\n"], &[&[b'x'; 2000]], &[b"VALUE key 0 99999999999\r\n"]];
        for wrong in WRONG {
            assert!(answers(wrong, pause).get("key").is_err());
        }
    }

    #[test]
    fn who_drips_an_answer_is_waited_for_no_longer_than_who_is_silent() {
        const DRIPPING: [&[u8]; 100] = [b"V"; 100];
        let started = Instant::now();
        let error = answers(&DRIPPING, Duration::from_millis(200)).get("key").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // The whole answer would have taken twenty seconds.
        assert!(started.elapsed() < Duration::from_secs(15));
    }
}
