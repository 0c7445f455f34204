//! Conversion of the Rust API's errors into an errno and a text.

use remora_verbs::{ConnectError, CreateError, OpenError, PollError, PostError, errno_of_open};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Display;

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// An errno, with a text that states the problem and how to correct it.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The errno, as a positive number.
    pub errno: c_int,
    words: String,
}

impl Fault {
    pub(crate) fn new(errno: c_int, words: impl Display) -> Fault {
        Fault { errno, words: words.to_string() }
    }

    pub(crate) fn invalid(words: impl Display) -> Fault {
        Fault::new(libc::EINVAL, words)
    }
}

/// Returns 0, or the errno of the failure. Stores the text of a failure for [`remora_error`].
pub(crate) fn number(done: Result<(), Fault>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(fault) => {
            let words = CString::new(fault.words.replace('\0', " ")).unwrap_or_default();
            // The thread is ending if the storage is gone; nobody can read the text then.
            let _ = WORDS.try_with(|kept| *kept.borrow_mut() = words);
            fault.errno
        }
    }
}

/// Returns one line of text about this thread's last failure.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn remora_error() -> *const c_char {
    WORDS.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        Fault::new(errno_of_open(&error), error)
    }
}

impl From<CreateError> for Fault {
    fn from(error: CreateError) -> Fault {
        Fault::new(error.errno(), error)
    }
}

impl From<PostError> for Fault {
    fn from(error: PostError) -> Fault {
        Fault::new(error.errno(), error)
    }
}

impl From<PollError> for Fault {
    fn from(error: PollError) -> Fault {
        Fault::new(error.errno(), error)
    }
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Fault {
        let errno = match &error {
            ConnectError::Refused(_) | ConnectError::Rejected(_) => libc::ECONNREFUSED,
            // The server has no capacity at the moment; a later attempt may succeed.
            ConnectError::Full(_) => libc::EAGAIN,
            ConnectError::Tcp(error) => error.raw_os_error().unwrap_or(libc::EIO),
            ConnectError::Timeout(_) => libc::ETIMEDOUT,
            ConnectError::Closed(_) | ConnectError::StaleLink => libc::ECONNRESET,
            ConnectError::NotRemora | ConnectError::Version(_) | ConnectError::BadMessage => libc::EPROTO,
            ConnectError::OtherKind { .. } | ConnectError::OtherService { .. } => libc::EOPNOTSUPP,
            ConnectError::Link(_) | ConnectError::Attach(_) => libc::EHOSTUNREACH,
            ConnectError::Nic(remora_nic::NicError::Full) => libc::ENOMEM,
            ConnectError::Forked => libc::EPERM,
            _ => libc::EINVAL,
        };
        Fault::new(errno, error)
    }
}
