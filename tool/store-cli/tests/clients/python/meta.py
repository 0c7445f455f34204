"""All that meta-memcache offers, a client that speaks meta commands alone, against the server at HOST PORT."""

import random
import sys
import time

from meta_memcache import CacheClient, Key, ServerAddress, SetMode, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, RecachePolicy, StalePolicy

host, port = sys.argv[1], int(sys.argv[2])


def same(got, expected):
    assert got == expected, f"got {got!r}, expected {expected!r}"


def gone(get):
    """Waits until a value has expired."""
    for _ in range(1000):
        if get() is None:
            return
        time.sleep(0.01)
    raise AssertionError("it never expires")


client = CacheClient.cache_client_from_servers(
    servers=[ServerAddress(host, port)],
    # It asks the kernel for a receive buffer of that size, and loopback's segments of 64 KiB must fit.
    connection_pool_factory_fn=connection_pool_factory_builder(
        connection_timeout=30, recv_timeout=30, read_buffer_size=1 << 20
    ),
)

# Values and their types.
same(client.get("meta-none"), None)
for name, value in [("bytes", b"v"), ("text", "täxt"), ("number", 41), ("packed", {"a": [1, 2.5, None]}), ("empty", b"")]:
    same(client.set(f"meta-{name}", value, ttl=1000), True)
    same(client.get(f"meta-{name}"), value)

# Modes of a set.
same(client.set("meta-mode", b"b", ttl=1000, set_mode=SetMode.ADD), True)
same(client.set("meta-mode", b"x", ttl=1000, set_mode=SetMode.ADD), False)
same(client.set("meta-mode", b"c", ttl=1000, set_mode=SetMode.APPEND), True)
same(client.set("meta-mode", b"a", ttl=1000, set_mode=SetMode.PREPEND), True)
same(client.get("meta-mode"), b"abc")
same(client.set("meta-mode", b"r", ttl=1000, set_mode=SetMode.REPLACE), True)
same(client.set("meta-other", b"r", ttl=1000, set_mode=SetMode.REPLACE), False)
same(client.refill("meta-mode", b"x", ttl=1000), False)
same(client.get("meta-mode"), b"r")

# Compare and swap.
value, cas = client.get_cas("meta-mode")
same(value, b"r")
same(client.set("meta-mode", b"s", ttl=1000, cas_token=cas), True)
same(client.set("meta-mode", b"t", ttl=1000, cas_token=cas), False)
same(client.delete("meta-mode", cas_token=cas), False)
cas = client.set_cas("meta-mode", b"u", ttl=1000)
same(client.get_cas("meta-mode"), (b"u", cas))

# Many keys at once, also such as the client sends in base64.
keys = [Key(f"meta-many-{n}") for n in range(600)]
for n, key in enumerate(keys[:300]):
    same(client.set(key, n, ttl=1000), True)
same(client.multi_get(keys), {key: n if n < 300 else None for n, key in enumerate(keys)})
unicode = Key("schlüssel mit raum")
same(client.set(unicode, b"v", ttl=1000), True)
same(client.get(unicode), b"v")
same(client.multi_get([unicode, keys[0]]), {unicode: b"v", keys[0]: 0})
same(client.delete(unicode), True)

# Numbers.
same(client.delta("meta-number", 1), True)
same(client.delta_and_get("meta-number", 8), 50)
same(client.delta_and_get("meta-number", -100), 0)
same(client.delta("meta-none", 1), False)
same(client.delta_initialize_and_get("meta-new", delta=5, initial_value=7, initial_ttl=1000), 7)
same(client.delta_initialize_and_get("meta-new", delta=5, initial_value=7, initial_ttl=1000), 12)

# What is not answered comes all the same, and the next answer is still the right one.
for n in range(1000):
    client.set("meta-quiet", n, ttl=1000, no_reply=True)
client.delta("meta-quiet", 1, no_reply=True)
client.delete("meta-none", no_reply=True)
client.touch("meta-quiet", 1000, no_reply=True)
same(client.get("meta-quiet"), 1000)

# Deletes.
same(client.delete("meta-text"), True)
same(client.delete("meta-text"), False)
same(client.invalidate("meta-text"), True)
same(client.get("meta-text"), None)

# Long values. The client packs what can be packed, so these cannot.
noise = random.Random(1)
for length in (1, 1000, 100_000, 1_000_000):
    value = noise.randbytes(length)
    same(client.set("meta-long", value, ttl=1000), True)
    same(client.get("meta-long"), value)

# Expiry, and putting it off.
same(client.set("meta-short", b"v", ttl=1), True)
for _ in range(100):
    # A second may be over at once, by a clock of whole seconds.
    same(client.set("meta-kept", b"v", ttl=1), True)
    if client.touch("meta-kept", 1000):
        break
else:
    raise AssertionError("a value that is there cannot be touched")
same(client.touch("meta-none", 1000), False)
gone(lambda: client.get("meta-short"))
same(client.get("meta-kept"), b"v")

# One of many gets the right to fetch anew: on a miss, before the end, and after an invalidation.
lease = LeasePolicy(ttl=1000, miss_retries=1, miss_retry_wait=0.01)
same(client.get_or_lease("meta-lease", lease_policy=lease), None)
same(client.set("meta-lease", b"v", ttl=1000), True)
same(client.get_or_lease("meta-lease", lease_policy=lease), b"v")
recache = RecachePolicy(ttl=2000)
same(client.get("meta-lease", recache_policy=recache), None)
same(client.get("meta-lease", recache_policy=recache), b"v")
stale = StalePolicy(mark_stale_on_deletion_ttl=1000)
same(client.delete("meta-lease", stale_policy=stale), True)
same(client.get("meta-lease"), None)
same(client.get("meta-lease"), b"v")

print("passed")
