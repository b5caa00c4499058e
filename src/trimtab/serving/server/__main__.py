"""A server as a process: `python -m trimtab.serving.server ADDRESS`."""

import sys

from trimtab.serving.server.server import main

sys.exit(main())
