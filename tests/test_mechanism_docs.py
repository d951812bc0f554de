"""The page on mechanisms runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "mechanisms.md"


def test_snippets_run():
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
    assert code.count("with pm.Model()") >= 4
    exec(compile(code, str(PAGE), "exec"), {})
