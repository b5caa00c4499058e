"""What an array is to the type checker: every module's type for one."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
