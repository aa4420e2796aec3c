-- Spring Integration's table, on the search path as its own statements find it. If there is none, it is made as Spring 7's
-- script makes it.
DO $$
BEGIN
    IF to_regclass('int_lock') IS NULL THEN
        CREATE TABLE INT_LOCK (
            LOCK_KEY CHAR(36) NOT NULL,
            REGION VARCHAR(100) NOT NULL,
            CLIENT_ID CHAR(36),
            CREATED_DATE TIMESTAMP NOT NULL,
            EXPIRED_AFTER TIMESTAMP NOT NULL,
            CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)
        );
    END IF;
END $$;

-- Whose rows these are, and how long Spring 6 lets one live. Functions, because they are read with every change of a line, and
-- these are put into statements where they are read from.
CREATE FUNCTION leasehold.region() RETURNS varchar LANGUAGE sql IMMUTABLE AS $$ SELECT '{region}'::varchar $$;
CREATE FUNCTION leasehold.ttl_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT {ttl_ms}::bigint $$;

-- Whether rows say when they end, as they do since Spring 7. Asked anew each time: the table may be altered beneath us, but
-- by nobody from here on until we commit.
CREATE FUNCTION leasehold.rows_end() RETURNS boolean
LANGUAGE sql AS $$
    LOCK TABLE int_lock IN ACCESS SHARE MODE;
    SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = 'int_lock'::regclass AND a.attname = 'expired_after' AND NOT a.attisdropped)
$$;

-- The key of a lock's row. Other programs compute the same: Java's UUID.nameUUIDFromBytes, unless the name looks like a UUID.
CREATE FUNCTION leasehold.row_key(p_namespace text, p_name bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_hash text;
BEGIN
    IF p_namespace = '' AND octet_length(p_name) = 36
        AND encode(p_name, 'escape') ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        RETURN lower(encode(p_name, 'escape'));
    END IF;
    v_hash := md5(CASE p_namespace WHEN '' THEN '' ELSE convert_to(p_namespace || ':', 'UTF8') END || p_name);
    -- Version 3, and the variant in the two upper bits of its digit.
    v_hash := overlay(v_hash PLACING '3' FROM 13 FOR 1);
    v_hash := overlay(v_hash
        PLACING substr('89ab89ab89ab89ab', strpos('0123456789abcdef', substr(v_hash, 17, 1)), 1) FROM 17 FOR 1);
    RETURN v_hash::uuid::text;
END $$;

-- What stands in a row that an entry of ours has.
CREATE FUNCTION leasehold.row_owner(p_entry bytea) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(p_entry, 'hex')::uuid::text
$$;

-- Whether an entry has the row of its lock.
CREATE FUNCTION leasehold.has_row(p_namespace text, p_name bytea, p_entry bytea) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM int_lock l
        WHERE l.lock_key = leasehold.row_key(p_namespace, p_name)::bpchar
            AND l.region = leasehold.region()
            AND l.client_id = leasehold.row_owner(p_entry)::bpchar);
END $$;

-- Lets an entry have the row until then, if there is none or its time is over. False if somebody else has it.
CREATE FUNCTION leasehold.take_row(p_namespace text, p_name bytea, p_entry bytea, p_now timestamptz, p_until timestamptz)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_key text := leasehold.row_key(p_namespace, p_name);
    v_owner text := leasehold.row_owner(p_entry);
    v_ttl interval := leasehold.ttl_ms() * interval '1 millisecond';
