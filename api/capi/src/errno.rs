//! Errors of the Rust API as an errno, and as a text.

use remora_verbs::{ConnectError, CreateError, MemoryError, OpenError, PollError, PostError, QueueError};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Display;

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// An errno, and a text that says what is wrong and how to mend it.
#[derive(Debug)]
pub struct Fault {
    /// The errno, as a positive number.
    pub errno: c_int,
    words: String,
}

impl Fault {
    pub fn new(errno: c_int, words: impl Display) -> Fault {
        Fault { errno, words: words.to_string() }
    }

    pub fn invalid(words: impl Display) -> Fault {
        Fault::new(libc::EINVAL, words)
    }
}

/// 0, or the errno; its text is kept for [`remora_error`].
pub fn number(done: Result<(), Fault>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(fault) => {
            let words = CString::new(fault.words.replace('\0', " ")).unwrap_or_default();
            // While the thread ends nobody can read the text.
            let _ = WORDS.try_with(|kept| *kept.borrow_mut() = words);
            fault.errno
        }
    }
}

/// One line about this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn remora_error() -> *const c_char {
    WORDS.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn of_memory(error: &MemoryError) -> c_int {
    match error {
        MemoryError::Invalid | MemoryError::Unknown => libc::EINVAL,
        MemoryError::Full => libc::ENOMEM,
        MemoryError::Busy => libc::EBUSY,
        MemoryError::InsidePass => libc::EDEADLK,
        MemoryError::Os(errno) => *errno,
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        let errno = match &error {
            OpenError::Engines(_) => libc::EINVAL,
            OpenError::Port(_) => libc::ENODEV,
            OpenError::Memory(error) => of_memory(error),
            OpenError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        Fault::new(errno, error)
    }
}

impl From<CreateError> for Fault {
    fn from(error: CreateError) -> Fault {
        let errno = match &error {
            CreateError::Memory(error) => of_memory(error),
            CreateError::Nic(remora_nic::NicError::Full) => libc::ENOMEM,
            CreateError::Nic(remora_nic::NicError::Busy) => libc::EBUSY,
            CreateError::Forked => libc::EPERM,
            CreateError::Reentered => libc::EBUSY,
            CreateError::Unreachable(_) => libc::EHOSTUNREACH,
            CreateError::System(errno) => *errno,
            _ => libc::EINVAL,
        };
        Fault::new(errno, error)
    }
}

impl From<PostError> for Fault {
    fn from(error: PostError) -> Fault {
        let errno = match error {
            PostError::Queue(QueueError::QueueFull) => libc::ENOMEM,
            PostError::Forked => libc::EPERM,
            PostError::Reentered => libc::EBUSY,
            PostError::Failed => libc::EIO,
            _ => libc::EINVAL,
        };
        Fault::new(errno, error)
    }
}

impl From<PollError> for Fault {
    fn from(error: PollError) -> Fault {
        let errno = match error {
            PollError::Overrun => libc::EOVERFLOW,
            PollError::Timeout => libc::ETIMEDOUT,
            PollError::Forked => libc::EPERM,
            PollError::Reentered => libc::EBUSY,
            PollError::Failed => libc::EIO,
            PollError::System(errno) => errno,
        };
        Fault::new(errno, error)
    }
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Fault {
        let errno = match &error {
            ConnectError::Refused(_) | ConnectError::Rejected(_) => libc::ECONNREFUSED,
            // The server is full at the moment.
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
