//! The connections of a NIC's queue pairs, as the commands set them up.

use remora_nic::Command;
use remora_port::Peer;
use remora_transport::state::State;
use remora_wire::Qpn;

/// A queue pair that is connected.
#[derive(Copy, Clone, Debug)]
struct Connection {
    own: Qpn,
    peer: Peer,
    remote: Qpn,
    irn: bool,
}

/// The connected queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Connections(Vec<Connection>);

impl Connections {
    /// Follows a command that succeeded.
    pub(crate) fn follow(&mut self, command: &Command) {
        match command {
            Command::ModifyQp { qp, change } if change.state == Some(State::Rtr) => {
                self.0.retain(|known| known.own != *qp);
                if let (Some(address), Some(remote)) = (change.address, change.dest_qp) {
                    let irn = change.irn.is_some();
                    self.0.push(Connection { own: *qp, peer: address.peer, remote, irn });
                }
            }
            Command::ModifyQp { qp, change } if change.state == Some(State::Reset) => {
                self.0.retain(|known| known.own != *qp);
            }
            Command::DestroyQp(qp) => self.0.retain(|known| known.own != *qp),
            _ => {}
        }
    }

    /// Returns whether a queue pair of the NIC uses IRN.
    pub(crate) fn uses_irn(&self, own: Qpn) -> bool {
        self.0.iter().any(|known| known.irn && known.own == own)
    }

    /// Returns whether frames to a queue pair of a peer are those of IRN.
    pub(crate) fn sends_irn(&self, peer: Peer, remote: Qpn) -> bool {
        self.0.iter().any(|known| known.irn && (known.peer, known.remote) == (peer, remote))
    }

    /// Returns the queue pair that is connected to a queue pair of a peer; `None` if there are none or
    /// several.
    pub(crate) fn own(&self, peer: Peer, remote: Qpn) -> Option<Qpn> {
        let mut own = self.0.iter().filter(|known| (known.peer, known.remote) == (peer, remote));
        own.next().map(|known| known.own).filter(|_| own.next().is_none())
    }
}
