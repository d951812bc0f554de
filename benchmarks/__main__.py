"""Run benchmarks: tables on screen, in docs/benchmarks/<name>.md and in results/<name>.json."""

import importlib
import json
import platform
import sys
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(
    p.stem
    for p in HERE.glob("*.py")
    if not p.stem.startswith("_") and "\ndef main(" in p.read_text()
)


def print_table(name: str, rows: list[dict]) -> None:
    print(f"\n{name}")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_text(row.get(c, "")) for c in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in [columns, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def write_table(name: str, rows: list[dict], path: Path) -> None:
    """Write rows as a Markdown table."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_text(row.get(c, "")) for c in columns] for row in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    about = ", ".join(machine().values())
    note = f"Written by `python -m benchmarks {name}` ({about})."
    comments = "Comments are in [benchmarks/README.md](../../benchmarks/README.md)."
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"# `{name}`\n\n{note} {comments}\n\n{table}\n")


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def machine() -> dict:
    model = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")),
        platform.processor(),
    )
    return {"date": str(date.today()), "cpu": model, "python": platform.python_version()}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        start = time.time()
        rows = importlib.import_module(f"benchmarks.{name}").main()
        print_table(f"{name} ({time.time() - start:.0f} s)", rows)
        write_table(name, rows, HERE.parent / "docs" / "benchmarks" / f"{name}.md")
        results = HERE / "results"
        results.mkdir(exist_ok=True)
        (results / f"{name}.json").write_text(json.dumps({**machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
