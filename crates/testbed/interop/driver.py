"""The line protocol by which a test drives a peer; see `src/interop.rs`."""

import sys
import threading
import time

# Far longer than a turn takes, so that no lock expires under the hammer or while it is timed.
TTL_MS = 20_000
HAMMER_WAIT_MS = 10_000

# Whoever has begun to wait needs a moment more until it is told, or has tried in vain.
UNTIL_IT_WAITS_S = 0.003


def serve(peer):
    """Answers one line with one line, until there are no more."""
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = obey(peer, *line.split())
        except Exception as error:
            answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


def obey(peer, verb, key, *words):
    if verb == "lock":
        ttl_ms, timeout_ms = map(int, words)
        return "held" if peer.lock(key, ttl_ms, timeout_ms) else "busy"
    if verb == "unlock":
        return "released" if peer.unlock(key) else "lost"
    if verb == "extend":
        return "ok" if peer.extend(key, int(words[0])) else "lost"
    if verb == "hammer":
        path, times = words
        return f"done {hammer(peer, key, path, int(times))}"
    if verb == "pairs":
        return "spent " + str(round(peer.pairs(key, int(words[0])) * 1e9))
    if verb == "turns":
        return "spent " + " ".join(str(round(span * 1e9)) for span in peer.turns(key, int(words[0])))
    raise ValueError(f"no such command: {verb}")


def hammer(peer, key, path, times):
    """Adds one to the number in a file, so many times, each under the lock and slowly enough to be caught without it."""
    for _ in range(times):
        while not peer.lock(key, TTL_MS, HAMMER_WAIT_MS):
            pass
        with open(path) as file:
            number = int(file.read())
        time.sleep(0.0003)
        with open(path, "w") as file:
            file.write(str(number + 1))
        if not peer.unlock(key):
            raise RuntimeError("the lock was lost under the hammer")
    return times


def pairs(lock, times):
    """How long it takes to take the lock and give it back, so many times."""
    began = time.perf_counter()
    for _ in range(times):
        lock.acquire()
        lock.release()
    return time.perf_counter() - began


def turn(held, awaited, until_it_waits):
    """How long it takes from giving back one lock until the other is taken, by a thread that waits for it."""
    at = []

    def wait():
        awaited.acquire()
        at.append(time.perf_counter())
        awaited.release()

    held.acquire()
    waiter = threading.Thread(target=wait)
    waiter.start()
    until_it_waits()
    began = time.perf_counter()
    held.release()
    waiter.join()
    return at[0] - began
