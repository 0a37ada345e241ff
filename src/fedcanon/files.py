"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def private_file(path: Path) -> BinaryIO:
    """A new file that only its owner may read, from its first moment on.

    Raises:
        FileExistsError: There is such a file already.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
