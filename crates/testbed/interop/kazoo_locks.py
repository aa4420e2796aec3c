"""The locks of kazoo. A key is a kind and a folder, such as `mutex:/lock/name`; leases are the session's."""

import sys

import driver
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout


class Kazoo:
    def __init__(self, address):
        self.client = KazooClient(hosts=address, timeout=10)
        self.client.start()
        self.locks = {}

    def lock(self, key, ttl_ms, timeout_ms):
        kind, path = key.split(":", 1)
        make = {
            "mutex": self.client.Lock,
            "read": self.client.ReadLock,
            "write": self.client.WriteLock,
            "election": lambda path, identifier: self.client.Election(path, identifier).lock,
        }[kind]
        lock = make(path, identifier="kazoo")
        try:
            held = lock.acquire(blocking=timeout_ms > 0, timeout=timeout_ms / 1000 or None)
        except LockTimeout:
            held = False
        if held:
            self.locks[key] = lock
        return held

    def unlock(self, key):
        # False if its node is not there any more.
        return self.locks.pop(key).release()

    def extend(self, key, ttl_ms):
        lock = self.locks[key]
        return self.client.exists(f"{lock.path}/{lock.node}") is not None


driver.serve(Kazoo(sys.argv[1]))
