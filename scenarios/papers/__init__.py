"""The figures and tables of the papers: what they print, and what comes out here.

``values.yaml`` declares every figure: its setting, its panels, the values that its paper prints
and the reasons for differences. The modules named after papers have the tasks that compute the
rows, and `scenarios.papers.registry` joins the two. Whether ours and the paper's agree is computed
(`scenarios.papers.verdicts`).
"""
