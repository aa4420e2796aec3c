// The lock of node-redlock: the key is the name as it is. The line protocol is that of `driver.py`.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// Not `import`, which looks beside this file alone: the libraries are where NODE_PATH says.
const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");

const POLL_MS = 2;
// Far longer than a turn takes, so that no lock expires under the hammer or while it is timed.
const TTL_MS = 20_000;
const HAMMER_WAIT_MS = 10_000;
// Whoever has begun to wait needs a moment until it has tried in vain.
const UNTIL_IT_WAITS_MS = 3;

const client = new Redis(process.argv[2]);
const redlock = new Redlock([client], { retryCount: 0, retryDelay: POLL_MS, retryJitter: 0 });
const locks = new Map();

// What it says of a lock that somebody else holds, or nobody any more. Any other failure is thrown on.
async function unlessNotOurs(attempt) {
  try {
    return await attempt;
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    for (const { votesAgainst } of await Promise.all(error.attempts)) {
      for (const vote of votesAgainst.values()) if (!(vote instanceof ResourceLockedError)) throw vote;
    }
    return undefined;
  }
}

async function lock(key, ttlMs, timeoutMs) {
  const retryCount = Math.ceil(timeoutMs / POLL_MS);
  const held = await unlessNotOurs(redlock.acquire([key], ttlMs, { retryCount }));
  if (held) locks.set(key, held);
  return held !== undefined;
}

async function unlock(key) {
  const held = locks.get(key);
  locks.delete(key);
  return (await unlessNotOurs(held.release())) !== undefined;
}

async function extend(key, ttlMs) {
  const extended = await unlessNotOurs(locks.get(key).extend(ttlMs));
  if (extended) locks.set(key, extended);
  return extended !== undefined;
}

// Adds one to the number in a file, so many times, each under the lock and slowly enough to be caught without it.
async function hammer(key, path, times) {
  for (let nth = 0; nth < times; nth++) {
    while (!(await lock(key, TTL_MS, HAMMER_WAIT_MS)));
    const number = parseInt(readFileSync(path, "utf8"));
    await sleep(0.3);
    writeFileSync(path, String(number + 1));
    if (!(await unlock(key))) throw new Error("the lock was lost under the hammer");
  }
  return times;
}

// In nanoseconds.
async function pairs(key, times) {
  const began = process.hrtime.bigint();
  for (let nth = 0; nth < times; nth++) {
    const held = await redlock.acquire([key], TTL_MS);
    await held.release();
  }
  return process.hrtime.bigint() - began;
}

async function turns(key, times) {
  const other = new Redis(process.argv[2]);
  await other.ping();
  // It polls as often as it does for whoever sets nothing: that is what its users wait for.
  const waiter = new Redlock([other]);
  const spans = [];
  for (let nth = 0; nth < times; nth++) spans.push(await turn(`${key}-${nth}`, waiter, (nth + 0.5) / times));
  other.disconnect();
  return spans;
}

async function turn(key, waiter, partOfAPoll) {
  const held = await redlock.acquire([key], TTL_MS);
  const taken = waiter.acquire([key], TTL_MS).then(async (awaited) => {
    const at = process.hrtime.bigint();
    await awaited.release();
    return at;
  });
  // Each turn at another moment between two polls: always at the same one, it would be that moment that is timed.
  const pollMaxMs = waiter.settings.retryDelay + waiter.settings.retryJitter;
  await sleep(UNTIL_IT_WAITS_MS + pollMaxMs * partOfAPoll);
  const began = process.hrtime.bigint();
  await held.release();
  return (await taken) - began;
}

async function obey(verb, key, ...words) {
  switch (verb) {
    case "lock":
      return (await lock(key, ...words.map(Number))) ? "held" : "busy";
    case "unlock":
      return (await unlock(key)) ? "released" : "lost";
    case "extend":
      return (await extend(key, Number(words[0]))) ? "ok" : "lost";
    case "hammer":
      return `done ${await hammer(key, words[0], Number(words[1]))}`;
    case "pairs":
      return `spent ${await pairs(key, Number(words[0]))}`;
    case "turns":
      return `spent ${(await turns(key, Number(words[0]))).join(" ")}`;
    default:
      throw new Error(`no such command: ${verb}`);
  }
}

await client.ping();
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await obey(...line.split(" ")).catch((error) => `error ${error}`.replaceAll("\n", " "));
  console.log(answer);
}
client.disconnect();
