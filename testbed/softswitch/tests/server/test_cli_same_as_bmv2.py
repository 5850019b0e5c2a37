# SPDX-License-Identifier: Apache-2.0
"""simple_switch_CLI says the same of the soft switch and of simple_switch."""

from __future__ import annotations

import subprocess
import time

import pytest

from testbed.softswitch.tests.server.client import PROGRAMS, Process
from testbed.softswitch.tests.server.test_thrift import bmv2
from tests.patience import PATIENCE_S
from tests.programs import COMMAND_LINE, needs

pytestmark = needs("simple_switch_CLI", "simple_switch")
PROFILES = """
show_tables
show_actions
act_prof_create_member I.ap I.set 7
act_prof_create_member I.ap I.set 8
act_prof_create_member I.ap I.nothing 8
act_prof_create_member I.ap I.set
act_prof_dump I.ap
act_prof_create_member I.ecmp I.send 1
act_prof_create_member I.ecmp I.send 2
act_prof_create_member I.ecmp I.send 3
act_prof_create_group I.ecmp
act_prof_add_member_to_group I.ecmp 0 0
act_prof_add_member_to_group I.ecmp 1 0
act_prof_add_member_to_group I.ecmp 1 0
act_prof_add_member_to_group I.ecmp 9 0
act_prof_add_member_to_group I.ecmp 1 9
act_prof_remove_member_from_group I.ecmp 2 0
act_prof_create_group I.ap
act_prof_dump I.ecmp
table_indirect_add I.direct 5 => 0
table_indirect_add I.direct 5 => 1
table_indirect_add I.direct 6 => 9
table_indirect_add_with_group I.hashed 0x0a00/8 => 0
table_indirect_add_with_group I.hashed 0x0b00/8 => 7
table_indirect_add I.hashed 0x0c00/8 => 2
table_indirect_set_default I.direct 1
table_indirect_set_default_with_group I.hashed 0
table_dump I.direct
table_dump I.hashed
table_num_entries I.hashed
act_prof_delete_member I.ap 0
act_prof_delete_group I.ecmp 0
table_indirect_delete I.direct 0
table_indirect_delete I.direct 0
table_dump_entry_from_key I.hashed 0x0c00/8
table_dump_entry I.hashed 1
table_indirect_reset_default I.direct
act_prof_delete_member I.ap 0
act_prof_modify_member I.ap I.set 1 9
act_prof_dump_member I.ap 1
act_prof_dump_group I.ecmp 0
table_clear I.direct
table_num_entries I.direct
table_add I.direct I.set 5 => 1
nonsense
"""
ENTRIES = """
show_tables
table_info I.ternary_t
show_actions
table_add I.ternary_t NoAction 0x0a000000&&&0xff000000 5&&&7 1 => 10
table_add I.lpm_t I.set 1 10.0.0.0/8 => 7
table_add I.lpm_t I.set 1 10.1.0.0/16 => 8
table_add I.lpm_t I.set 1 10.1.0.0/16 => 9
table_add I.lpm_t I.set 1 10.1.0.0/16 => 9 9
table_add I.lpm_t I.nope 1 10.1.0.0/16 => 9
table_add I.lpm_t I.set 1 10.1.0.0/16 5 => 9
table_add I.range_t I.set 1->5 0->9 1&&&1 => 3 4
table_add I.exact_t I.set 1 5 => 3
table_set_default I.exact_t I.set 9
table_dump I.ternary_t
table_dump I.lpm_t
table_dump I.range_t
table_dump I.exact_t
table_dump I.slice_t
table_dump I.optional_t
table_modify I.lpm_t I.set 0 55
table_modify I.lpm_t I.set 7 55
table_delete I.lpm_t 1
table_delete I.lpm_t 1
table_delete I.lpm_t 99999
table_dump I.lpm_t
table_num_entries I.lpm_t
table_reset_default I.exact_t
table_dump I.exact_t
table_clear I.lpm_t
table_dump I.lpm_t
table_dump nothing
counter_read nothing 0
mc_mgrp_create 1
mc_node_create 5 1 2 3
mc_node_create 6 1
mc_node_associate 1 0
mc_node_associate 1 1
mc_dump
mc_node_dissociate 1 1
mc_node_destroy 1
mc_node_destroy 7
mc_mgrp_create 1
mc_node_update 0 4 5
mc_dump
mc_mgrp_destroy 1
mc_mgrp_destroy 1
mirroring_add 5 2
mirroring_get 5
mirroring_add_mc 6 1
mirroring_get 6
mirroring_get 7
mirroring_delete 5
mirroring_delete 5
set_queue_depth 10
set_queue_rate 100
show_ports
swap_configs
"""
METERS = """
meter_get_rates I.array 0
meter_set_rates I.array 0 0.5:10 1:20
meter_get_rates I.array 0
meter_set_rates I.array 99999 0.5:10 1:20
meter_array_set_rates I.array 0.25:1 0.5:2
meter_get_rates I.array 1
meter_set_rates I.entries 0 0.5:10 1:20
meter_get_rates nothing 1
table_add I.entries I.note 5 =>
table_dump I.entries
"""
RESET = """
table_add I.kind mark 3 => 4
table_add I.routes forward 0x0a000000/8 => 3 0x010203040506
table_set_default I.kind mark 9
table_num_entries I.acl
table_delete I.acl 0
mc_mgrp_create 1
mirroring_add 5 2
counter_write I.routed 0 5 6
reset_state
table_dump I.kind
table_dump I.routes
table_dump I.acl
mc_dump
mirroring_get 5
table_add I.acl mark 3 1 => 4
table_add I.kind mark 3 => 4
"""
CLEAR = """
table_num_entries I.acl
table_clear I.acl
table_num_entries I.acl
"""


def cli(port: int, commands: str) -> list[str]:
    run = subprocess.run(
        [*COMMAND_LINE, "--thrift-port", str(port)],
        input=commands.lstrip(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return (run.stdout + run.stderr).splitlines()


@pytest.mark.parametrize(
    ("program", "commands"),
    [
        ("selector", PROFILES),
        ("matching", ENTRIES),
        ("rates", METERS),
        ("router", RESET),
        ("router", CLEAR),
    ],
)
def test_same_answers(program: str, commands: str) -> None:
    json = PROGRAMS / f"{program}.json"
    with Process(str(json)) as p, bmv2(json) as port:
        time.sleep(0.5)
        ours, theirs = cli(p.thrift, commands), cli(port, commands)
    assert len(ours) > commands.count("\n")
    assert ours == theirs
