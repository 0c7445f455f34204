"""Prints each asynchronous event with the state of the port, until the device is dead, and opens it anew."""

import time

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPCap, QPInitAttr

context = Context(name="remora0")
pd, cq = PD(context), CQ(context, 4)
pair = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=1)))
kind = None
while kind != e.IBV_EVENT_DEVICE_FATAL:
    event = context.get_async_event()
    kind = event.event_type
    print(kind, context.query_port(1).state, flush=True)
    event.ack()
refused = 0
while True:
    try:
        Context(name="remora0")
        break
    except PyverbsError:
        refused += 1
        time.sleep(0.01)
print("dead" if refused else "alive", "and back", flush=True)
