//! The rows of `make interop`: the verbs programs that serve each other, with their arguments.

/// A program. In its command line, `@` stands for the server's address, and `%` for this side's device and
/// GID.
pub(crate) struct Row {
    pub program: &'static str,
    /// Additional words of the server's command line, and of the client's.
    pub server: &'static str,
    pub client: &'static str,
    /// True if the program connects by the communication manager instead of TCP.
    pub connects: bool,
}

const fn row(program: &'static str) -> Row {
    Row { program, server: "", client: "@", connects: false }
}

const fn connecting(program: &'static str, server: &'static str, client: &'static str) -> Row {
    Row { program, server, client, connects: true }
}

/// The rows of each run of CI.
pub(crate) const QUICK: [Row; 5] = [
    row("ibv_rc_pingpong -g % -n 100"),
    row("ib_write_bw -F -x % -s 65536 -n 20"),
    row("ib_read_bw -F -x % -s 65536 -n 20"),
    row("ib_atomic_lat -F -x % -n 20"),
    connecting("rping -a @ -C 20 -S 1000 -V", "-s", "-c"),
];

/// Reliable services, which also pass when frames are lost.
pub(crate) const RELIABLE: [Row; 13] = [
    row("ibv_srq_pingpong -g % -n 100"),
    row("ibv_rc_pingpong -g % -n 50 -m 256 -e"),
    row("ib_write_bw -F -x % -s 1048576 -n 10"),
    row("ib_write_bw -F -x % -s 16384 -n 20 -q 4 -b"),
    row("ib_write_lat -F -x % -n 50"),
    row("ib_read_bw -F -x % -s 1048576 -n 5"),
    row("ib_read_lat -F -x % -s 4096 -n 50"),
    row("ib_send_bw -F -x % -s 65536 -n 50 -e"),
    row("ib_send_lat -F -x % -s 64 -n 50"),
    row("ib_atomic_bw -F -x % -n 50"),
    row("ib_atomic_lat -F -x % -n 50 -A CMP_AND_SWAP"),
    connecting("ucmatose", "-b @", "-s @"),
    connecting("ib_write_bw -R -F -s 65536 -n 20", "", "@"),
];

/// Services whose programs wait for ever if a message is lost. UC loses a message whose frames are out of
/// order.
pub(crate) const UC: [Row; 2] =
    [row("ibv_uc_pingpong -g % -n 100"), row("ib_write_bw -F -x % -c UC -s 4096 -n 20")];
pub(crate) const UD: [Row; 3] = [
    row("ibv_ud_pingpong -g % -n 100 -s 1000"),
    row("ib_send_bw -F -x % -c UD -s 1024 -n 100"),
    connecting("udaddy", "-b @", "-s @"),
];
