-- What leasehold keeps in PostgreSQL: lines of entries, one for each key that somebody holds or waits for.
-- Everything is in one schema and goes with it: DROP SCHEMA leasehold CASCADE.

CREATE SCHEMA IF NOT EXISTS leasehold;

-- Which of these layouts it is, and when expired entries were last looked for.
CREATE TABLE leasehold.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
--[spring]     region varchar(100) NOT NULL DEFAULT '',
--[spring]     ttl_ms bigint NOT NULL DEFAULT 0,
    swept_at timestamptz NOT NULL DEFAULT '-infinity'
);

-- Tickets are fencing tokens: they must never repeat and grow in the order of grants. A sequence survives a crash with
-- gaps only. It has no cache, because numbers of another session's cache would come out of order.
CREATE SEQUENCE leasehold.ticket AS bigint CACHE 1;

-- A place in line. Names, and what a holder says of itself, are bytes: any byte may be in them.
--
-- The first in line has slot 0, and everybody else a higher one than those before it. So a lock is taken that nobody has, or waits
-- for, by one INSERT with slot 0, which does nothing if there is a line. The first that is left moves to that slot in the
-- transaction which takes away the one before it. Slots are in the order of tickets, and the line is read in their order and no
-- further than the first that does not hold, so that is the primary key:
--   Index Scan using entry_pkey on entry  (Index Cond: ((namespace = $1) AND (name = $2)))
-- and entries are renewed by their ids:
--   Nested Loop -> Index Scan using entry_by_id on entry  (Index Cond: (entry = w.entry))
-- An empty table is not given back to the disk: whoever looked first after that would plan to read the whole of it, and
-- keep to that when it has grown.
-- Nothing that a renewal changes is in an index, so that it writes a new version of the row within its page and no more;
-- the room for it is left by the fill factor.
--
-- Whoever is alone in its line gives its lock back by one DELETE, and locks no line for it: there is nobody to let in, or to tell.
-- So whoever joins, or begins to follow, takes that mark away first. Either it finds the entry gone, or the entry cannot go any
-- more without locking the line.
--
-- Where somebody follows a key, one entry that weighs nothing stands in its line, so that nobody is alone there.
CREATE TABLE leasehold.entry (
    namespace text COLLATE "C" NOT NULL,
    name bytea NOT NULL,
    slot bigint NOT NULL,
    ticket bigint NOT NULL,
    entry bytea NOT NULL,
    client text COLLATE "C" NOT NULL,
    hears boolean NOT NULL,
    weight bigint NOT NULL,
    capacity bigint NOT NULL,
    holds boolean NOT NULL,
    yield_asked boolean NOT NULL DEFAULT false,
    owner bytea NOT NULL,
    host bytea NOT NULL,
    pid bigint NOT NULL,
    value bytea,
    entered_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    alone boolean NOT NULL DEFAULT false,
    PRIMARY KEY (namespace, name, slot)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE UNIQUE INDEX entry_by_id ON leasehold.entry (entry);

-- Who follows a key, and wants to be told whenever its holders change. Told nobody, a commit need not queue for the one
-- lock under which PostgreSQL puts notifications in order.
CREATE TABLE leasehold.watcher (
    namespace text COLLATE "C" NOT NULL,
    name bytea NOT NULL,
    client text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, name, client)
);
CREATE INDEX watcher_by_client ON leasehold.watcher (client);

-- The same for a person to read.
CREATE VIEW leasehold.line AS
SELECT namespace, encode(name, 'escape') AS name, ticket, holds, encode(owner, 'escape') AS owner,
    encode(host, 'escape') AS host, pid, entered_at, expires_at, yield_asked, encode(entry, 'hex') AS entry
FROM leasehold.entry
WHERE weight > 0
ORDER BY namespace, entry.name, slot;

