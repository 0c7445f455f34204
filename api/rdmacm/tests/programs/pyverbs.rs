//! rdma-core's own tests, from Debian's python3-pyverbs.

use crate::library::{ROOT, address, folder, program_at};

/// The least number of tests that must pass.
const LEAST: u32 = 135;

/// At least 135 tests pass.
#[test]
fn rdma_cores_own_tests_fail_nowhere_and_skip_for_the_listed_reasons_alone() {
    let script = format!("{ROOT}/scripts/pyverbs");
    // The tests of rdma_cm are several processes that share the address.
    let output = program_at(&address(), &[&script]).env("REMORA_LIB", folder()).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    let passed: u32 = last.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    assert!(passed >= LEAST, "{last}");
}
