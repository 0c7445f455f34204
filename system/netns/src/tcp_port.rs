//! TCP ports for programs whose command line names the port to listen at.

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// First port of the range. The range lies below the ports that Linux assigns to clients, so no client uses
/// one of them, and a client cannot connect to itself (as it may when it is assigned the port that it
/// calls).
const FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Sockets whose abstract names reserve the ports until the process ends.
static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// Returns a TCP port at which no process listens, and which no other call on this host returns while this
/// process lives.
///
/// # Errors
/// The error of the system, or `AddrInUse` if all ports are in use.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS {
        // Processes that start together try different ports first.
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
        assert!(reserve(first).is_err(), "the port is reserved without a listener");
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, next)).is_ok());
    }
}
