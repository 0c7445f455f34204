//! The users of processes of this host, as the kernel reports them on a Unix socket (SO_PEERCRED, unix(7)).
//!
//! The kernel translates a user id into the user namespace of the process that asks. An id without a
//! translation becomes the *overflow uid*, 65534. Because that number stands for all users without a
//! translation, it identifies no user: in a namespace with such users it matches no user, not even itself.

use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};

/// The overflow uid, unless `/proc` names another one.
const OVERFLOW: u32 = 65_534;
/// Number of ids in a user namespace that translates every user: all but the last id, which means "no
/// change".
const EVERY_ID: u64 = u32::MAX as u64;

/// Returns the effective user of this process, in its own user namespace.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns whether a user id that the kernel reported identifies one user. This is not so if the id is the
/// overflow uid and the user namespace of this process has users without a translation.
pub fn is_mapped(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW);
    // The map may change while the process runs (unshare(2)), so it is read at each call.
    uid != overflow || fs::read_to_string("/proc/thread-self/uid_map").is_ok_and(|map| is_complete(&map))
}

/// Returns whether this user is the user of this process.
pub fn is_own(uid: u32) -> bool {
    uid == own_uid() && is_mapped(uid)
}

/// Returns whether the users of two other processes are the same.
pub fn is_same(one: u32, other: u32) -> bool {
    one == other && is_mapped(one)
}

/// Returns whether this process may communicate with a process of this user: the user of this process,
/// root, or one of `allowed`.
pub fn is_trusted(uid: u32, allowed: &[u32]) -> bool {
    (uid == own_uid() || uid == 0 || allowed.contains(&uid)) && is_mapped(uid)
}

/// Returns the name of a user for messages: "user 1001", or an explanation if the id has no translation.
pub fn name(uid: u32) -> String {
    match is_mapped(uid) {
        true => format!("user {uid}"),
        false => {
            format!("a user without an id in this user namespace (shown as {uid}; see /proc/self/uid_map)")
        }
    }
}

/// The process at the other end of a Unix socket, as recorded by the kernel when the connection was made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user of the process, in the user namespace of this process. It must be compared only by
    /// the functions of this module.
    pub uid: u32,
    /// Process id; 0 if the process is in a pid namespace that this process cannot see.
    pub pid: u32,
}

impl PeerCredentials {
    /// Returns the credentials of the other end of the socket.
    ///
    /// # Errors
    /// The errno of getsockopt(2).
    pub fn of(socket: &impl AsFd) -> Result<PeerCredentials, Errno> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        let optval = (&raw mut peer).cast();
        // rustix requires a non-zero process id, so libc is called directly.
        // SAFETY: `optval` points to `len` bytes, and the kernel writes no more. Every bit pattern is a
        // ucred.
        let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, optval, &mut len) };
        if done != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        Ok(PeerCredentials { uid: peer.uid, pid: peer.pid as u32 })
    }

    /// Returns whether the other end is this process itself. Works also in a user namespace without a map.
    pub fn is_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Returns whether this process may communicate with the other end: it is this process, or
    /// [`is_trusted`].
    pub fn is_trusted(&self, allowed: &[u32]) -> bool {
        self.is_this_process() || is_trusted(self.uid, allowed)
    }
}

/// Returns whether a map of `/proc/PID/uid_map` translates every user.
fn is_complete(map: &str) -> bool {
    let ids = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    ids.fold(0, u64::saturating_add) >= EVERY_ID
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_map_is_complete_when_it_has_every_id() {
        assert!(is_complete("         0          0 4294967295\n"));
        assert!(is_complete("0 0 1000\n1000 2000 4294966295\n"));
        for partial in ["", "0 1000 1\n", "0 100000 65536\n", "65534 65534 1\n", "words\n"] {
            assert!(!is_complete(partial), "{partial:?}");
        }
    }

    /// Prints the verdicts on the overflow uid of the namespace in which it runs. Another test starts it in
    /// a namespace of its own.
    #[test]
    #[ignore = "the entry point of a process that another test starts"]
    fn verdicts_of_a_namespace() {
        let uid = own_uid();
        let (peer, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&peer).unwrap();
        let verdicts = [is_own(uid), is_trusted(uid, &[uid]), is_trusted(peer.uid, &[]), is_same(uid, uid)];
        println!("user {uid}: {verdicts:?}, itself {}", peer.is_trusted(&[]));
    }

    /// Regression: in a user namespace without a map every process counted as one of the own user,
    /// because all users without a translation are 65534 there.
    #[test]
    fn an_overflow_uid_is_nobody_where_users_have_no_translation_and_a_process_knows_itself() {
        let verdicts = |options: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(options).arg(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "user::tests::verdicts_of_a_namespace", "--nocapture"]);
            let output = command.output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = printed.lines().find(|line| line.starts_with("user ")).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{printed}{}", String::from_utf8_lossy(&output.stderr)))
        };
        let nobody = "user 65534: [false, false, false, false], itself true";
        assert_eq!(verdicts(&["--user"]), nobody);
        assert_eq!(verdicts(&["--user", "--map-root-user"]), "user 0: [true, true, true, true], itself true");
    }
}
