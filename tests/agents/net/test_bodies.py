"""Compressed bodies are decompressed in small steps, within the limits."""

import gzip
import subprocess
import sys
import zlib

import pytest

from agents.net import FetchFailed, Limits
from agents.net.client import MAX_MEMBERS, Body
from agents.net.transport import Deadline
from tests.agents.net.world import answer
from tests.table import every_row

SITE = "http://site.example.com/"
TEXT = b"".join(b"line %d of something that packs well\n" % n for n in range(500))
MEBIBYTE = 1024 * 1024


def raw_deflate(data):
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(data) + engine.flush()


def bomb(mebibytes):
    """A gzip stream of zeros, made without packing them all: one block that stands for itself, repeated."""
    engine = zlib.compressobj(9, wbits=31)
    start = engine.compress(b"\0" * MEBIBYTE) + engine.flush(zlib.Z_FULL_FLUSH)
    block = engine.compress(b"\0" * MEBIBYTE) + engine.flush(zlib.Z_FULL_FLUSH)
    return start + block * (mebibytes - 1)


def unpacked(encoding, data, *, step=65536, limits=Limits()):  # noqa: B008
    body = Body(encoding, limits, Deadline(30))
    pieces = [piece for at in range(0, len(data), step) for piece in body.feed(data[at : at + step])]
    body.finish()
    return b"".join(pieces)


def failure(*args, **options):
    with pytest.raises(FetchFailed) as failed:
        unpacked(*args, **options)
    return failed.value.reason


PACKED = [
    ("", TEXT),
    ("identity", TEXT),
    ("gzip", gzip.compress(TEXT)),
    ("GZIP", gzip.compress(TEXT)),
    ("x-gzip", gzip.compress(TEXT)),
    ("deflate", zlib.compress(TEXT)),
    ("deflate", raw_deflate(TEXT)),
    ("deflate, gzip", gzip.compress(zlib.compress(TEXT))),
    ("gzip,identity,gzip", gzip.compress(gzip.compress(TEXT))),
    ("gzip", gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    ("gzip", gzip.compress(TEXT) + b"\0" * 100),
    ("deflate", zlib.compress(TEXT) + b"tail"),
]


@every_row(("encoding", "data"), PACKED)
@every_row("step", [65536, 7, 1])
def test_body_is_the_same_for_every_encoding_and_piece_size(encoding, data, step):
    assert unpacked(encoding, data, step=step) == TEXT


def test_both_clients_decompress(fetch, world):
    world.serve("site.example.com", answer(200, gzip.compress(TEXT), "Content-Encoding: gzip"))

    assert fetch(SITE).content == TEXT


@every_row(
    ("encoding", "data"),
    [
        ("br", b"x"),
        ("zstd", b"x"),
        ("gzip, br", b"x"),
        ("gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(TEXT)))),
        ("gzip", TEXT),
        ("gzip", gzip.compress(TEXT)[:-9]),
        ("gzip", gzip.compress(TEXT)[:100] + b"damaged"),
        ("deflate", b"\xff\xff\xff"),
        ("deflate, gzip", gzip.compress(zlib.compress(TEXT)[:-10])),
        ("gzip", gzip.compress(b"") * (MAX_MEMBERS + 1)),
    ],
)
def test_damaged_or_unknown_encoding_fails(encoding, data):
    assert failure(encoding, data) == "encoding"


@pytest.mark.parametrize(
    ("encoding", "data", "limits", "reason"),
    [
        ("gzip", gzip.compress(TEXT), Limits(max_bytes=len(TEXT) - 1), "too_large"),
        ("gzip", bomb(1000), Limits(max_bytes=100 * MEBIBYTE), "ratio"),
        ("gzip", bomb(1000), Limits(max_ratio=2000), "too_large"),
        ("gzip, gzip", gzip.compress(bomb(1000)), Limits(max_ratio=10**9), "too_large"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"") * 500_000), Limits(), "encoding"),
        ("deflate", raw_deflate(b"\0" * 8 * MEBIBYTE), Limits(max_ratio=2000), "too_large"),
        ("", b"x" * 1001, Limits(max_bytes=1000), "too_large"),
    ],
    ids=["gzip", "ratio", "bomb", "bomb-in-gzip", "empty-members", "deflate", "plain"],
)
def test_decompression_stops_at_the_limit(encoding, data, limits, reason):
    assert failure(encoding, data, limits=limits) == reason


def test_high_ratio_is_allowed_below_a_mebibyte():
    assert unpacked("gzip", gzip.compress(b"\0" * MEBIBYTE)) == b"\0" * MEBIBYTE


def test_empty_chunk_yields_nothing():
    body = Body("br", Limits(), Deadline(30))

    assert list(body.feed(b"")) == []
    body.finish()


def test_nothing_is_decompressed_after_the_deadline():
    body = Body("", Limits(), Deadline(0))

    with pytest.raises(FetchFailed, match="deadline"):
        list(body.feed(b"x"))


MEASURE = """
import asyncio, sys
import django
from django.conf import settings
settings.configure(LQOPS_NET_ALLOW_HOSTS=[], LQOPS_NET_ALLOW_NETWORKS=["127.0.0.1/32"], LQOPS_CA_FILE="")
from agents.net import AsyncSafeClient, FetchFailed, Limits, SafeClient

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

options = {"limits": Limits(max_ratio=10**6)}
url, kind = sys.argv[1:]
before = peak()
try:
    if kind == "sync":
        SafeClient(**options).get(url)
    else:
        asyncio.run(AsyncSafeClient(**options).get(url))
except FetchFailed as failed:
    print(failed.reason, peak() - before)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_decompression_bomb_uses_little_memory(world, kind):
    packed = bomb(1024)
    assert 900_000 < len(packed) < 1_200_000
    server = world.serve("site.example.com", answer(200, packed, "Content-Encoding: gzip"))
    command = [sys.executable, "-c", MEASURE, f"http://127.0.0.1:{server.port}/", kind]

    reason, kibibytes = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()

    assert reason == "too_large"
    assert int(kibibytes) < 50 * 1024
    print(f"peak memory grew by {int(kibibytes) / 1024:.1f} MiB ({kind} client)")
