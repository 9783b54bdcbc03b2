"""The corpus of the parsers of stored JSON, replayed (fuzz/fuzz_python.py), and a short walk from
it by random changes; `make fuzz-python` walks farther."""

from __future__ import annotations

import os
import random
import time

import pytest
from fuzz.fuzz_python import CHECKS

_CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuzz", "corpus")
_HANG_S = 10


def corpus(target):
    directory = os.path.join(_CORPUS, target)
    inputs = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            inputs[name] = file.read()
    return inputs


@pytest.mark.parametrize("target", sorted(CHECKS))
def test_the_corpus_has_no_findings(target):
    inputs = corpus(target)
    assert len(inputs) >= 15
    for name, content in inputs.items():
        start = time.monotonic()
        CHECKS[target](content)
        assert time.monotonic() - start < _HANG_S, name


@pytest.mark.parametrize("target", sorted(CHECKS))
def test_changed_inputs_have_no_findings(target):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    draw = random.Random(seed)
    inputs = list(corpus(target).values())
    for _ in range(3000):
        content = bytearray(draw.choice(inputs))
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(content) + 1)
            change = draw.randrange(4)
            if change == 0 and at < len(content):
                content[at] ^= 1 << draw.randrange(8)
            elif change == 1:
                del content[at : at + draw.randrange(8)]
            elif change == 2:
                content[at:at] = draw.choice([b"null", b"-1", b"1e999", b"[]", b"{}", b'"\\u0000"'])
            else:
                other = draw.choice(inputs)
                start = draw.randrange(len(other) + 1)
                content[at:at] = other[start : start + 20]
        CHECKS[target](bytes(content))
