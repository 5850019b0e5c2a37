# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of the papers: their printed values beside the values computed here.

``values.yaml`` declares every figure: its setting, its panels, the values that its paper prints
and the reasons for differences. The modules named after papers have the tasks that compute the
rows, and `scenarios.papers.registry` joins the two. `scenarios.papers.verdicts` computes whether
our values agree with the paper's.
"""
