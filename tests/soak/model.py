"""The long form of tests/model: three builders, one of them as late as can be."""

from __future__ import annotations

import sys
import time

from model.manifest_log import Model, explore

MODELS = {
    "cacheable, cacheable, submit": Model(("cacheable", "cacheable", "submit")),
    "cacheable, submit, sleepers": Model(("cacheable", "submit"), outsleeps_grace=True),
    "published, submit, submit": Model(("submit", "submit", "submit"), published_before=True),
    "published, cacheable, submit": Model(("submit", "cacheable", "submit"), published_before=True),
}


def main() -> int:
    failed = 0
    for name, model in MODELS.items():
        start = time.monotonic()
        found = explore(model)
        seconds = time.monotonic() - start
        print(f"{name}: {found.states} states, {seconds:.0f} s, fault: {found.fault or 'none'}")
        for step in found.trace:
            print(f"    {step}")
        failed += bool(found.fault)
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
