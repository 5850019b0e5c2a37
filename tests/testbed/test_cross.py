# SPDX-License-Identifier: Apache-2.0
"""All C of a virtual run compiles for other processors and for macOS, without a warning."""

from __future__ import annotations

import pytest

from tests.platform_wheels import PLATFORMS, Platform, compiled, texts


@pytest.mark.nightly
@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.folder)
def test_what_a_virtual_run_needs_compiles(platform: Platform) -> None:
    everywhere = [text for text in texts("canary_testbed") if not text.linux]
    assert len(everywhere) > 20 and {"virtual", "virtual-4"} <= {text.name for text in everywhere}
    for text in everywhere:
        assert compiled(text, platform, "-Wall", "-Wextra")
