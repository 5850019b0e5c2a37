# SPDX-License-Identifier: Apache-2.0
"""Few links drop a small share of the packets silently: Flock's own simulations (its section 7.1).

1 to 8 links of a Clos network with three-fold oversubscription lose 0.1 to 1 %, healthy ones up to
0.01 % (section 6.3). Half of the paper's traces have ``TRAFFIC=pareto:skewed``, here with
``LOAD=0.07``, because the hosts of the busy racks cannot send more. The paper sends 40 probe
packets per path and second; here NetBouncer's plan sends 100 in the one second that is measured.
"""

from scenarios.experiment.request import Scenario

FLOCK = {
    "backend": "flow",
    "topology": "clos:10:5:5:25:3",
    "noise": "0..0.0001",
    "traffic": "pareto",
    "load": 0.6,
    "flow_rate": "0.02..0.08",
    "epochs": 1,
    "telemetry": "A1+A2+P",
}

SCENARIO = Scenario(defaults=FLOCK | {"faults": "1..8links:0.001..0.01"})
