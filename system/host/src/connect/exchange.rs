//! Set-up messages over a TCP connection: sent and awaited within a deadline, or read without blocking.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::ConnectError;
use super::deadline::Deadline;
use super::error::Stage;
use super::message::{HEAD, Head, Message};

/// Reads a message from a non-blocking connection as its bytes arrive. Reads no byte beyond the message.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    head: Option<Head>,
}

impl Reader {
    /// Reads the bytes that are available. Returns `None` while the message is incomplete.
    ///
    /// # Errors
    /// [`ConnectError`] if the bytes are not a message, or the other side hung up.
    pub(crate) fn read(&mut self, stream: &mut impl Read) -> Result<Option<Message>, ConnectError> {
        loop {
            let start = self.bytes.len();
            let want = HEAD + self.head.as_ref().map_or(0, |head| head.len);
            if start == want {
                match (&self.head, self.bytes.first_chunk()) {
                    (Some(head), _) => return Message::of(head.number, &self.bytes[HEAD..]).map(Some),
                    (None, head) => self.head = Some(Head::parse(head.ok_or(ConnectError::BadMessage)?)?),
                }
                continue;
            }
            self.bytes.resize(want, 0);
            let got = stream.read(&mut self.bytes[start..]);
            self.bytes.truncate(start + got.as_ref().copied().unwrap_or(0));
            match got {
                Ok(0) => return Err(ConnectError::Closed(Stage::Request)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error, Stage::Request)),
            }
        }
    }
}

/// Sends a message.
pub(super) fn write(
    stream: &mut TcpStream,
    message: &Message,
    deadline: Deadline,
) -> Result<(), ConnectError> {
    let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Connecting))?;
    stream.set_write_timeout(Some(left)).map_err(ConnectError::Tcp)?;
    stream.write_all(&message.emit()).map_err(|error| failed(error, Stage::Connecting))
}

/// Waits for a message. Reads no byte beyond it.
pub(super) fn read(
    stream: &mut TcpStream,
    deadline: Deadline,
    stage: Stage,
) -> Result<Message, ConnectError> {
    let mut head = [0; HEAD];
    fill(stream, &mut head, deadline, stage)?;
    let head = Head::parse(&head)?;
    let mut body = vec![0; head.len];
    fill(stream, &mut body, deadline, stage)?;
    Message::of(head.number, &body)
}

/// Fills the buffer like `read_exact`, but with one deadline for all bytes, however slowly they arrive.
fn fill(
    stream: &mut TcpStream,
    mut rest: &mut [u8],
    deadline: Deadline,
    stage: Stage,
) -> Result<(), ConnectError> {
    while !rest.is_empty() {
        let left = deadline.left().ok_or(ConnectError::Timeout(stage))?;
        stream.set_read_timeout(Some(left)).map_err(ConnectError::Tcp)?;
        match stream.read(rest) {
            Ok(0) => return Err(ConnectError::Closed(stage)),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error, stage)),
        }
    }
    Ok(())
}

fn failed(error: std::io::Error, stage: Stage) -> ConnectError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ConnectError::Timeout(stage),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ConnectError::Closed(stage),
        _ => ConnectError::Tcp(error),
    }
}
