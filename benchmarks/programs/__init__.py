"""The processes that are measured. Each answers questions on stdin, a JSON line for a JSON line.

A worker and a client of one engine are the same program, started with or without `--slots`. A program imports nothing
of this package but `talk`, so that it also runs in an environment that holds another engine and not runtrue.
"""
