"""`python -m runtrue` is the `runtrue` command."""

import sys

from runtrue.cli import main

sys.exit(main())
