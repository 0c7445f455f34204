"""`python -m remora` is the command `remora`."""

from remora_rdma.__main__ import main

if __name__ == "__main__":
    main()
