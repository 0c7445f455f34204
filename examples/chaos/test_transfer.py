"""Writes a message ten times from one queue pair to another, and checks each byte. Run it by

    remora run -- /usr/bin/python3 examples/chaos/test_transfer.py
    remora run --fault examples/chaos/chaos.toml -- /usr/bin/python3 examples/chaos/test_transfer.py

pytest runs it as well. pyverbs is Debian's package python3-pyverbs.
"""

import unittest

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

LENGTH = 4096
TIMES = 10


class Transfer:
    """Two connected queue pairs of one device, with memory on both sides."""

    def __init__(self):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.here, self.there = (MR(self.pd, LENGTH, access) for _ in range(2))
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=16))
        self.pair, self.peer = (QP(self.pd, init) for _ in range(2))
        self.connect(self.pair, self.peer)
        self.connect(self.peer, self.pair)

    def connect(self, pair, peer):
        route = GlobalRoute(dgid=self.context.query_gid(1, 0), sgid_index=0)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attributes.dest_qp_num = peer.qp_num
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer, attributes.timeout = 12, 14
        attributes.retry_cnt = attributes.rnr_retry = 7
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        pair.to_rts(attributes)

    def write(self, message):
        """Writes a message to the peer's memory, and waits until it is there."""
        self.here.write(message, len(message))
        element = SGE(self.here.buf, len(message), self.here.lkey)
        request = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[element])
        request.set_wr_rdma(self.there.rkey, self.there.buf)
        self.pair.post_send(request)
        count = 0
        while not count:
            count, completions = self.cq.poll()
        if completions[0].status != e.IBV_WC_SUCCESS:
            status, vendor_err = completions[0].status, completions[0].vendor_err
            raise RuntimeError(f"the message did not arrive: status {status}, vendor_err {vendor_err:#x}")


class TransferTest(unittest.TestCase):
    def test_every_message_arrives(self):
        transfer = Transfer()
        for number in range(TIMES):
            message = bytes([number]) * LENGTH
            transfer.write(message)
            self.assertEqual(transfer.there.read(LENGTH, 0), message)


if __name__ == "__main__":
    unittest.main()
