//! Attaching to a NIC daemon.

use remora_host::OpenError;
use remora_host::packet::PacketSocket;
use remora_port::user;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::daemon_client::{ATTACHING, DaemonClient, silent};
use super::message::{MAX_NAME, Request, VERSION};
use crate::{Context, CreateError};

/// A NIC lent by a daemon, before it is opened ([`Device::nicd`](crate::Device::nicd)).
#[derive(Clone, Debug)]
pub struct Attachment {
    path: PathBuf,
    name: String,
    kept: bool,
    owner: Option<u32>,
}

impl Attachment {
    pub(crate) fn new(path: &Path) -> Attachment {
        Attachment { path: path.to_owned(), name: String::new(), kept: false, owner: None }
    }

    /// Sets the user that the daemon must run as. By default it is the program's own user or root, because a
    /// daemon can read all memory that it lends.
    #[must_use]
    pub fn owner(mut self, uid: u32) -> Attachment {
        self.owner = Some(uid);
        self
    }

    /// Attaches as this kept tenant. The tenant's objects survive the end of the program, even if it is
    /// killed. The next program of the same user that attaches by this name takes them over
    /// ([`Context::kept`]). Only one program at a time uses a name.
    #[must_use]
    pub fn keep(mut self, tenant: impl Into<String>) -> Attachment {
        (self.name, self.kept) = (tenant.into(), true);
        self
    }

    /// Attaches to the daemon.
    ///
    /// # Errors
    /// [`OpenError`], whose text says in one line what is wrong and how to put it right.
    pub fn open(&self) -> Result<Context, OpenError> {
        Ok(Context::of_daemon(self.client()?))
    }

    /// Attaches to the daemon, and returns the program's end.
    pub(crate) fn client(&self) -> Result<DaemonClient, OpenError> {
        let socket_path = self.path.display();
        if self.name.len() > MAX_NAME || self.kept && self.name.is_empty() {
            return Err(OpenError::Port(format!("a tenant's name has 1 to {MAX_NAME} bytes")));
        }
        let socket = connect(&self.path)?;
        let daemon = socket.peer()?;
        let named = |uid| daemon.is_this_process() || user::is_same(uid, daemon.uid);
        if !self.owner.map_or_else(|| daemon.is_trusted(&[]), named) {
            let owner = user::name(daemon.uid);
            let mend = match user::is_mapped(daemon.uid) {
                true => "if that is intended, name it as the owner",
                false => "start a daemon of this program's user",
            };
            return Err(OpenError::Port(format!(
                "the NIC daemon at {socket_path} is of {owner}, which would see this program's memory: {mend}"
            )));
        }
        let hello = Request::Attach { version: VERSION, name: self.name.clone(), kept: self.kept };
        DaemonClient::attach(socket, &hello).map_err(|error| port_error(&self.path, &error))
    }
}

/// Connects to the daemon that listens at `path`. A path that begins with `@` is an abstract name.
pub(super) fn connect(path: &Path) -> Result<PacketSocket, OpenError> {
    let socket_path = path.display();
    let connected = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => PacketSocket::connect_abstract(name, ATTACHING),
        None => PacketSocket::connect(path, ATTACHING),
    };
    connected.map_err(|error| {
        OpenError::Port(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                format!(
                    "no NIC daemon listens at {socket_path}: start it by `remora serve nic --socket {socket_path}`"
                )
            }
            ErrorKind::PermissionDenied => {
                format!("the NIC daemon at {socket_path} admits other users only: start it with --allow-uid")
            }
            ErrorKind::TimedOut => format!("{socket_path}: {}", silent(ATTACHING)),
            _ => format!("the NIC daemon at {socket_path}: {error}"),
        })
    })
}

/// Returns the error of a daemon, with the path of the daemon's socket in its text.
pub(super) fn port_error(path: &Path, error: &CreateError) -> OpenError {
    OpenError::Port(format!("{}: {error}", path.display()))
}
