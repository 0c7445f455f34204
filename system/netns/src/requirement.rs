//! Requirements of tests: root, a device, a program. A test that lacks one is reported as not run, or fails.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// The variable with the path of a file to which each test that does not run is appended, one line each.
pub const LIST: &str = "REMORA_NOT_RUN";
/// The variable that makes tests fail which cannot run, if its value is `all`.
pub const REQUIRE: &str = "REMORA_REQUIRE";

/// Returns the value of a `Result` in a test, or checks a condition. If the result is an error, or the
/// condition does not hold, the calling function returns, and the test is reported by
/// [`not_run`](crate::not_run).
///
/// ```
/// fn a_test() {
///     let file = remora_netns::require!(std::fs::File::open("/proc/self/status"));
///     remora_netns::require!(file.metadata().is_ok(), "/proc/self/status has no metadata");
/// }
/// ```
#[macro_export]
macro_rules! require {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(reason) => {
                $crate::not_run(&reason);
                return;
            }
        }
    };
    ($holds:expr, $reason:expr) => {
        if !$holds {
            $crate::not_run(&$reason);
            return;
        }
    };
}

/// Reports the calling test as not run, for this reason: one line on standard error, past the test harness,
/// which keeps a test's output, and one in the file that the variable [`LIST`] names. Tests call it by
/// [`require!`](crate::require).
///
/// # Panics
/// If [`REQUIRE`] is `all`: each test must run.
pub fn not_run(reason: &dyn Display) {
    let thread = std::thread::current();
    let own = std::env::var("NEXTEST_TEST_NAME").ok();
    let line = line(own.as_deref().or(thread.name()).unwrap_or("a test"), reason);
    let required = std::env::var(REQUIRE).is_ok_and(|required| required == "all");
    assert!(!required, "{line} ({REQUIRE}=all)");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(list) = std::env::var_os(LIST)
        && let Err(error) = append(list.as_ref(), &line)
    {
        panic!("cannot write to {}, which {LIST} names: {error}", list.display());
    }
}

/// Returns a report as one line.
fn line(test: &str, reason: &dyn Display) -> String {
    let reason = reason.to_string();
    let words: Vec<&str> = reason.split_whitespace().collect();
    format!("{test}: not run: {}", words.join(" "))
}

/// Appends a line by one call of the system, so that those of several processes do not mix.
fn append(list: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(list)?.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_that_is_appended_to_the_list() {
        let folder = std::env::temp_dir().join(format!("remora-not-run-{:?}", std::thread::current().id()));
        std::fs::create_dir_all(&folder).unwrap();
        let list = folder.join("list");
        append(&list, &line("waits::a_test", &"no root:\n  ip says no")).unwrap();
        append(&list, &line("another", &"no tshark")).unwrap();
        let read = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, "waits::a_test: not run: no root: ip says no\nanother: not run: no tshark\n");
    }
}
