#!/usr/bin/env python3
"""Fails when a file, header or function is larger than docs/architecture.md allows, when a CMake file
globs or sets global flags, or when a pure core has less than two lines of test per line of code."""
import pathlib
import re
import sys

ROOTS = ('common', 'discovery', 'kernels', 'launcher', 'worker', 'examples', 'bench', 'test',
         'fuzz')
COLUMNS, FUNCTION, HEADER, SOURCE = 100, 70, 250, 600
CORES = {
    'launcher/core': ('test/launcher/core', 'test/scenarios', 'test/sim'),
    'worker/core': ('test/worker/core',),
}
GLOBAL_CMAKE = re.compile(r'file\s*\(\s*GLOB|^\s*(include_directories|link_directories|'
                          r'add_definitions|add_compile_options|link_libraries)\s*\(', re.M)
# A definition starts in the first column or in a class body, has a parameter list, and opens a
# brace at the end of a line; its end is the first line with a lone brace at the same depth.
START = re.compile(r'^( {0,4})(?=\S)(?!(?:if|for|while|switch|else|do|namespace|class|struct|enum|union|'
                   r'return|case|extern|TEST_CASE)\b)[\w:~<>,&*\[\]\s]+\(.*$|^( {0,2})(?=\S)TEST_CASE\(')


def function_lengths(lines):
    index = 0
    while index < len(lines):
        found = START.match(lines[index])
        if not found:
            index += 1
            continue
        opening = index
        while opening < len(lines) and opening - index < 12 and \
                not lines[opening].rstrip().endswith(('{', ';', '}')):
            opening += 1
        if opening >= len(lines) or not lines[opening].rstrip().endswith('{'):
            index = max(opening, index + 1)
            continue
        indent = found.group(1) if found.group(1) is not None else found.group(2)
        end = opening + 1
        while end < len(lines) and not re.match(indent + r'}', lines[end]):
            end += 1
        yield index + 1, end - index + 1
        index = end + 1


def code_lines(folders, suffixes):
    total = 0
    for folder in folders:
        for path in pathlib.Path(folder).rglob('*'):
            # Whole jobs are simulated there, not the core alone.
            if path.suffix in suffixes and not path.is_relative_to('test/sim/job'):
                lines = path.read_text(encoding='utf-8').splitlines()
                total += sum(1 for line in lines
                             if line.strip() and not line.lstrip().startswith(('//', '#')))
    return total


def check_file(path):
    problems = []
    lines = path.read_text(encoding='utf-8').splitlines()
    limit = HEADER if path.suffix == '.h' else SOURCE
    if len(lines) > limit:
        problems.append(f'{path}: {len(lines)} lines, {limit} at most')
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            problems.append(f'{path}:{number}: {len(line)} columns, {COLUMNS} at most')
    for number, length in function_lengths(lines):
        if length > FUNCTION:
            problems.append(f'{path}:{number}: a function of {length} lines, {FUNCTION} at most')
    return problems


def main():
    problems = []
    for root in ROOTS:
        for path in sorted(pathlib.Path(root).rglob('*')):
            if path.suffix in ('.h', '.cc', '.cu'):
                problems += check_file(path)
    for path in [pathlib.Path('CMakeLists.txt'), *pathlib.Path('cmake').glob('*.cmake'),
                 *(p for root in ROOTS for p in pathlib.Path(root).rglob('CMakeLists.txt'))]:
        if GLOBAL_CMAKE.search(path.read_text(encoding='utf-8')):
            problems.append(f'{path}: targets only: no GLOB, no global flags or directories')
    for core, tests in CORES.items():
        code = code_lines([core], ('.h', '.cc'))
        test = code_lines(tests, ('.h', '.cc', '.txt'))
        ratio = test / max(code, 1)
        print(f'{core}: {code} lines of code, {test} of test, {ratio:.2f} to 1')
        if ratio < 2:
            problems.append(f'{core}: {ratio:.2f} lines of test per line of code, 2 at least')
    print('\n'.join(problems), end='\n' if problems else '')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
