import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryOneTime;

/**
 * The locks of Apache Curator, driven line by line; see src/interop.rs. A key is a kind and a folder, such as
 * mutex:/lock/name; leases are the session's. One command more: revoke FOLDER asks whoever is alone in it to let go.
 * Spans are in nanoseconds.
 */
public class CuratorLocks {
    /** What is held: how to give it back. */
    interface Held {
        boolean release() throws Exception;
    }

    private final String address;
    private final CuratorFramework client;
    private final Map<String, Held> held = new HashMap<>();
    private final Map<String, String> revoked = new HashMap<>();

    CuratorLocks(String address) throws Exception {
        this.address = address;
        client = connect();
    }

    private CuratorFramework connect() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, 10_000, 10_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    public static void main(String[] arguments) throws Exception {
        CuratorLocks peer = new CuratorLocks(arguments[0]);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = peer.obey(line.split(" "));
            } catch (Exception error) {
                answer = ("error " + error).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "lock":
                return lock(words[1], Long.parseLong(words[3])) ? "held" : "busy";
            case "unlock":
                return held.remove(words[1]).release() ? "released" : "lost";
            case "extend":
                return revoked.containsKey(words[1]) ? "lost" : "ok";
            case "revoke":
                Revoker.attemptRevoke(client, words[1] + "/" + client.getChildren().forPath(words[1]).get(0));
                return "ok";
            case "hammer":
                return "done " + hammer(words[1], Path.of(words[2]), Integer.parseInt(words[3]));
            case "pairs":
                return "spent " + pairs(folder(words[1]), Integer.parseInt(words[2]));
            case "turns":
                return "spent" + turns(folder(words[1]), Integer.parseInt(words[2]));
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private static String folder(String key) {
        return key.substring(key.indexOf(':') + 1);
    }

    private boolean lock(String key, long timeoutMs) throws Exception {
        String kind = key.substring(0, key.indexOf(':'));
        String path = folder(key);
        if (kind.equals("election")) {
            return elect(key, path, timeoutMs);
        }
        InterProcessMutex mutex;
        switch (kind) {
            case "mutex":
                mutex = new InterProcessMutex(client, path);
                mutex.makeRevocable(lock -> revoked.put(key, "revoked"));
                break;
            case "read":
                mutex = new InterProcessReadWriteLock(client, path).readLock();
                break;
            case "write":
                mutex = new InterProcessReadWriteLock(client, path).writeLock();
                break;
            default:
                throw new IllegalArgumentException("no such kind of lock: " + kind);
        }
        if (!mutex.acquire(timeoutMs, TimeUnit.MILLISECONDS)) {
            return false;
        }
        held.put(key, () -> {
            mutex.release();
            return true;
        });
        return true;
    }

    private boolean elect(String key, String path, long timeoutMs) throws Exception {
        LeaderLatch latch = new LeaderLatch(client, path, "curator");
        latch.start();
        // A latch looks up its place in the background, so one that is free needs a moment too.
        if (!latch.await(Math.max(timeoutMs, 500), TimeUnit.MILLISECONDS)) {
            latch.close();
            return false;
        }
        held.put(key, () -> {
            boolean led = latch.hasLeadership();
            latch.close();
            return led;
        });
        return true;
    }

    /** Adds one to the number in a file, so many times, each under the lock and slowly enough to be caught without it. */
    private int hammer(String key, Path file, int times) throws Exception {
        for (int turn = 0; turn < times; turn++) {
            while (!lock(key, 10_000)) {}
            int number = Integer.parseInt(Files.readString(file));
            Thread.sleep(0, 300_000);
            Files.writeString(file, Integer.toString(number + 1));
            if (!held.remove(key).release()) {
                throw new IllegalStateException("the lock was lost under the hammer");
            }
        }
        return times;
    }

    private long pairs(String path, int times) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        long began = System.nanoTime();
        for (int nth = 0; nth < times; nth++) {
            mutex.acquire();
            mutex.release();
        }
        return System.nanoTime() - began;
    }

    private String turns(String path, int times) throws Exception {
        StringBuilder spans = new StringBuilder();
        try (CuratorFramework other = connect()) {
            for (int nth = 0; nth < times; nth++) {
                spans.append(' ').append(turn(path + "-" + nth, other));
            }
        }
        return spans.toString();
    }

    private long turn(String path, CuratorFramework other) throws Exception {
        InterProcessMutex held = new InterProcessMutex(client, path);
        InterProcessMutex awaited = new InterProcessMutex(other, path);
        held.acquire();
        FutureTask<Long> waiter = new FutureTask<>(() -> {
            awaited.acquire();
            long at = System.nanoTime();
            awaited.release();
            return at;
        });
        new Thread(waiter).start();
        while (client.getChildren().forPath(path).size() < 2) {}
        Thread.sleep(3); // until it watches
        long began = System.nanoTime();
        held.release();
        return waiter.get() - began;
    }
}
