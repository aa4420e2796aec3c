"""The lock of python-redis-lock: it puts `lock:` before the name, counts in whole seconds, and wakes by a list."""

import math
import sys

import driver
import redis
import redis_lock


def whole_seconds(ms):
    return math.ceil(ms / 1000)


class PythonRedisLock:
    def __init__(self, url):
        self.url = url
        self.client = self.connect()
        self.client.ping()
        self.locks = {}

    def connect(self):
        # It blocks in the server for as long as a lock lives; a limit on the socket would cut that short.
        return redis.Redis.from_url(self.url, socket_timeout=None)

    def lock(self, key, ttl_ms, timeout_ms):
        expire = whole_seconds(ttl_ms)
        lock = redis_lock.Lock(self.client, key, expire=expire)
        if timeout_ms > 0:
            # It refuses to wait for longer than it would hold.
            held = lock.acquire(timeout=min(whole_seconds(timeout_ms), expire))
        else:
            held = lock.acquire(blocking=False)
        if held:
            self.locks[key] = lock
        return held

    def unlock(self, key):
        try:
            self.locks.pop(key).release()
            return True
        except redis_lock.NotAcquired:
            return False

    def extend(self, key, ttl_ms):
        try:
            self.locks[key].extend(expire=whole_seconds(ttl_ms))
            return True
        except redis_lock.NotAcquired:
            return False

    def pairs(self, key, times):
        return driver.pairs(timed(self.client, key), times)

    def turns(self, key, times):
        with self.connect() as other:
            waiter = other.client_id()

            def until_it_waits():
                # The server's letter for whoever is in a call that blocks.
                while "b" not in self.client.client_list(client_id=[waiter])[0]["flags"]:
                    pass

            def turn(key):
                return driver.turn(timed(self.client, key), timed(other, key), until_it_waits)

            return [turn(f"{key}-{nth}") for nth in range(times)]


def timed(client, key):
    return redis_lock.Lock(client, key, expire=whole_seconds(driver.TTL_MS))


driver.serve(PythonRedisLock(sys.argv[1]))
