//! Alone in its process: namespaces left by others are looked for once in each.

use remora_netns::{Namespace, ip, or_skip};

#[test]
fn a_namespace_of_a_process_that_was_killed_is_deleted() {
    // No process has this number: the kernel gives none above 2^22.
    let name = "remora-4194999-0-stale";
    if or_skip(ip(&format!("netns add {name}"))).is_none() {
        return;
    }
    let _new = Namespace::new("new").expect("as the other");
    assert!(!ip("netns list").expect("a list").contains(name));
}
