//! The sockets on which the cache listens: a TCP address, a Unix socket, or both.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};

use super::stream::Stream;
use crate::error::{Context as _, bail};
use crate::{Error, Result};

/// The listening sockets.
pub struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
}

impl Listeners {
    /// Listens at a TCP address, and at a path whose Unix socket gets this mode.
    pub fn bind(address: Option<SocketAddr>, unix: Option<(&Path, u32)>) -> Result<Listeners> {
        let bind = |address| TcpListener::bind(address).map_err(|error| refused(address, error));
        let tcp = address.map(bind).transpose()?;
        let unix = unix.map(|(path, mode)| bind_unix(path, mode)).transpose()?;
        Ok(Listeners { tcp, unix })
    }

    /// Returns the TCP address.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
    }

    /// Registers all sockets for polling under this token.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        if let Some(tcp) = &mut self.tcp {
            registry.register(tcp, token, Interest::READABLE)?;
        }
        if let Some((unix, _)) = &mut self.unix {
            registry.register(unix, token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Accepts the next client. Returns `WouldBlock` if none waits.
    pub fn accept(&self) -> io::Result<Stream> {
        if let Some(tcp) = &self.tcp {
            match tcp.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                accepted => {
                    let (stream, _) = accepted?;
                    // Answers are written as a whole, so delaying small segments saves nothing.
                    let _ = stream.set_nodelay(true);
                    return Ok(Stream::Tcp(stream));
                }
            }
        }
        match &self.unix {
            Some((unix, _)) => unix.accept().map(|(stream, _)| Stream::Unix(stream)),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unix = self.unix.as_ref().map(|(_, file)| file.path.display());
        match (self.tcp(), unix) {
            (Some(tcp), Some(unix)) => write!(f, "{tcp} and {unix}"),
            (Some(tcp), None) => write!(f, "{tcp}"),
            (None, Some(unix)) => write!(f, "{unix}"),
            (None, None) => write!(f, "no address"),
        }
    }
}

/// A Unix socket in the file system. It is removed at the end, unless another socket has taken its place.
struct SocketFile {
    path: PathBuf,
    /// Device and inode number of the socket file.
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.inode);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind_unix(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile)> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!(Config, "{shown} is there, and is no socket: serve at another with --unix-socket")
        }
        Ok(_) => match unix::UnixStream::connect(path) {
            // The socket was left by a server that was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(Error::Io(error).context(format!("looking who listens at {shown}"))),
            Ok(_) => bail!(
                Config,
                "{shown} is taken, perhaps by a memcached: end what listens there, or serve at another with --unix-socket"
            ),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::Io(error).context(format!("listening at {shown}"))),
    }
    // The socket gets its mode before it gets its name, so that nobody connects before.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let bound = || -> io::Result<_> {
        let listener = unix::UnixListener::bind(&fresh)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&fresh, Permissions::from_mode(mode))?;
        let metadata = fs::symlink_metadata(&fresh)?;
        fs::rename(&fresh, path)?;
        Ok((listener, SocketFile { path: path.to_owned(), inode: (metadata.dev(), metadata.ino()) }))
    };
    let (listener, file) = bound().inspect_err(|_| drop(fs::remove_file(&fresh))).with_context(|| {
        format!("listening at {shown}: its directory must be there, and be yours, and its name has at most 90 bytes")
    })?;
    Ok((UnixListener::from_std(listener), file))
}

fn refused(address: SocketAddr, error: io::Error) -> Error {
    let text = match error.kind() {
        ErrorKind::AddrInUse => {
            "is taken, perhaps by a memcached: end what listens there, or serve at another with --listen"
        }
        ErrorKind::PermissionDenied => {
            "takes a right that you have not: serve at a port from 1024 on with --listen"
        }
        ErrorKind::AddrNotAvailable => "is no address of this machine: serve at another with --listen",
        _ => return Error::Io(error).context(format!("listening at {address}")),
    };
    Error::Config(format!("{address} {text}"))
}
