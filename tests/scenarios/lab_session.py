# SPDX-License-Identifier: Apache-2.0
"""A session of a lab exercise: break a network of real packets, and find what is broken."""

import canary

with canary.net(k=4, seed=1) as net:
    near, far = net["h0_0_0"], net.get("h3_1_1")
    assert " 0% packet loss" in near.cmd(f"ping -c 3 -i 0.2 {far.IP()}")
    assert net.diagnose(["canary", "canary-mle"]) == {"canary": [], "canary-mle": []}

    net.fault("agg0_1->core2", 0.2)
    print(net.faults, net.diagnose("canary-mle"))
    counts = net.meters()
    lost = sum(lost for path, (_, lost) in counts.items() if "agg0_1->core2" in path)
    print(f"{lost} packets lost, all on paths over that link")
    assert 0 < lost == sum(lost for _, lost in counts.values())
    net.heal()

    net.configLinkStatus("agg0_0", "core0", "down")
    net.stop_switch("agg2_1")
    print(f"not observed: {net.off}")
    assert net.diagnose("canary,netbouncer") == {"canary": [], "netbouncer": []}
    net.configLinkStatus("agg0_0", "core0", "up")
    net.start_switch("agg2_1")

    rate, again = net.iperf(("h0_0_0", "h3_1_1"), seconds=2)
    print(f"{rate / 1e6:.1f} Mbit/s, {again} segments sent again")
    assert net.pingAll() == 0 and not net.off
