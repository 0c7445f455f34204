//! A test that needs a process of its own, because stale namespaces are removed once per process.

use remora_netns::{Namespace, ip, require};

#[test]
fn a_namespace_of_a_process_that_was_killed_is_deleted() {
    // No process has this id, because the kernel assigns none above 2^22.
    let name = "remora-4194999-0-stale";
    require!(ip(&format!("netns add {name}")));
    let _new = Namespace::new("new").expect("as the other");
    assert!(!ip("netns list").expect("a list").contains(name));
}
