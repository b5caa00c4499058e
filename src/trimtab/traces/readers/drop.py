"""Jobs that are submitted by dropping a file of them into a folder.

    drop = Drop("incoming")
    for path in drop.new():
        work = traces.read(path)

Any kind of file that `traces.read` knows will do. Whoever writes one gives it a name that ends in
.part, or begins with a dot, until it is complete; without that, two looks must find it the same.
"""

import json
import os
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.files import whole

STATE_VERSION = 1


class Drop:
    """Files that appear in a folder, each told once by its name, also across restarts.

    Nothing is told of a name that begins with a dot or ends in .part, nor of a file that is empty
    or was still growing: a file counts when two looks in a row find it the same. What was told is
    kept in `state` before it is told, so that a crash may lose a file but submits none twice.
    """

    def __init__(self, folder: str | Path, *, state: str | Path | None = None) -> None:
        self.folder = Path(folder)
        self.state = Path(state) if state else self.folder / ".trimtab-told.json"
        self._told, self._looks = _restored(self.state)

    def new(self) -> list[Path]:
        """The complete files that were not told before, oldest first; `traces.read` reads each."""
        looks = self._look()
        whole = [name for name, look in looks.items() if self._looks.get(name) == look and look[0]]
        whole.sort(key=lambda name: (looks[name][1], name))
        self._told |= set(whole)
        self._looks = {name: look for name, look in looks.items() if name not in self._told}
        self._save()
        return [self.folder / name for name in whole]

    def _look(self) -> dict[str, list[int]]:
        """Size and time of change of every file that may be told."""
        looks: dict[str, list[int]] = {}
        try:
            for entry in os.scandir(self.folder):
                if entry.name.startswith(".") or entry.name.endswith(".part"):
                    continue
                if entry.name not in self._told and entry.is_file():
                    found = entry.stat()
                    looks[entry.name] = [found.st_size, found.st_mtime_ns]
        except OSError as error:
            raise TraceError(
                f"{self.folder}: cannot be looked into ({error.strerror}); make the folder first"
            ) from None
        return looks

    def _save(self) -> None:
        kept = {"version": STATE_VERSION, "told": sorted(self._told), "looks": self._looks}
        try:
            with whole(self.state) as place:
                place.write_text(json.dumps(kept))
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
            raise TraceError(f"{self.state}: {problem}; give state= a path that can") from None


def _restored(path: Path) -> tuple[set[str], dict[str, list[int]]]:
    try:
        kept = json.loads(path.read_text())
        if kept["version"] != STATE_VERSION:
            raise ValueError(f"version={kept['version']}, want {STATE_VERSION}")
        return set(kept["told"]), dict(kept["looks"])
    except FileNotFoundError:
        return set(), {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(
            f"{path}: does not tell what was read before ({error}); remove it to read every file "
            f"in the folder again"
        ) from None
