"""How large the project is, room by room, and how long `make test` takes: house.json.

Tokens are counted as tests/test_budget.py does. `make test` is run as often as asked, on an
otherwise idle machine. From the repository's root: ``python benchmarks/house.py [TIMES]``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

from common import ROOT, about, save

sys.path.insert(0, str(ROOT))


def main() -> None:
    from tests.test_budget import legibility, measured

    rooms = Counter[str]()
    for path in (ROOT / "src" / "anmi").rglob("*.py"):
        room, *rest = path.relative_to(ROOT / "src" / "anmi").parts
        rooms[room if rest else "(top)"] += legibility(path.read_text(encoding="utf-8"))["tokens"]
    seconds = []
    for _ in range(int((sys.argv[1:] or ["0"])[0])):
        began = time.monotonic()
        subprocess.run(["make", "test"], cwd=ROOT, check=True)
        seconds.append(round(time.monotonic() - began))
    found = {**measured(), "rooms": dict(rooms.most_common()), "make_test_seconds": seconds}
    save("house", {"machine": about()["machine"], **found})


if __name__ == "__main__":
    main()