--[spring.sql]
-- Refuses a transaction in which a lock would be none, and has others wait for the disk.
CREATE FUNCTION leasehold.make_fit() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- With a snapshot from before the lock we would decide by a line that has changed meanwhile.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is %, and locks need read committed',
            current_setting('transaction_isolation') USING ERRCODE = 'LH001';
    END IF;
    -- A token that is forgotten in a crash would be handed out again.
    RETURN set_config('synchronous_commit', 'on', true) IS NOT NULL;
END $$;

-- Nobody else changes this line until we commit. Yields the time, read once that is so. An expression, which is put into the
-- statements where it is called: a function takes the server several times as long.
CREATE FUNCTION leasehold.lock_line(p_namespace text, p_name bytea) RETURNS timestamptz
LANGUAGE sql AS $$
    SELECT CASE WHEN
        CASE WHEN current_setting('transaction_isolation') = 'read committed' AND current_setting('synchronous_commit') <> 'off'
            THEN true ELSE leasehold.make_fit() END
    THEN
        CASE WHEN pg_advisory_xact_lock(hashtextextended(p_namespace || '/' || encode(p_name, 'hex'), 1281583153)) IS NOT NULL
            THEN clock_timestamp() END
    END
$$;

-- The entry that stands where somebody follows a key.
CREATE FUNCTION leasehold.stand_in(p_namespace text, p_name bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT int8send(hashtextextended(p_namespace || '/' || encode(p_name, 'hex'), 1))
        || int8send(hashtextextended(p_namespace || '/' || encode(p_name, 'hex'), 2))
$$;

-- The rule: holders are the longest prefix of the line whose weights fit its capacity. Takes out those whose lease is over
-- as far as the first that does not fit, lets the rest hold whose turn has come, and tells them; and sees to it that the first has
-- slot 0, unless it waits for somebody of another kind. Returns what the line has to give (null if nobody is in it), how much of
-- that is left to whoever comes next (negative if somebody waits), how many hold, when the first of their leases ends, and whether
-- anything changed.
CREATE FUNCTION leasehold.settle(p_namespace text, p_name bytea, p_now timestamptz,
    OUT capacity bigint, OUT room bigint, OUT holders bigint, OUT soonest timestamptz, OUT changed boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_next record;
    v_slot bigint;
BEGIN
    holders := 0;
    changed := false;
    FOR v_next IN
        SELECT e.entry, e.slot, e.ticket, e.client, e.hears, e.weight, e.capacity, e.holds, e.expires_at
        FROM leasehold.entry e WHERE e.namespace = p_namespace AND e.name = p_name ORDER BY e.slot
    LOOP
        IF v_next.expires_at <= p_now THEN
            -- Unless it was renewed since.
            DELETE FROM leasehold.entry e WHERE e.entry = v_next.entry AND e.expires_at <= p_now;
            IF FOUND THEN
                changed := true;
--[spring]                 PERFORM leasehold.pass_row(p_namespace, p_name, v_next.entry, p_now);
                CONTINUE;
            END IF;
        END IF;
        v_slot := CASE WHEN v_slot IS NULL THEN 0 ELSE v_next.slot END;
        IF v_slot <> v_next.slot AND v_next.holds THEN
            UPDATE leasehold.entry e SET slot = v_slot WHERE e.entry = v_next.entry;
        END IF;
        CONTINUE WHEN v_next.weight = 0;
--[spring]         -- Whoever holds has the row. One that has lost it does not take it back; but it may not know, so that nobody of
--[spring]         -- ours takes its place before it has left or its lease is over.
--[spring]         IF v_next.holds AND NOT leasehold.has_row(p_namespace, p_name, v_next.entry) THEN
--[spring]             IF v_next.hears THEN
--[spring]                 PERFORM pg_notify('leasehold_' || v_next.client, 'x ' || encode(v_next.entry, 'hex'));
--[spring]             END IF;
--[spring]             capacity := v_next.capacity;
--[spring]             room := -1;
--[spring]             holders := 1;
--[spring]             soonest := v_next.expires_at;
--[spring]             EXIT;
--[spring]         END IF;
        capacity := coalesce(capacity, v_next.capacity);
        room := coalesce(room, capacity) - v_next.weight;
        EXIT WHEN room < 0;
--[spring]         IF NOT v_next.holds THEN
--[spring]             -- Nobody moves the end of a lease any more whose row is about to say it.
--[spring]             SELECT e.expires_at INTO v_next.expires_at FROM leasehold.entry e WHERE e.entry = v_next.entry FOR UPDATE;
--[spring]             IF NOT leasehold.take_row(p_namespace, p_name, v_next.entry, p_now, v_next.expires_at) THEN
--[spring]                 room := -1;
--[spring]                 -- Whoever looked for all of them may be among those that were just taken out.
--[spring]                 IF changed THEN
--[spring]                     PERFORM leasehold.nudge(p_namespace, p_name);
--[spring]                 END IF;
--[spring]                 EXIT;
--[spring]             END IF;
--[spring]         END IF;
        holders := holders + 1;
        soonest := least(soonest, v_next.expires_at);
        IF NOT v_next.holds THEN
            UPDATE leasehold.entry e SET holds = true, slot = v_slot WHERE e.entry = v_next.entry;
            changed := true;
            IF v_next.hears THEN
                PERFORM pg_notify('leasehold_' || v_next.client,
                    'g ' || encode(v_next.entry, 'hex') || ' ' || v_next.ticket);
            END IF;
        END IF;
    END LOOP;
END $$;

-- A line as text, one entry a line, for whoever is told of it. Only those who hold, or everybody.
CREATE FUNCTION leasehold.show(p_namespace text, p_name bytea, p_now timestamptz, p_all boolean) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT
--[spring]         -- Nobody of ours holds beside it.
--[spring]         CASE WHEN bool_or(e.holds) THEN '' ELSE leasehold.show_foreign(p_namespace, p_name, p_now) END ||
        coalesce(string_agg(concat_ws(' ', e.ticket, encode(e.entry, 'hex'), e.weight, e.capacity, e.holds::int,
        e.yield_asked::int, 'x' || encode(e.owner, 'hex'), 'x' || encode(e.host, 'hex'), e.pid,
        coalesce('x' || encode(e.value, 'hex'), '-'),
        (extract(epoch FROM p_now - e.entered_at) * 1000000)::bigint,
        (extract(epoch FROM e.expires_at - p_now) * 1000000)::bigint), E'\n' ORDER BY e.ticket), '')
    FROM leasehold.entry e
    WHERE e.namespace = p_namespace AND e.name = p_name AND e.weight > 0 AND (e.holds OR p_all AND e.expires_at > p_now)
$$;

-- Tells one client who holds a key, in a message that begins with that word. A message has 8000 bytes at most: if that is
-- too little, the client is told to look.
CREATE FUNCTION leasehold.tell(p_client text, p_word text, p_namespace text, p_name bytea, p_line text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_place text := ' n' || p_namespace || ' x' || encode(p_name, 'hex');
BEGIN
    IF octet_length(p_word) + octet_length(v_place) + octet_length(p_line) < 7900 THEN
        PERFORM pg_notify('leasehold_' || p_client, p_word || v_place || E'\n' || p_line);
    ELSE
        PERFORM pg_notify('leasehold_' || p_client, 'l' || v_place);
    END IF;
END $$;

-- Tells everybody who follows a key who holds it now. Returns whether anybody does.
CREATE FUNCTION leasehold.publish(p_namespace text, p_name bytea, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_client text;
    v_line text;
BEGIN
    -- As a rule nobody does, and then there is no need for a loop.
    IF NOT EXISTS (SELECT FROM leasehold.watcher w WHERE w.namespace = p_namespace AND w.name = p_name) THEN
        RETURN false;
    END IF;
    FOR v_client IN
        SELECT w.client FROM leasehold.watcher w
        WHERE w.namespace = p_namespace AND w.name = p_name AND w.expires_at > p_now
    LOOP
        v_line := coalesce(v_line, leasehold.show(p_namespace, p_name, p_now, false));
        PERFORM leasehold.tell(v_client, 's', p_namespace, p_name, v_line);
    END LOOP;
    RETURN true;
END $$;

-- How many are ahead of a slot, of whom so many hold. Of a hundred or fewer, exactly those whose lease is not over; of more, those
-- too who came and left again since the first that waits came: whoever joins does not read a line of ten thousand.
CREATE FUNCTION leasehold.ahead_of(p_namespace text, p_name bytea, p_slot bigint, p_now timestamptz, p_holders bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_read bigint;
    v_ahead bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE near.expires_at > p_now AND near.weight > 0) INTO v_read, v_ahead FROM (
        SELECT e.expires_at, e.weight FROM leasehold.entry e
        WHERE e.namespace = p_namespace AND e.name = p_name AND e.slot < p_slot ORDER BY e.slot LIMIT 101) AS near;
    IF v_read <= 100 THEN
        RETURN v_ahead;
    END IF;
    -- Everybody was given the slot behind the last there was.
    RETURN p_holders + coalesce(p_slot - (SELECT e.slot FROM leasehold.entry e
        WHERE e.namespace = p_namespace AND e.name = p_name AND e.slot < p_slot AND NOT e.holds ORDER BY e.slot LIMIT 1), 0);
END $$;

-- Joins a line, or looks up a place in it and renews its lease. Standing: holding, waiting, refused, gone, mismatch, full.
-- Crowded: whether anybody was in line, or follows the key.
CREATE FUNCTION leasehold.enter(p_namespace text, p_name bytea, p_entry bytea, p_client text, p_hears boolean,
    p_weight bigint, p_capacity bigint, p_queues boolean, p_returns boolean, p_holding_us bigint, p_waiting_us bigint,
    p_owner bytea, p_host bytea, p_pid bigint, p_value bytea, p_line_max bigint,
    OUT standing text, OUT ticket bigint, OUT ahead bigint, OUT holders bigint, OUT soonest_us bigint,
    OUT capacity bigint, OUT line text, OUT crowded boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := leasehold.lock_line(p_namespace, p_name);
    v_slot bigint;
    v_room bigint;
    v_soonest timestamptz;
    v_changed boolean;
    v_holds boolean;
    v_fits boolean;
BEGIN
    -- Whoever may have to wait must be let in, so nobody before it leaves unseen from here on. One that is just going is waited for.
    IF p_queues AND NOT p_returns THEN
        UPDATE leasehold.entry e SET alone = false WHERE e.namespace = p_namespace AND e.name = p_name AND e.alone;
    END IF;
    SELECT s.capacity, s.room, s.holders, s.soonest, s.changed INTO capacity, v_room, holders, v_soonest, v_changed
    FROM leasehold.settle(p_namespace, p_name, v_now) s;
    crowded := capacity IS NOT NULL
        OR EXISTS (SELECT FROM leasehold.watcher w WHERE w.namespace = p_namespace AND w.name = p_name);
    -- If nobody is in line we are not.
    IF capacity IS NOT NULL THEN
        UPDATE leasehold.entry e SET expires_at = greatest(e.expires_at, v_now
            + CASE WHEN e.holds THEN p_holding_us ELSE p_waiting_us END * interval '1 microsecond')
        WHERE e.entry = p_entry AND e.namespace = p_namespace AND e.name = p_name AND e.expires_at > v_now
        RETURNING e.slot, e.ticket, e.holds INTO v_slot, ticket, v_holds;
    END IF;
--[spring]     IF v_holds THEN
--[spring]         IF NOT leasehold.hand_row(p_namespace, p_name, p_entry, p_entry, v_now,
--[spring]             (SELECT e.expires_at FROM leasehold.entry e WHERE e.entry = p_entry)) THEN
--[spring]             DELETE FROM leasehold.entry e WHERE e.entry = p_entry;
--[spring]             ticket := NULL;
--[spring]         END IF;
--[spring]     END IF;
    IF ticket IS NULL THEN
        v_fits := capacity IS NULL OR capacity = p_capacity AND v_room >= p_weight;
--[spring]         v_holds := false;
--[spring]         IF v_fits AND NOT p_returns THEN
--[spring]             v_fits := leasehold.take_row(p_namespace, p_name, p_entry, v_now,
--[spring]                 v_now + p_holding_us * interval '1 microsecond');
--[spring]         END IF;
        standing := CASE
            WHEN p_returns THEN 'gone'
            WHEN capacity <> p_capacity THEN 'mismatch'
            WHEN NOT v_fits AND NOT p_queues THEN 'refused'
        END;
        IF standing IS NULL THEN
            -- As above, and before slots are counted: somebody who is refused changes nothing, and has not come so far.
            IF NOT p_queues THEN
                UPDATE leasehold.entry e SET alone = false WHERE e.namespace = p_namespace AND e.name = p_name AND e.alone;
            END IF;
            v_slot := coalesce((SELECT l.slot + 1 FROM leasehold.entry l
                WHERE l.namespace = p_namespace AND l.name = p_name ORDER BY l.slot DESC LIMIT 1), 0);
        END IF;
        IF standing IS NULL AND NOT v_fits THEN
            ahead := leasehold.ahead_of(p_namespace, p_name, v_slot, v_now, holders);
            IF ahead >= p_line_max THEN
                SELECT count(*) FILTER (WHERE e.expires_at > v_now AND e.weight > 0) INTO ahead FROM leasehold.entry e
                WHERE e.namespace = p_namespace AND e.name = p_name;
                standing := CASE WHEN ahead >= p_line_max THEN 'full' END;
            END IF;
        END IF;
        IF standing IS NULL THEN
            -- One of this id that has expired, and nobody has taken out yet.
            IF v_room < 0 THEN
                DELETE FROM leasehold.entry e WHERE e.entry = p_entry;
            END IF;
            v_holds := v_fits;
            INSERT INTO leasehold.entry AS e (namespace, name, slot, ticket, entry, client, hears, weight, capacity, holds,
                owner, host, pid, value, entered_at, expires_at, alone)
            VALUES (p_namespace, p_name, v_slot, nextval('leasehold.ticket'), p_entry, p_client, p_hears, p_weight, p_capacity,
                v_fits, p_owner, p_host, p_pid, p_value, v_now,
                v_now + CASE WHEN v_fits THEN p_holding_us ELSE p_waiting_us END * interval '1 microsecond',
                v_fits AND NOT crowded
--[spring]                 AND false -- there is a row to be given back
            )
            RETURNING e.ticket INTO ticket;
            v_changed := v_changed OR v_fits;
        ELSIF standing = 'refused' THEN
            line := leasehold.show(p_namespace, p_name, v_now, false);
        END IF;
    ELSIF NOT v_holds THEN
        ahead := leasehold.ahead_of(p_namespace, p_name, v_slot, v_now, holders);
    END IF;
    standing := coalesce(standing, CASE WHEN v_holds THEN 'holding' ELSE 'waiting' END);
--[spring]     -- Nobody of ours holds, so somebody else does, who tells nobody when it leaves: the first in line looks as often as
--[spring]     -- Spring's own do, and those behind it when it should have come back to renew its place.
--[spring]     IF holders = 0 AND NOT v_holds THEN
--[spring]         holders := 1;
--[spring]         ahead := ahead + 1;
--[spring]         IF ahead = 1 THEN
--[spring]             v_soonest := least(v_now + interval '100 milliseconds',
--[spring]                 (SELECT f.until FROM leasehold.foreign_row(p_namespace, p_name, v_now) f));
--[spring]         ELSE
--[spring]             SELECT e.expires_at INTO v_soonest FROM leasehold.entry e
--[spring]             WHERE e.namespace = p_namespace AND e.name = p_name AND e.weight > 0 ORDER BY e.slot LIMIT 1;
--[spring]         END IF;
--[spring]     END IF;
    soonest_us := (extract(epoch FROM v_soonest - v_now) * 1000000)::bigint;
    IF v_changed THEN
        PERFORM leasehold.publish(p_namespace, p_name, v_now);
    END IF;
END $$;

-- Gives a place up. Standing: what it was: holding, waiting, gone. Crowded: whether anybody else is in line, or follows the key.
CREATE FUNCTION leasehold.leave(p_namespace text, p_name bytea, p_entry bytea, p_client text,
    OUT standing text, OUT crowded boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := leasehold.lock_line(p_namespace, p_name);
    v_held boolean;
    v_client text;
    v_hears boolean;
    v_changed boolean;
BEGIN
--[spring]     -- In the order of tickets, as renewals do: `settle` may lock the first in line too.
--[spring]     PERFORM FROM leasehold.entry e WHERE e.namespace = p_namespace AND e.name = p_name ORDER BY e.slot LIMIT 1 FOR UPDATE;
    DELETE FROM leasehold.entry e WHERE e.entry = p_entry AND e.namespace = p_namespace AND e.name = p_name
    RETURNING CASE WHEN e.expires_at <= v_now THEN 'gone' WHEN e.holds THEN 'holding' ELSE 'waiting' END,
        e.holds, e.client, e.hears
    INTO standing, v_held, v_client, v_hears;
    IF standing IS NULL THEN
        standing := 'gone';
--[spring]         -- A program of another kind is taken out like one of ours.
--[spring]         IF leasehold.delete_foreign(p_namespace, p_name, p_entry, v_now) THEN
--[spring]             PERFORM leasehold.settle(p_namespace, p_name, v_now);
--[spring]             PERFORM leasehold.publish(p_namespace, p_name, v_now);
--[spring]             standing := 'holding';
--[spring]         END IF;
        RETURN;
    END IF;
--[spring]     IF NOT leasehold.pass_row(p_namespace, p_name, p_entry, v_now) THEN
--[spring]         PERFORM leasehold.nudge(p_namespace, p_name);
--[spring]     END IF;
    SELECT s.changed, s.capacity IS NOT NULL INTO v_changed, crowded FROM leasehold.settle(p_namespace, p_name, v_now) s;
    IF v_hears AND v_client <> p_client THEN
        PERFORM pg_notify('leasehold_' || v_client, 'x ' || encode(p_entry, 'hex'));
    END IF;
    IF v_changed OR v_held THEN
        crowded := leasehold.publish(p_namespace, p_name, v_now) OR crowded;
    END IF;
END $$;

-- Extends the leases that are not over, and says of each of them whether its holder has been asked to let go. One UPDATE, of
-- rows that are locked in ticket order, which is the order in which a line is settled.
CREATE FUNCTION leasehold.renew(p_entries bytea[], p_ttls_us bigint[], OUT entry bytea, OUT yield_asked boolean)
RETURNS SETOF record LANGUAGE sql AS $$
    WITH due AS (
        SELECT e.entry, w.ttl_us FROM unnest(p_entries, p_ttls_us) AS w (entry, ttl_us)
        JOIN leasehold.entry e ON e.entry = w.entry AND e.expires_at > clock_timestamp()
        -- What its holder was told must not be forgotten in a crash.
        WHERE CASE WHEN current_setting('synchronous_commit') = 'off' THEN leasehold.make_fit() ELSE true END
        ORDER BY e.ticket FOR UPDATE OF e
    )
    UPDATE leasehold.entry e
    SET expires_at = greatest(e.expires_at, clock_timestamp() + due.ttl_us * interval '1 microsecond')
    FROM due WHERE e.entry = due.entry AND e.expires_at > clock_timestamp()
    RETURNING e.entry, e.yield_asked
$$;

-- Asks whoever has that entry to let go of it. False if there is no such entry.
CREATE FUNCTION leasehold.ask_to_yield(p_namespace text, p_name bytea, p_entry bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_asked record;
BEGIN
    UPDATE leasehold.entry e SET yield_asked = true
    WHERE e.entry = p_entry AND e.namespace = p_namespace AND e.name = p_name AND e.expires_at > clock_timestamp()
    RETURNING e.client, e.hears INTO v_asked;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF v_asked.hears THEN
        PERFORM pg_notify('leasehold_' || v_asked.client, 'y ' || encode(p_entry, 'hex'));
    END IF;
    RETURN true;
END $$;

-- Replaces the value beside an entry that holds. False if it does not.
CREATE FUNCTION leasehold.annotate(p_namespace text, p_name bytea, p_entry bytea, p_value bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := leasehold.lock_line(p_namespace, p_name);
BEGIN
    PERFORM leasehold.settle(p_namespace, p_name, v_now);
    UPDATE leasehold.entry e SET value = p_value WHERE e.entry = p_entry AND e.namespace = p_namespace
        AND e.name = p_name AND e.holds;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM leasehold.publish(p_namespace, p_name, v_now);
    RETURN true;
END $$;

-- Takes everybody out of a line whose lease is over, followers that are gone, and whoever stood in for the last of them. Returns
-- the time.
CREATE FUNCTION leasehold.tidy(p_namespace text, p_name bytea) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := leasehold.lock_line(p_namespace, p_name);
    v_gone boolean;
    v_changed boolean;
BEGIN
    DELETE FROM leasehold.entry e WHERE e.namespace = p_namespace AND e.name = p_name AND e.expires_at <= v_now
--[spring]         AND NOT e.holds -- `settle` takes that one out, whose row goes to the next
    ;
    v_gone := FOUND;
    DELETE FROM leasehold.watcher w WHERE w.namespace = p_namespace AND w.name = p_name AND w.expires_at <= v_now;
    DELETE FROM leasehold.entry e WHERE e.entry = leasehold.stand_in(p_namespace, p_name)
        AND NOT EXISTS (SELECT FROM leasehold.watcher w WHERE w.namespace = p_namespace AND w.name = p_name);
    SELECT s.changed INTO v_changed FROM leasehold.settle(p_namespace, p_name, v_now) s;
--[spring]     IF v_gone THEN
--[spring]         PERFORM leasehold.nudge(p_namespace, p_name);
--[spring]     END IF;
    IF v_changed OR v_gone THEN
        PERFORM leasehold.publish(p_namespace, p_name, v_now);
    END IF;
    RETURN v_now;
END $$;

-- One line as text. Whoever looks first after a lease has ended takes it out.
CREATE FUNCTION leasehold.inspect(p_namespace text, p_name bytea) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM leasehold.entry e
        WHERE e.namespace = p_namespace AND e.name = p_name AND e.expires_at <= clock_timestamp()) THEN
        PERFORM leasehold.tidy(p_namespace, p_name);
    END IF;
    RETURN leasehold.show(p_namespace, p_name, clock_timestamp(), true);
END $$;

-- The lines of a namespace behind a name, in the order of their names.
CREATE FUNCTION leasehold.list(p_namespace text, p_after bytea, p_keys_max bigint, OUT name bytea, OUT line text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    FOR name IN
        SELECT DISTINCT e.name FROM leasehold.entry e WHERE e.namespace = p_namespace AND e.name > p_after AND e.weight > 0
        ORDER BY e.name LIMIT p_keys_max
    LOOP
        line := leasehold.inspect(p_namespace, name);
        RETURN NEXT;
    END LOOP;
END $$;

-- Follows a key from now on for a minute: the client is told who holds it now, in a message that names this watch, and then
-- whenever that changes. Messages come in the order of commits, so those before that one are old news.
CREATE FUNCTION leasehold.watch(p_namespace text, p_name bytea, p_client text, p_watch text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := leasehold.tidy(p_namespace, p_name);
BEGIN
    INSERT INTO leasehold.watcher AS w (namespace, name, client, expires_at)
    VALUES (p_namespace, p_name, p_client, v_now + interval '1 minute')
    ON CONFLICT (namespace, name, client) DO UPDATE SET expires_at = excluded.expires_at;
    -- From here on nobody comes or leaves unseen. One that is just going is waited for.
    UPDATE leasehold.entry e SET alone = false WHERE e.namespace = p_namespace AND e.name = p_name AND e.alone;
    INSERT INTO leasehold.entry (namespace, name, slot, ticket, entry, client, hears, weight, capacity, holds, owner, host, pid,
        entered_at, expires_at)
    SELECT p_namespace, p_name, coalesce(max(l.slot) + 1, 0), nextval('leasehold.ticket'),
        leasehold.stand_in(p_namespace, p_name), '', false, 0, 0, true, '', '', 0, v_now, 'infinity'
    FROM leasehold.entry l WHERE l.namespace = p_namespace AND l.name = p_name
--[spring]     HAVING false -- nobody is ever alone
    ON CONFLICT (entry) DO NOTHING;
    PERFORM leasehold.tell(p_client, 'b ' || p_watch, p_namespace, p_name,
        leasehold.show(p_namespace, p_name, v_now, false));
END $$;

-- What a client follows, it follows for another minute. Returns how many keys those are: what it did not keep in time, it has to
-- follow anew.
CREATE FUNCTION leasehold.keep_watching(p_client text) RETURNS bigint
LANGUAGE sql AS $$
    WITH kept AS (
        UPDATE leasehold.watcher SET expires_at = clock_timestamp() + interval '1 minute'
        WHERE client = p_client AND expires_at > clock_timestamp() RETURNING 1
    )
    SELECT count(*) FROM kept
$$;

CREATE FUNCTION leasehold.unwatch(p_namespace text, p_name bytea, p_client text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leasehold.lock_line(p_namespace, p_name);
    DELETE FROM leasehold.watcher w WHERE w.namespace = p_namespace AND w.name = p_name AND w.client = p_client;
    PERFORM leasehold.tidy(p_namespace, p_name);
END $$;

-- Where entries stand, for a client that cannot be told: which of them hold, how many of the nearest are ahead, and who is
-- the first in line, which changes whenever the line moves.
CREATE FUNCTION leasehold.stand(p_entries bytea[], OUT entry bytea, OUT ticket bigint, OUT holds boolean, OUT ahead bigint,
    OUT first bigint)
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT e.entry, e.ticket, e.holds, (SELECT count(*) FROM (
        SELECT FROM leasehold.entry a
        WHERE a.namespace = e.namespace AND a.name = e.name AND a.slot < e.slot AND a.weight > 0 LIMIT 16) AS near),
        coalesce((SELECT a.ticket FROM leasehold.entry a WHERE a.namespace = e.namespace AND a.name = e.name
            AND a.weight > 0 AND a.expires_at > clock_timestamp() ORDER BY a.slot LIMIT 1), e.ticket)
    FROM unnest(p_entries) AS w (entry) JOIN leasehold.entry e ON e.entry = w.entry
$$;

-- Takes out what nobody comes back for: entries and watchers of clients that are gone, on keys that nobody uses. Whoever
-- asks, it is done once a minute, and for a few hundred keys: they are locked until it commits, and the server has room for a few
-- thousand locks in all.
CREATE FUNCTION leasehold.sweep() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_key record;
BEGIN
    UPDATE leasehold.store SET swept_at = clock_timestamp() WHERE swept_at < clock_timestamp() - interval '1 minute';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR v_key IN
        SELECT e.namespace, e.name FROM leasehold.entry e WHERE e.expires_at < clock_timestamp()
        UNION SELECT w.namespace, w.name FROM leasehold.watcher w WHERE w.expires_at < clock_timestamp()
        ORDER BY namespace, name LIMIT 500
    LOOP
        PERFORM leasehold.tidy(v_key.namespace, v_key.name);
    END LOOP;
END $$;

INSERT INTO leasehold.store (version) VALUES (2);
--[spring] UPDATE leasehold.store SET version = 102, region = leasehold.region(), ttl_ms = leasehold.ttl_ms();
