"""The figures and tables of the papers: what they print, and what comes out here.

An experiment is a small module (`scenarios.papers.registry` lists them): a setting, tasks that give
rows, panels to draw them in. What the paper prints is in ``values.yaml`` and nowhere else; whether
the two agree is computed (`scenarios.papers.verdicts`).
"""
