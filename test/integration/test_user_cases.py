"""docs/user-cases.md: every test that it names exists, and every case that a test names is in it."""

import ast
import pathlib
import re
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$")
# A docstring that begins like this is a claim.
CLAIM = re.compile(r"Cases? (\d+(?:(?:, | and )\d+)*)\b")


def rows(text):
    """number -> the last column."""
    found = {}
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            if int(match.group(1)) in found:
                raise ValueError(f"case {match.group(1)} has two lines")
            found[int(match.group(1))] = match.group(3)
    return found


def names_in(source):
    """Classes and their methods, `Class` and `Class.method`."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{inner.name}" for inner in node.body
                      if isinstance(inner, ast.FunctionDef)}
    return names


def claims_in(source):
    """(case, class) of every class whose docstring names cases."""
    for node in ast.parse(source).body:
        match = isinstance(node, ast.ClassDef) and CLAIM.match(ast.get_docstring(node) or "")
        for number in re.findall(r"\d+", match.group(1)) if match else []:
            yield int(number), node.name


def exists(reference):
    file, _, name = reference.partition(": ")
    if file.endswith(".txt"):
        return (HERE.parent / "scenarios" / file).is_file()
    path = ROOT / file if file.endswith(".cc") else HERE / file
    if not path.is_file() or not name:
        return False
    source = path.read_text(encoding="utf-8")
    return f'TEST_CASE("{name}' in source if file.endswith(".cc") else name in names_in(source)


def wrong_places(table):
    """What the last columns name and nobody has, and lines that name nothing."""
    wrong = []
    for number, places in table.items():
        tests = [t for t in re.findall(r"`([^`]+)`", places) if re.match(r"[\w/]+\.\w+(: |$)", t)]
        wrong += [f"{number}: {test}" for test in tests if not exists(test)]
        if not tests and not re.match(r"(later|not here): \S", places):
            wrong.append(f"{number}: neither a test nor a reason")
    return wrong


class Index(unittest.TestCase):
    TABLE = rows((ROOT / "docs" / "user-cases.md").read_text(encoding="utf-8"))

    def test_what_it_names_exists(self):
        self.assertGreater(len(self.TABLE), 90)
        self.assertEqual(wrong_places(self.TABLE), [])

    def test_numbers_grow(self):
        self.assertEqual(list(self.TABLE), sorted(self.TABLE))

    def test_what_claims_a_case_is_listed_with_it(self):
        claims = [(number, f"{path.name}: {name}") for path in sorted(HERE.glob("test_*.py"))
                  for number, name in claims_in(path.read_text(encoding="utf-8"))]
        self.assertGreater(len(claims), 40)
        self.assertEqual([c for c in claims if f"`{c[1]}" not in self.TABLE.get(c[0], "")], [])

    def test_a_wrong_name_is_found(self):
        for places in ("`test_scaling.py: NoSuchClass`", "`test_scaling.py: GrowthFromOne.no`",
                       "`no_such_scenario.txt`", "`test_nowhere.py: Anything`", "some day",
                       "`test/worker/api_test.cc: no such case`"):
            self.assertEqual(len(wrong_places({1: places})), 1, places)
        self.assertEqual(wrong_places({1: "`test_scaling.py: GrowthFromOne`"}), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
