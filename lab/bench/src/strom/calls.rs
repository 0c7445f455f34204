//! Calls over TCP, which are the paper's RPC: the server's program does the work of a kernel, with the same
//! parameters. Both ends poll, which is the fastest mode of TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};
use remora_verbs::MemoryRegion;
use remora_verbs::kernel::{Lookup, Slot, Walk};

use super::place::LONGEST;
use crate::testbed::page::{Page, Ticket};

/// The operation that a client calls.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    /// A walk through a list.
    Walk = 0,
    /// A GET from a hash table.
    Get = 1,
}

impl Call {
    /// Returns the call with this number.
    fn from_byte(byte: u8) -> Option<Call> {
        [Call::Walk, Call::Get].into_iter().find(|call| *call as u8 == byte)
    }
}

/// The length of the prefix of a request or an answer, which holds its length.
const HEAD: usize = 4;

/// The server's end of the calls.
pub(crate) struct Calls {
    listener: TcpListener,
    stream: Option<TcpStream>,
}

/// The client's end of the calls.
pub(crate) struct Caller {
    stream: TcpStream,
}

/// Fills `buffer` from a nonblocking stream. Returns false if waiting for the first byte was aborted.
fn fill(stream: &mut TcpStream, buffer: &mut [u8], mut go_on: impl FnMut() -> bool) -> Result<bool> {
    let mut position = 0;
    while position < buffer.len() {
        match stream.read(&mut buffer[position..]) {
            Ok(0) => anyhow::bail!("the other end has closed the TCP connection"),
            Ok(count) => position += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if position == 0 && !go_on() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn tuned(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

impl Calls {
    /// Binds a listener.
    pub(crate) fn bind(address: IpAddr) -> Result<Calls> {
        let listener = TcpListener::bind((address, 0)).context("listening for calls over TCP")?;
        listener.set_nonblocking(true)?;
        Ok(Calls { listener, stream: None })
    }

    /// Returns the address on which the server listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Answers requests from this memory until the next command.
    pub(crate) fn serve(&mut self, target: &MemoryRegion, page: &Page, ticket: Ticket) -> Result<()> {
        // The last client that connected is served, because the benchmarks connect one after the other.
        while page.is_wanted(ticket) && self.stream.is_none() {
            self.accept()?;
        }
        self.accept()?;
        let mut question = [0; 128];
        let mut answer = [0; HEAD + LONGEST];
        while let Some(stream) = &mut self.stream {
            let mut head = [0; HEAD];
            if !fill(stream, &mut head, || page.is_wanted(ticket))? {
                break;
            }
            let len = u32::from_le_bytes(head) as usize;
            let body = question.get_mut(..len).context("a request is longer than the maximum")?;
            fill(stream, body, || true)?;
            let (offset, len) = find(target, body).context("a request has no answer")?;
            answer[..HEAD].copy_from_slice(&(len as u32).to_le_bytes());
            target.read(offset, answer.get_mut(HEAD..HEAD + len).context("an answer longer than any")?)?;
            send(stream, &answer[..HEAD + len])?;
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        match self.listener.accept() {
            Ok((stream, _)) => self.stream = Some(tuned(stream)?),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Returns the offset and the length of the requested value, or `None` if the request is malformed or the key
/// is absent.
fn find(target: &MemoryRegion, question: &[u8]) -> Option<(usize, usize)> {
    let base = target.remote(0).addr;
    let place = |address: u64| address.checked_sub(base).map(|offset| offset as usize);
    let (call, params) = question.split_first()?;
    if Call::from_byte(*call)? == Call::Get {
        let Lookup { slot, key } = Lookup::parse(params)?;
        let mut bytes = [0; Slot::LEN];
        target.read(place(slot)?, &mut bytes).ok()?;
        let (value, len) = Slot::parse(&bytes)?.find(key)?;
        return Some((place(value)?, len as usize));
    }
    let walk = Walk::parse(params)?;
    let mut next = walk.address;
    while next != 0 {
        let [key, behind, value] = target.get::<[u64; 3]>(place(next)?).ok()?;
        if key == walk.key {
            return Some((place(value)?, walk.value_size as usize));
        }
        next = behind;
    }
    None
}

impl Caller {
    /// Connects to the server.
    pub(crate) fn connect(address: SocketAddr) -> Result<Caller> {
        Ok(Caller { stream: tuned(TcpStream::connect(address).context("connecting for calls over TCP")?)? })
    }

    /// Performs one call. Writes the answer to `buffer` and returns its length.
    pub(crate) fn call(&mut self, call: Call, params: &[u8], buffer: &mut [u8]) -> Result<usize> {
        let mut question = [0; 128];
        let len = 1 + params.len();
        question[..HEAD].copy_from_slice(&(len as u32).to_le_bytes());
        question[HEAD] = call as u8;
        question[HEAD + 1..HEAD + len].copy_from_slice(params);
        send(&mut self.stream, &question[..HEAD + len])?;
        let mut head = [0; HEAD];
        fill(&mut self.stream, &mut head, || true)?;
        let len = u32::from_le_bytes(head) as usize;
        ensure!(len <= buffer.len(), "an answer longer than any");
        fill(&mut self.stream, &mut buffer[..len], || true)?;
        Ok(len)
    }
}
