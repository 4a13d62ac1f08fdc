"""Measurements of runtrue beside the bare floor of the same machine and, if asked for, beside other engines.

`python -m benchmarks` measures; `python -m benchmarks --help` lists what can be chosen. Nothing here is a test: a
figure depends on the machine and on what else it does, so every figure is a median of alternating rounds with its
spread, and stands beside the floor of the same round.
"""
