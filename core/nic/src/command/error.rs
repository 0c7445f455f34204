//! The refusal of a command.

use serde::{Deserialize, Serialize};

use super::CommandKind;
use crate::attributes::ModifyFault;
use crate::config::NicError;

/// The refusal of a command. A refused command has changed nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {fault}")]
pub struct CommandError {
    /// The kind of the command.
    pub kind: CommandKind,
    /// The limit or rule that refuses it.
    pub fault: CommandFault,
}

/// The limit or rule that refuses a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CommandFault {
    /// The rule of a resource.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The rule of a queue pair's states and attributes.
    #[error(transparent)]
    Modify(#[from] ModifyFault),
    /// The reply to the command is that to another one.
    #[error("the reply belongs to another command")]
    Reply,
}

impl CommandFault {
    /// Returns the error of a resource; `None` if the fault is another one.
    pub fn nic(self) -> Option<NicError> {
        match self {
            CommandFault::Nic(error) => Some(error),
            _ => None,
        }
    }
}

/// `ENOMEM` of Linux.
const ENOMEM: i32 = 12;
/// `EBUSY` of Linux.
const EBUSY: i32 = 16;
/// `EINVAL` of Linux.
const EINVAL: i32 = 22;

impl CommandError {
    /// Returns the number of the error that the verbs report.
    pub fn errno(&self) -> i32 {
        match self.fault {
            CommandFault::Nic(NicError::Full) => ENOMEM,
            CommandFault::Nic(NicError::Busy) => EBUSY,
            _ => EINVAL,
        }
    }
}
