#!/usr/bin/env python3
"""Fails when a file includes what its layer may not, or a pure core reaches for the outside world.

The arrows, as docs/architecture.md draws them:
common <- {proto, discovery, kernels, launcher/core, worker/core} <- {launcher, worker} <- the rest.
"""
import pathlib
import re
import sys

# What the sources of each folder may include of ours; the longest matching prefix counts. The
# generated headers of proto/ are included as muster/v1/..., the public ones as muster/....
ALLOWED = {
    'common': {'common'},
    'discovery': {'common', 'discovery'},
    'kernels': {'kernels'},
    'launcher/core': {'common', 'launcher/core'},
    'worker/core': {'common', 'worker/core', 'public'},
    'worker/include': {'public'},
    'launcher': {'common', 'proto', 'discovery', 'launcher', 'launcher/core'},
    'worker': {'common', 'proto', 'kernels', 'worker', 'worker/core', 'public'},
    'examples': {'public', 'examples'},
    'bench': None,
    'test': None,
    'fuzz': None,
}
# A folder that only values may be taken from: discovery's results are part of the command line.
PURE = ('launcher/core', 'worker/core')
BANNED = {
    r'#include <(mutex|shared_mutex|condition_variable|thread|atomic|future|fstream|iostream|random'
    r'|csignal|unistd\.h|sys/.*)>': 'no threads, locks or I/O in a core',
    r'#include [<"](grpc|google/protobuf|gloo|nccl|cuda|spdlog|muster/v1)':
        'no transport, proto or GPU in a core',
    r'#include "common/(loop|log|process|mutex|secret|trace|unique_fd|random)\.h"':
        'a core takes time and chance as arguments and does no I/O',
    r'_clock::now|\btime\(|sleep_for|getenv|std::rand|random_device':
        'time and chance are arguments',
    r'std::unordered_(map|set)': 'iteration order must be reproducible',
}
# The names of signals, for messages; nothing is sent or caught.
EXEMPT = {('launcher/core', '#include <csignal>')}
SLEEP = re.compile(r'sleep_for|usleep\(|\bsleep\(|_clock::now')
INCLUDE = re.compile(r'#include "([^"]+)"')


def layer_of(path):
    text = str(path)
    return max((name for name in ALLOWED if text == name or text.startswith(name + '/')),
               key=len, default=None)


def target_of(include, folder):
    if include.startswith('muster/v1/'):
        return 'proto'
    if include.startswith('muster/'):
        return 'public'
    layer = layer_of(include)
    if layer is None and (folder / include).exists():
        return layer_of(folder / include)
    return layer


def check_includes(path, layer, number, line):
    found = INCLUDE.match(line)
    allowed = ALLOWED[layer]
    if not found or allowed is None:
        return []
    target = target_of(found.group(1), path.parent)
    if target is None or target in allowed:
        return []
    return [f'{path}:{number}: {layer} may not include {target}: {line.strip()}']


def check_purity(path, layer, number, line):
    if layer not in PURE or (layer, line.strip()) in EXEMPT:
        return []
    code = line.split('//')[0]
    return [f'{path}:{number}: {why}: {line.strip()}'
            for pattern, why in BANNED.items() if re.search(pattern, code)]


def check_core_tests(path, number, line):
    """Tests of the cores run in virtual time."""
    in_scope = str(path).startswith(('test/launcher/core', 'test/worker/core', 'test/sim'))
    if in_scope and SLEEP.search(line.split('//')[0]):
        return [f'{path}:{number}: tests of a core neither sleep nor read a clock: {line.strip()}']
    return []


def main():
    problems = []
    for root in sorted({name.split('/')[0] for name in ALLOWED}):
        for path in sorted(pathlib.Path(root).rglob('*')):
            if path.suffix not in ('.h', '.cc', '.cu'):
                continue
            layer = layer_of(path)
            for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
                problems += check_includes(path, layer, number, line)
                problems += check_purity(path, layer, number, line)
                problems += check_core_tests(path, number, line)
    print('\n'.join(problems), end='\n' if problems else '')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