BEGIN
    IF leasehold.rows_end() THEN
        INSERT INTO int_lock AS l (lock_key, region, client_id, created_date, expired_after)
        VALUES (v_key, leasehold.region(), v_owner, p_now AT TIME ZONE 'UTC', p_until AT TIME ZONE 'UTC')
        ON CONFLICT (lock_key, region) DO UPDATE
        SET client_id = excluded.client_id, created_date = excluded.created_date, expired_after = excluded.expired_after
        WHERE l.client_id = excluded.client_id OR l.expired_after < p_now AT TIME ZONE 'UTC';
    ELSE
        -- Spring 6 counts from this date: as early as makes its end the end of our lease.
        INSERT INTO int_lock AS l (lock_key, region, client_id, created_date)
        VALUES (v_key, leasehold.region(), v_owner, p_until AT TIME ZONE 'UTC' - v_ttl)
        ON CONFLICT (lock_key, region) DO UPDATE
        SET client_id = excluded.client_id, created_date = excluded.created_date
        WHERE l.client_id = excluded.client_id OR l.created_date < p_now AT TIME ZONE 'UTC' - v_ttl;
    END IF;
    RETURN FOUND;
END $$;

-- Hands the row that one entry has to another, or to itself for longer. False if it has none: it is not taken back.
CREATE FUNCTION leasehold.hand_row(p_namespace text, p_name bytea, p_from bytea, p_to bytea, p_now timestamptz,
    p_until timestamptz)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_key text := leasehold.row_key(p_namespace, p_name);
    v_from text := leasehold.row_owner(p_from);
    v_to text := leasehold.row_owner(p_to);
    v_ttl interval := leasehold.ttl_ms() * interval '1 millisecond';
BEGIN
    IF leasehold.rows_end() THEN
        UPDATE int_lock l SET client_id = v_to, expired_after = p_until AT TIME ZONE 'UTC',
            created_date = CASE WHEN v_from = v_to THEN l.created_date ELSE p_now AT TIME ZONE 'UTC' END
        WHERE l.lock_key = v_key::bpchar AND l.region = leasehold.region() AND l.client_id = v_from::bpchar;
    ELSE
        UPDATE int_lock l SET client_id = v_to, created_date = p_until AT TIME ZONE 'UTC' - v_ttl
        WHERE l.lock_key = v_key::bpchar AND l.region = leasehold.region() AND l.client_id = v_from::bpchar;
    END IF;
    RETURN FOUND;
END $$;

