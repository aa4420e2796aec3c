"""The locks of kazoo. A key is a kind and a folder, such as `mutex:/lock/name`; leases are the session's."""

import sys
import time

import driver
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout


class Kazoo:
    def __init__(self, address):
        self.address = address
        self.client = self.connect()
        self.locks = {}

    def connect(self):
        client = KazooClient(hosts=self.address, timeout=10)
        client.start()
        return client

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

    def pairs(self, key, times):
        return driver.pairs(self.client.Lock(key.split(":", 1)[1]), times)

    def turns(self, key, times):
        folder = key.split(":", 1)[1]
        other = self.connect()
        spans = [self.turn(f"{folder}-{nth}", other) for nth in range(times)]
        other.stop()
        return spans

    def turn(self, path, other):
        def until_it_waits():
            while len(self.client.get_children(path)) < 2:
                pass
            time.sleep(driver.UNTIL_IT_WAITS_S)

        return driver.turn(self.client.Lock(path), other.Lock(path), until_it_waits)


driver.serve(Kazoo(sys.argv[1]))
