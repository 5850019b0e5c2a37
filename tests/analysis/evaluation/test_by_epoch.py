# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from analysis.evaluation.by_epoch import Fault, by_epoch, by_epoch_line
from testbed.arrays import IntArray


def links(*epochs: list[int]) -> list[IntArray]:
    return [np.array(each, np.int32) for each in epochs]


def test_a_fault_is_found_at_the_end_of_the_first_epoch_that_blames_it() -> None:
    faults = [Fault(4, 2.0, 8.0), Fault(6, 3.0, 8.0), Fault(8, 0.0, 8.0)]
    blamed = links([4], [4, 6], [4, 6, 2], [])
    found = by_epoch(blamed, faults, 2.0, undirected=False)
    # Link 4 in the second epoch, which ends at 4 s; 6 in the same. Blamed before: false alarms.
    assert found["faults"] == 3 and found["found"] == 2
    assert found["seconds_to_detect"] == ((4 - 2) + (4 - 3)) / 2
    assert found["false_alarms"] == (1 + 0 + 1 + 0) / 4
    assert by_epoch_line(found) == (
        "asked after each epoch: found 2 of 3 faulty links, 1.5 s after they began on average; "
        "0.5 false alarms an epoch"
    )


def test_directions_count_as_one_for_methods_that_do_not_tell_them_apart() -> None:
    faults, blamed = [Fault(4, 0.0, 4.0)], links([4, 5], [5])
    both, one = (by_epoch(blamed, faults, 2.0, undirected=each) for each in (True, False))
    assert both["false_alarms"] == 0 and one["false_alarms"] == 1
    assert both["seconds_to_detect"] == one["seconds_to_detect"] == 2


def test_a_link_blamed_between_two_outages_is_a_false_alarm() -> None:
    faults = [Fault(3, 0.0, 2.0), Fault(3, 6.0, 8.0)]
    found = by_epoch(links([], [3], [], [3]), faults, 2.0, undirected=False)
    assert found["faults"] == found["found"] == 1
    assert found["seconds_to_detect"] == 8 and found["false_alarms"] == 0.25


def test_a_verdict_of_several_epochs_may_blame_what_was_broken_in_any_of_them() -> None:
    faults, blamed = [Fault(3, 2.0, 4.0)], links([], [], [3], [3])
    found = by_epoch(blamed, faults, 2.0, undirected=False, window=2)
    assert found["found"] == 1 and found["seconds_to_detect"] == 6 - 2
    assert found["false_alarms"] == 0.25  # in the fourth it is about the third and the fourth


def test_nothing_found_has_no_time() -> None:
    found = by_epoch(links([], []), [Fault(3, 0.0, 4.0)], 2.0, undirected=False)
    assert found["seconds_to_detect"] is None and found["false_alarms"] == 0
    assert by_epoch_line(found).startswith("asked after each epoch: found 0 of 1 faulty links; ")
