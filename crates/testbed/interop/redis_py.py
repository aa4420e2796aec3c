"""The lock of redis-py: the key is the name as it is."""

import sys

import driver
import redis
from redis.exceptions import LockNotOwnedError

POLL_SECONDS = 0.002


class RedisPy:
    def __init__(self, url):
        self.client = redis.Redis.from_url(url)
        self.client.ping()
        self.locks = {}

    def lock(self, key, ttl_ms, timeout_ms):
        lock = self.client.lock(key, timeout=ttl_ms / 1000, sleep=POLL_SECONDS, thread_local=False)
        held = lock.acquire(blocking=timeout_ms > 0, blocking_timeout=timeout_ms / 1000)
        if held:
            self.locks[key] = lock
        return held

    def unlock(self, key):
        try:
            self.locks.pop(key).release()
            return True
        except LockNotOwnedError:
            return False

    def extend(self, key, ttl_ms):
        try:
            return self.locks[key].extend(ttl_ms / 1000, replace_ttl=True)
        except LockNotOwnedError:
            return False


driver.serve(RedisPy(sys.argv[1]))
