//! Listing and ending the tenants of a daemon, from another process of the daemon's owner, of root, or of
//! the tenant's user.

use remora_host::OpenError;
use remora_host::packet::PacketSocket;
use std::path::Path;

use super::attach::{connect, port_error};
use super::daemon_client::{ATTACHING, receive, send};
use super::message::{MAX_NAME, Reply, Request, TenantFacts, VERSION};
use crate::CreateError;

/// Sends the first and only request of a connection to the daemon at `path`.
fn request(path: &Path, request: &Request) -> Result<PacketSocket, OpenError> {
    let socket = connect(path)?;
    send(&socket, request, ATTACHING).map_err(|error| port_error(path, &CreateError::from(error)))?;
    Ok(socket)
}

fn reply(path: &Path, socket: &PacketSocket) -> Result<Reply, OpenError> {
    match receive(socket, ATTACHING) {
        Ok((reply, _)) => Ok(reply),
        Err(error) => Err(port_error(path, &CreateError::from(error))),
    }
}

/// Lists the tenants of the daemon that listens at `path`. The daemon's owner and root see all tenants, any
/// other user sees its own. The names are chosen by programs, so print them escaped.
///
/// # Errors
/// [`OpenError`], whose text says in one line what is wrong and how to put it right.
pub fn tenants(path: &Path) -> Result<Vec<TenantFacts>, OpenError> {
    let socket = request(path, &Request::List { version: VERSION })?;
    let mut tenants = Vec::new();
    while let Reply::Tenant(facts) = reply(path, &socket)? {
        tenants.push(facts);
    }
    Ok(tenants)
}

/// Ends the kept tenant `name` of user `uid`: disconnects its program if one is attached, and destroys its
/// objects. The calling process must belong to user `uid`, the daemon's owner or root.
///
/// # Errors
/// [`OpenError`], whose text says in one line what is wrong and how to put it right.
pub fn end(path: &Path, uid: u32, name: &str) -> Result<(), OpenError> {
    let name = name.to_owned();
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(OpenError::Port(format!("a tenant's name has 1 to {MAX_NAME} bytes")));
    }
    let socket = request(path, &Request::End { version: VERSION, uid, name })?;
    match reply(path, &socket)? {
        Reply::Done => Ok(()),
        other => Err(OpenError::Port(format!("{}: unexpected reply {other:?}", path.display()))),
    }
}
