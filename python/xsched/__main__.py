"""``python -m xsched …`` is the ``xsched`` command."""

import os
import sys

from ._errors import XSchedError
from ._library import command

try:
    path = command()
    os.execv(path, [path, *sys.argv[1:]])
except (OSError, XSchedError) as error:
    sys.exit(f"xsched: {error}")
