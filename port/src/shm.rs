//! Port `shm`: rings in shared memory between processes of one host.
