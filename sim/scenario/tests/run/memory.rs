//! A network of a thousand hosts fits into the memory of a small machine.

use super::*;

/// Returns the resident memory of this process, in kilobytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_host_takes_less_than_half_a_megabyte() {
    let flows: Vec<_> = (0..1024).map(|src| (src, (src + 513) % 1024, 10_000)).collect();
    let before = resident();
    let mut run = Run::new(&scenario(fat_tree(16), &flows)).unwrap();
    assert_eq!(std::iter::from_fn(|| run.advance(Picos::NEVER)).count(), 1024);
    let grown = resident().saturating_sub(before);
    assert!(grown < 1024 * 512, "{grown} KB for 1024 hosts");
}
