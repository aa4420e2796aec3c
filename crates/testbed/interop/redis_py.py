"""The lock of redis-py: the key is the name as it is."""

import sys
import time

import driver
import redis
from redis.exceptions import LockNotOwnedError

POLL_SECONDS = 0.002


class RedisPy:
    def __init__(self, url):
        self.url = url
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

    def pairs(self, key, times):
        return driver.pairs(timed(self.client, key), times)

    def turns(self, key, times):
        with redis.Redis.from_url(self.url) as other:
            other.ping()
            return [self.turn(f"{key}-{nth}", other, (nth + 0.5) / times) for nth in range(times)]

    def turn(self, key, other, part_of_a_poll):
        awaited = timed(other, key)

        def until_it_waits():
            # Each turn at another moment between two polls: always at the same one, it would be that moment that is timed.
            time.sleep(driver.UNTIL_IT_WAITS_S + awaited.sleep * part_of_a_poll)

        return driver.turn(timed(self.client, key), awaited, until_it_waits)


def timed(client, key):
    # It polls as often as it does for whoever sets nothing: that is what its users wait for.
    return client.lock(key, timeout=driver.TTL_MS / 1000)


driver.serve(RedisPy(sys.argv[1]))
