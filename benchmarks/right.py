"""How many kinds of silent errors are mended: the row ``kinds_mended`` of right.json, and one a kind.

A kind is mended where all tests that kinds.yml names for it pass. From the repository's root:

    python benchmarks/right.py
"""

from __future__ import annotations

import subprocess
import sys

import yaml

from common import ROOT, save_cases


def main() -> None:
    kinds = yaml.safe_load((ROOT / "benchmarks" / "kinds.yml").read_text(encoding="utf-8"))
    cases = []
    for kind, tests in kinds.items():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        mended = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
        note = f"{len(tests)} tests or files of tests"
        cases.append({"case": kind, "value": int(mended), "unit": "mended", "note": note})
    mended_kinds = sum(case["value"] for case in cases)
    total = {"case": "kinds_mended", "value": mended_kinds, "unit": f"of {len(cases)}"}
    save_cases(__file__, [total | {"note": "see the rows below"}, *cases])


if __name__ == "__main__":
    main()