-- An entry has left that held: its row goes to the next in line, or away. True if it had one.
CREATE FUNCTION leasehold.pass_row(p_namespace text, p_name bytea, p_gone bytea, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_next record;
BEGIN
    SELECT e.entry, e.expires_at INTO v_next FROM leasehold.entry e
    WHERE e.namespace = p_namespace AND e.name = p_name AND e.expires_at > p_now ORDER BY e.slot LIMIT 1 FOR UPDATE;
    IF FOUND THEN
        RETURN leasehold.hand_row(p_namespace, p_name, p_gone, v_next.entry, p_now, v_next.expires_at);
    END IF;
    DELETE FROM int_lock l
    WHERE l.lock_key = leasehold.row_key(p_namespace, p_name)::bpchar
        AND l.region = leasehold.region()
        AND l.client_id = leasehold.row_owner(p_gone)::bpchar;
    RETURN FOUND;
END $$;

-- Who has the row and is not of ours, since when, and until when; null if nobody. Its id is its own if that is a UUID, and
-- otherwise made of it.
CREATE FUNCTION leasehold.foreign_row(p_namespace text, p_name bytea, p_now timestamptz,
    OUT id text, OUT client text, OUT since timestamptz, OUT until timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    v_key text := leasehold.row_key(p_namespace, p_name);
    v_ttl interval := leasehold.ttl_ms() * interval '1 millisecond';
BEGIN
    IF leasehold.rows_end() THEN
        SELECT coalesce(l.client_id, ''), l.created_date AT TIME ZONE 'UTC', l.expired_after AT TIME ZONE 'UTC'
        INTO client, since, until
        FROM int_lock l WHERE l.lock_key = v_key::bpchar AND l.region = leasehold.region();
    ELSE
        SELECT coalesce(l.client_id, ''), l.created_date AT TIME ZONE 'UTC', (l.created_date + v_ttl) AT TIME ZONE 'UTC'
        INTO client, since, until
        FROM int_lock l WHERE l.lock_key = v_key::bpchar AND l.region = leasehold.region();
    END IF;
    IF until < p_now OR EXISTS (SELECT FROM leasehold.entry e WHERE e.namespace = p_namespace AND e.name = p_name
        AND e.holds AND leasehold.row_owner(e.entry) = foreign_row.client) THEN
        client := NULL;
        since := NULL;
        until := NULL;
    END IF;
    id := CASE WHEN client ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
        THEN lower(replace(client, '-', '')) ELSE md5(client) END;
END $$;

-- That one as a line of text, like those of `show`.
CREATE FUNCTION leasehold.show_foreign(p_namespace text, p_name bytea, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
BEGIN
    SELECT * INTO v_row FROM leasehold.foreign_row(p_namespace, p_name, p_now);
    IF v_row.id IS NULL THEN
        RETURN '';
    END IF;
    RETURN concat_ws(' ', 0, v_row.id, 4294967296, 4294967296, 2, 0, 'x' || encode(convert_to(v_row.client, 'UTF8'), 'hex'),
        'x', 0, '-', (extract(epoch FROM p_now - v_row.since) * 1000000)::bigint,
        (extract(epoch FROM v_row.until - p_now) * 1000000)::bigint) || E'\n';
END $$;

-- Takes the row from somebody who is not of ours and has that id. False if there is no such row.
CREATE FUNCTION leasehold.delete_foreign(p_namespace text, p_name bytea, p_entry bytea, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
BEGIN
    SELECT * INTO v_row FROM leasehold.foreign_row(p_namespace, p_name, p_now);
    DELETE FROM int_lock l
    WHERE v_row.id = encode(p_entry, 'hex') AND l.lock_key = leasehold.row_key(p_namespace, p_name)::bpchar
        AND l.region = leasehold.region() AND coalesce(l.client_id, '') = v_row.client::bpchar;
    RETURN FOUND;
END $$;

-- Tells the first in line to look, if nobody of ours holds: it looks more often than those behind it.
CREATE FUNCTION leasehold.nudge(p_namespace text, p_name bytea) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_first record;
BEGIN
    SELECT e.entry, e.client, e.hears, e.holds INTO v_first FROM leasehold.entry e
    WHERE e.namespace = p_namespace AND e.name = p_name ORDER BY e.slot LIMIT 1;
    IF v_first.hears AND NOT v_first.holds THEN
        PERFORM pg_notify('leasehold_' || v_first.client, 'n ' || encode(v_first.entry, 'hex'));
    END IF;
END $$;

-- Extends leases as `renew` does, and with those that hold their rows. One that has lost its row has lost its lock, and is not
-- extended; nor is its lease shortened, as long as its holder may not have heard of it.
CREATE FUNCTION leasehold.renew_rows(p_entries bytea[], p_ttls_us bigint[], OUT entry bytea, OUT yield_asked boolean)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    v_due record;
    v_now timestamptz;
BEGIN
    FOR v_due IN
        SELECT e.namespace, e.name, e.entry, e.holds, e.yield_asked, e.expires_at, w.ttl_us
        FROM unnest(p_entries, p_ttls_us) AS w (entry, ttl_us)
        JOIN leasehold.entry e ON e.entry = w.entry
        WHERE CASE WHEN current_setting('synchronous_commit') = 'off' THEN leasehold.make_fit() ELSE true END
        ORDER BY e.ticket FOR UPDATE OF e
    LOOP
        v_now := clock_timestamp();
        CONTINUE WHEN v_due.expires_at <= v_now;
        v_due.expires_at := greatest(v_due.expires_at, v_now + v_due.ttl_us * interval '1 microsecond');
        IF v_due.holds THEN
            CONTINUE WHEN NOT leasehold.hand_row(v_due.namespace, v_due.name, v_due.entry, v_due.entry, v_now,
                v_due.expires_at);
        END IF;
        UPDATE leasehold.entry e SET expires_at = v_due.expires_at WHERE e.entry = v_due.entry;
        entry := v_due.entry;
        yield_asked := v_due.yield_asked;
        RETURN NEXT;
    END LOOP;
END $$;

