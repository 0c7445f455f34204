//! Removal of namespaces whose processes were killed.

use crate::ip;
use std::path::Path;
use std::sync::Once;

/// Prefix of the name of each namespace; the process id follows.
pub(crate) const PREFIX: &str = "remora-";

/// Deletes stale namespaces, once per process.
pub(crate) fn delete_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let list = ip("netns list").unwrap_or_default();
        for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
            if owner(name).is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                // Another process may have deleted it at the same time, so errors are ignored.
                let _ = ip(&format!("netns delete {name}"));
            }
        }
    });
}

/// Returns the id of the process that created this namespace.
fn owner(name: &str) -> Option<&str> {
    let process = name.strip_prefix(PREFIX)?.split('-').next()?;
    process.bytes().all(|byte| byte.is_ascii_digit()).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_ours_have_an_owner() {
        assert_eq!(owner("remora-17-0-near"), Some("17"));
        assert_eq!(owner("remora-bench-17-near"), None);
        assert_eq!(owner("docker-17"), None);
    }
}
