# SPDX-License-Identifier: Apache-2.0
"""Networks with a prompt, and pages in a browser that show a run or network while it is up."""
