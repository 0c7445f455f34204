//! TCP ports for programs that listen at a port which their command line names.

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that Linux gives to clients: no client holds one. None connects to itself either, as it
/// may where it is given the port that it calls.
const FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Names that say which ports are reserved, until the process ends.
static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A TCP port where nobody listens, which no other call on this host returns while the process lives.
///
/// # Errors
/// There is none, or the system refuses a socket.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS {
        // Processes that begin together try different ports first.
        let turn = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(61));
        let port = FIRST + (turn % u32::from(PORTS)) as u16;
        match reserve(port) {
            Ok(()) => return Ok(port),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    let range = format!("ports {FIRST} to {} are all in use", FIRST + PORTS - 1);
    Err(Error::new(ErrorKind::AddrInUse, range))
}

fn reserve(port: u16) -> Result<()> {
    let name = SocketAddr::from_abstract_name(format!("remora-tcp-port/{port}"))?;
    let reserved = UnixDatagram::bind_addr(&name)?;
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    RESERVED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(reserved);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_calls_return_a_port_and_none_where_somebody_listens() {
        let first = free_port().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert!(reserve(first).is_err_and(|error| error.kind() == ErrorKind::AddrInUse));
        let next = free_port().unwrap();
        assert_ne!(first, next);
        drop(listener);
        assert!(reserve(first).is_err(), "it is reserved though nobody listens");
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, next)).is_ok());
    }
}
