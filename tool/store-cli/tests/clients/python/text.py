"""All that two clients of memcached's protocol offer, against the server at HOST PORT."""

import sys

import memcache
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError

host, port = sys.argv[1], int(sys.argv[2])


def same(got, expected):
    assert got == expected, f"got {got!r}, expected {expected!r}"


def refused(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def pymemcache(client):
    client.flush_all(noreply=False)
    same(client.get("k"), None)
    same(client.set("k", b"v", noreply=False), True)
    same(client.get("k"), b"v")
    same(client.add("k", b"w", noreply=False), False)
    same(client.replace("k", b"w", noreply=False), True)
    same(client.append("k", b"2", noreply=False), True)
    same(client.prepend("k", b"0", noreply=False), True)
    value, unique = client.gets("k")
    same(value, b"0w2")
    same(client.cas("k", b"x", unique, noreply=False), True)
    same(client.cas("k", b"y", unique, noreply=False), False)
    same(client.cas("none", b"y", unique, noreply=False), None)
    same(client.set_many({f"m{n}": b"%d" % n for n in range(500)}, noreply=False), [])
    same(client.get_many([f"m{n}" for n in range(0, 1000)]), {f"m{n}": b"%d" % n for n in range(500)})
    same(len(client.gets_many(["m1", "m2", "none"])), 2)
    same(client.incr("m41", 1, noreply=False), 42)
    same(client.decr("m41", 100, noreply=False), 0)
    same(client.incr("none", 1, noreply=False), None)
    same(client.touch("m1", 1000, noreply=False), True)
    same(client.touch("none", 1000, noreply=False), False)
    same(client.raw_command(b"gat 1000 m2", b"END\r\n").split(b"\r\n")[:2], [b"VALUE m2 0 1", b"2"])
    same(client.delete("m1", noreply=False), True)
    same(client.delete("m1", noreply=False), False)
    same(client.delete_many(["m2", "m3", "none"], noreply=False), True)
    same(client.set("gone", b"v", expire=-1, noreply=False), True)
    same(client.get("gone"), None)
    # Nothing is answered, and the next answer is still the right one.
    for n in range(1000):
        client.set("quiet", b"%d" % n, noreply=True)
    client.incr("quiet", 1, noreply=True)
    client.delete("none", noreply=True)
    client.touch("quiet", 0, noreply=True)
    same(client.get("quiet"), b"1000")
    for length in (0, 1, 1000, 100_000, 1_000_000):
        value = bytes(n * 7 % 251 for n in range(length))
        same(client.set("long", value, noreply=False), True)
        same(client.get("long"), value)
    refused(MemcacheServerError, lambda: client.set("long", bytes(1 << 21), noreply=False))
    refused(MemcacheIllegalInputError, lambda: client.set("with space", b"v", noreply=False))
    same(client.set("word", b"v", noreply=False), True)
    refused(MemcacheClientError, lambda: client.incr("word", 1, noreply=False))
    same(client.stats()[b"limit_maxbytes"] > 0, True)
    same(client.version().startswith(b"1.6.18"), True)
    same(client.flush_all(noreply=False), True)
    same(client.get_many(["k", "word", "quiet"]), {})
    client.quit()


def python_memcached():
    client = memcache.Client([f"{host}:{port}"])
    same(client.set("k", "text"), True)
    same(client.get("k"), "text")
    same(client.set("packed", {"a": [1, 2.5, None]}), True)
    same(client.get("packed"), {"a": [1, 2.5, None]})
    same(client.set("number", 41), True)
    same(client.incr("number"), 42)
    same(client.get("number"), 42)
    same(bool(client.add("k", "other")), False)
    same(client.append("k", "!"), True)
    same(client.gets("k"), "text!")
    same(client.cas("k", "new"), True)
    same(client.set_multi({f"p{n}": n for n in range(300)}, key_prefix="x-"), [])
    same(client.get_multi([f"p{n}" for n in range(300)], key_prefix="x-"), {f"p{n}": n for n in range(300)})
    same(client.set("squeezed", "a" * 100_000, min_compress_len=100), True)
    same(client.get("squeezed"), "a" * 100_000)
    same(client.touch("k", 1000), 1)
    same(client.delete_multi([f"p{n}" for n in range(300)], key_prefix="x-"), 1)
    same(client.get_multi(["p1"], key_prefix="x-"), {})
    same(int(client.get_stats()[0][1]["curr_items"]) > 0, True)
    client.flush_all()
    same(client.get("k"), None)
    client.disconnect_all()


pymemcache(Client((host, port)))
pymemcache(PooledClient((host, port), max_pool_size=4))
python_memcached()
print("passed")
