# SPDX-License-Identifier: Apache-2.0
"""p4runtime-sh, as it is, against the switch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testbed.softswitch.tests.server.client import JSON, P4INFO, ROOT, Process
from tests.patience import PATIENCE_S

SCRIPT = """
import os
import sys
import traceback
import p4runtime_sh.shell as sh
from p4.v1 import p4runtime_pb2
from p4runtime_sh.p4runtime import P4RuntimeWriteException

def fail(*error):
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)  # the shell's threads would wait for ever

sys.excepthook = fail
address, info, code = sys.argv[1:]
sh.setup(device_id=3, grpc_addr=address, election_id=(0, 1),
         config=sh.FwdPipeConfig(info, code))
e = sh.TableEntry("CanaryIngress.routing.routes")(action="CanaryIngress.routing.deliver")
e.match["hdr.ipv4.dst_ip"] = "10.0.0.0/8"
e.action["port"] = "100"
e.action["mac"] = "00:00:00:00:00:01"
e.insert()
try:
    e.insert()
except P4RuntimeWriteException as error:
    print("refused", "ALREADY_EXISTS" in str(error))
e.action["port"] = "0x64"
e.modify()
print("entries", sum(1 for _ in sh.TableEntry("CanaryIngress.routing.routes").read()))
f = sh.TableEntry("CanaryIngress.fault.faults")(action="CanaryIngress.fault.healthy")
f.match["port"] = "100"
f.match["src_port"] = "1000&&&0xffff"
f.priority = 3
f.insert()
identity = sh.TableEntry("CanaryIngress.identity.identity")(
    action="CanaryIngress.identity.identify")
identity.is_default = True
for name, value in (("monitor", "1"), ("upper_tier", "0"), ("mask", "0"), ("own_ip", "10.0.0.9")):
    identity.action[name] = value
identity.modify()
s = sh.TableEntry("CanaryIngress.heavy_hitter.segments")(
    action="CanaryIngress.heavy_hitter.report")
s.match["hdr.shim.path_bf"] = "5"
s.match["meta.hashpipe_count"] = "1..0xffffffff"
s.priority = 1
s.insert()
d = sh.DigestEntry("heavy_hitter_t")
d.max_list_size, d.ack_timeout_ns = 1, 10**9
d.insert()
out = p4runtime_pb2.StreamMessageRequest()  # sh.PacketOut is for programs with a CPU header
out.packet.payload = bytes.fromhex(FRAME)
sh.client.stream_out_q.put(out)
digests = sh.DigestList().digest_list_queue  # sniff waits for its whole timeout
print("digest", len(digests.get(timeout=180).digest.data))
print("packets", len(sh.client.get_stream_packet("packet", timeout=180).packet.payload))
for c in sh.DirectCounterEntry("CanaryIngress.fault.matched").read():
    print("counted", c.packet_count)
c = sh.CounterEntry("CanaryIngress.fault.dropped")
c.index = 4
c.packet_count = 12
c.modify()
for c in sh.CounterEntry("CanaryIngress.fault.dropped").read():
    if c.index == 4:
        print("counter", c.packet_count)
m = sh.ActionProfileMember("CanaryIngress.routing.uplink_selector")(
    member_id=1, action="CanaryIngress.routing.forward")
m.action["port"], m.action["mac"] = "1", "00:00:00:00:00:01"
m.insert()
g = sh.ActionProfileGroup("CanaryIngress.routing.uplink_selector")(group_id=1)
g.add(1)
g.insert()
u = sh.TableEntry("CanaryIngress.routing.uplinks")(group_id=1)
u.match["upward"] = "1"
u.insert()
x = sh.CloneSessionEntry(7)
x.add(1)
x.insert()
y = sh.MulticastGroupEntry(8)
y.add(1, 1).add(2, 1)
y.insert()
print("clone", sum(1 for _ in x.read()), "multicast", sum(1 for _ in y.read()))
e.delete()
print("entries", sum(1 for _ in sh.TableEntry("CanaryIngress.routing.routes").read()))
print("version", sh.APIVersion())
sh.teardown()
"""


def test_p4runtime_sh() -> None:
    pytest.importorskip("p4runtime_sh")
    from testbed.softswitch.tests.server.frames import udp

    script = SCRIPT.replace("FRAME", repr(udp(path_bf=5).hex()))
    with Process("--no-p4", "--device-id", "3", target=("--cpu-port", "100")) as p:
        run = subprocess.run(
            [sys.executable, "-c", script, p.grpc, str(P4INFO), str(JSON)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=ROOT,
        )
    assert run.returncode == 0, run.stderr[-2000:]
    got = [
        line
        for line in run.stdout.splitlines()
        if line.split(" ")[0]
        in ("refused", "entries", "digest", "packets", "counted", "counter", "clone", "version")
    ]
    assert got == [
        "refused True",
        "entries 1",
        "digest 1",
        "packets 54",
        "counted 1",
        "counter 12",
        "clone 1 multicast 1",
        "entries 0",
        "version 1.4.1",
    ], run.stdout
