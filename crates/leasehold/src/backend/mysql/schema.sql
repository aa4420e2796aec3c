-- What leasehold keeps in MySQL or MariaDB: lines of entries, one for each key that somebody holds or waits for.
-- Everything has one prefix, and goes with its tables and procedures. To be applied by the program `mariadb` or `mysql`.

-- Which of these layouts it is, and when expired entries were last looked for.
CREATE TABLE IF NOT EXISTS leasehold_store (
    one TINYINT NOT NULL PRIMARY KEY,
    version INT NOT NULL,
--[spring]     region VARCHAR(100) CHARACTER SET ascii NOT NULL,
--[spring]     ttl_ms BIGINT NOT NULL,
    swept_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;

-- Whoever joins a line locks one of these rows first, and so does whoever lets others in. There is none for each key: a row that
-- is made with the first entry and deleted with the last would be written twice as often as the entries, and an empty line could
-- not be locked. They are never written.
CREATE TABLE IF NOT EXISTS leasehold_shard (
    id SMALLINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- A place in line. Names, and what a holder says of itself, are bytes: nothing is folded or trimmed.
--
-- The first in line has slot 0, and everybody else a higher one than those before it. So a lock is taken that nobody has, or waits
-- for, by one INSERT with slot 0: it fails if there is a line. The first that is left moves to that slot in the transaction which
-- takes away the one before it. Slots are in the order of tickets, and the line is read in their order, no further than the first
-- that does not hold:
--   entry  range  PRIMARY  const,const  (Using index condition)
-- and entries are renewed by their ids:
--   entry  range  entry_by_id
-- Nothing that a renewal changes is in an index. All times are UTC.
--
-- Whoever is alone in its line gives its lock back by one DELETE, and locks no line for it: there is nobody to let in. So whoever
-- joins takes that mark away first. Either it finds the entry gone, or the entry cannot go any more without letting it in.
--
-- Tickets are counted by the table, in an INSERT that has locked the line, and thereby in the order of grants. They are fencing
-- tokens, and must never repeat: the counter outlives its rows and the server, but not a TRUNCATE of the table.
CREATE TABLE IF NOT EXISTS leasehold_entry (
    namespace VARBINARY(128) NOT NULL,
    name VARBINARY(512) NOT NULL,
    slot BIGINT NOT NULL,
    ticket BIGINT NOT NULL AUTO_INCREMENT,
    entry BINARY(16) NOT NULL,
    weight BIGINT NOT NULL,
    capacity BIGINT NOT NULL,
    holds BOOLEAN NOT NULL,
    alone BOOLEAN NOT NULL DEFAULT FALSE,
    yield_asked BOOLEAN NOT NULL DEFAULT FALSE,
    owner VARBINARY(1024) NOT NULL,
    host VARBINARY(255) NOT NULL,
    pid BIGINT NOT NULL,
    value VARBINARY(1024),
    entered_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL,
--[spring]     row_key CHAR(36) CHARACTER SET ascii NOT NULL, -- where its row is, and what stands in it
--[spring]     row_owner CHAR(36) CHARACTER SET ascii NOT NULL,
    PRIMARY KEY (namespace, name, slot),
    UNIQUE KEY entry_by_id (entry),
    KEY entry_by_ticket (ticket) -- which the counter needs
) ENGINE = InnoDB;

DELIMITER //

--[spring.sql]
DROP PROCEDURE IF EXISTS leasehold_settle //
-- The rule: holders are the longest prefix of the line whose weights fit its capacity. Takes out those whose lease is over as
-- far as the first that does not fit, lets the rest hold whose turn has come, and sees to it that the first has slot 0. Yields what the line has to give (null if
-- nobody is in it), how much of that is left to whoever comes next (negative if somebody waits), how many hold, and when the
-- first of their leases ends. Whoever calls it has locked the line.
CREATE PROCEDURE leasehold_settle(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_now DATETIME(6),
    OUT p_capacity BIGINT, OUT p_room BIGINT, OUT p_holders BIGINT, OUT p_soonest DATETIME(6))
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_slot BIGINT DEFAULT -1;
    DECLARE v_entry BINARY(16);
    DECLARE v_weight, v_capacity BIGINT;
    DECLARE v_holds BOOLEAN;
    DECLARE v_expires_at DATETIME(6);
--[spring]     DECLARE v_has BOOLEAN;
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
    SET p_capacity = NULL, p_room = NULL, p_holders = 0, p_soonest = NULL;
    settling: LOOP
        SELECT slot, entry, weight, capacity, holds, expires_at
        INTO v_slot, v_entry, v_weight, v_capacity, v_holds, v_expires_at
        FROM leasehold_entry WHERE namespace = p_namespace AND name = p_name AND slot > v_slot
        ORDER BY slot LIMIT 1;
        IF v_done THEN
            LEAVE settling;
        END IF;
        IF v_expires_at <= p_now THEN
            -- Unless it was renewed since.
            DELETE FROM leasehold_entry WHERE entry = v_entry AND expires_at <= p_now;
            IF ROW_COUNT() = 1 THEN
--[spring]                 CALL leasehold_pass_row(p_namespace, p_name, v_entry, p_now, v_has);
                ITERATE settling;
            END IF;
        END IF;
        IF p_capacity IS NULL AND v_slot > 0 THEN
            UPDATE leasehold_entry SET slot = 0 WHERE entry = v_entry;
        END IF;
--[spring]         -- Whoever holds has the row. One that has lost it does not take it back; but it may not know, so that nobody of
--[spring]         -- ours takes its place before it has left or its lease is over.
--[spring]         IF v_holds THEN
--[spring]             CALL leasehold_has_row(p_namespace, p_name, v_entry, v_has);
--[spring]             IF NOT v_has THEN
--[spring]                 SET p_capacity = v_capacity, p_room = -1, p_holders = 1, p_soonest = v_expires_at;
--[spring]                 LEAVE settling;
--[spring]             END IF;
--[spring]         END IF;
        SET p_capacity = COALESCE(p_capacity, v_capacity);
        SET p_room = COALESCE(p_room, p_capacity) - v_weight;
        IF p_room < 0 THEN
            LEAVE settling;
        END IF;
--[spring]         IF NOT v_holds THEN
--[spring]             -- Nobody moves the end of a lease any more whose row is about to say it.
--[spring]             SELECT expires_at INTO v_expires_at FROM leasehold_entry
--[spring]             WHERE entry = v_entry FOR UPDATE;
--[spring]             CALL leasehold_take_row(p_namespace, p_name, v_entry, p_now, v_expires_at, v_has);
--[spring]             IF NOT v_has THEN
--[spring]                 SET p_room = -1;
--[spring]                 LEAVE settling;
--[spring]             END IF;
--[spring]         END IF;
        SET p_holders = p_holders + 1, p_soonest = LEAST(COALESCE(p_soonest, v_expires_at), v_expires_at);
        IF NOT v_holds THEN
            UPDATE leasehold_entry SET holds = TRUE WHERE entry = v_entry;
        END IF;
    END LOOP;
END //

DROP PROCEDURE IF EXISTS leasehold_ahead //
-- How many are ahead of a slot, of whom so many hold. Of a hundred or fewer, exactly those whose lease is not over; of more, those
-- too who came and left again since the first that waits came: whoever joins does not read a line of ten thousand.
CREATE PROCEDURE leasehold_ahead(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_slot BIGINT, IN p_now DATETIME(6),
    IN p_holders BIGINT, OUT p_ahead BIGINT)
SQL SECURITY INVOKER
READS SQL DATA
BEGIN
    DECLARE v_read BIGINT;
    SELECT COUNT(*), COALESCE(SUM(near.expires_at > p_now), 0) INTO v_read, p_ahead FROM (
        SELECT expires_at FROM leasehold_entry
        WHERE namespace = p_namespace AND name = p_name AND slot < p_slot ORDER BY slot LIMIT 101) AS near;
    IF v_read > 100 THEN
        -- Everybody was given the slot behind the last there was.
        SELECT p_holders + COALESCE(p_slot - MIN(first.slot), 0) INTO p_ahead FROM (
            SELECT slot FROM leasehold_entry
            WHERE namespace = p_namespace AND name = p_name AND slot < p_slot AND NOT holds ORDER BY slot LIMIT 1) AS first;
    END IF;
END //

DROP PROCEDURE IF EXISTS leasehold_enter //
-- Joins a line, or looks up a place in it and renews its lease. Standing: holding, waiting, refused, gone, mismatch, full.
-- Crowded: whether anybody was in line.
CREATE PROCEDURE leasehold_enter(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16),
    IN p_weight BIGINT, IN p_capacity BIGINT, IN p_queues BOOLEAN, IN p_returns BOOLEAN, IN p_holding_us BIGINT,
    IN p_waiting_us BIGINT, IN p_owner VARBINARY(1024), IN p_host VARBINARY(255), IN p_pid BIGINT,
    IN p_value VARBINARY(1024), IN p_line_max BIGINT)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_shard SMALLINT DEFAULT CRC32(CONCAT(p_namespace, '/', p_name)) MOD 1024;
    DECLARE v_now, v_soonest DATETIME(6);
    DECLARE v_locked, v_capacity, v_room, v_holders, v_ticket, v_ahead BIGINT;
    DECLARE v_slot BIGINT DEFAULT 0;
    DECLARE v_holds, v_fits BOOLEAN;
    DECLARE v_standing VARCHAR(10);
--[spring]     DECLARE v_kept, v_ends BOOLEAN;
--[spring]     DECLARE v_id CHAR(32) CHARACTER SET ascii;
--[spring]     DECLARE v_client VARCHAR(36) CHARACTER SET utf8mb4;
--[spring]     DECLARE v_key, v_owner CHAR(36) CHARACTER SET ascii;
--[spring]     DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
--[spring]     DECLARE v_ttl_us BIGINT;
--[spring]     DECLARE v_since, v_until DATETIME(6);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    -- A statement then sees what was committed before it began, and locks no gaps between keys.
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT id INTO v_locked FROM leasehold_shard WHERE id = v_shard FOR UPDATE;
    IF v_locked IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rows of leasehold_shard are missing: lines cannot be locked';
    END IF;
    -- Whoever may have to wait must be let in, so nobody before it goes unseen from here on. One that is just going is waited for.
    IF p_queues AND NOT p_returns THEN
        UPDATE leasehold_entry SET alone = FALSE
        WHERE namespace = p_namespace AND name = p_name AND slot = 0 AND alone;
    END IF;
    -- Of this statement, which begins when the line is locked.
    SET v_now = UTC_TIMESTAMP(6);
    CALL leasehold_settle(p_namespace, p_name, v_now, v_capacity, v_room, v_holders, v_soonest);
    -- If nobody is in line we are not.
    IF v_capacity IS NOT NULL THEN
        SELECT MAX(ticket), MAX(slot), MAX(holds) INTO v_ticket, v_slot, v_holds FROM leasehold_entry
        WHERE entry = p_entry AND namespace = p_namespace AND name = p_name AND expires_at > v_now;
    END IF;
--[spring]     IF v_ticket IS NOT NULL AND v_holds THEN
--[spring]         SELECT GREATEST(expires_at, DATE_ADD(v_now, INTERVAL p_holding_us MICROSECOND)) INTO v_until
--[spring]         FROM leasehold_entry WHERE entry = p_entry FOR UPDATE;
--[spring]         CALL leasehold_hand_row(p_namespace, p_name, p_entry, p_entry, v_now, v_until, v_kept);
--[spring]         IF NOT v_kept THEN
--[spring]             DELETE FROM leasehold_entry WHERE entry = p_entry;
--[spring]             SET v_ticket = NULL;
--[spring]         END IF;
--[spring]     END IF;
    IF v_ticket IS NOT NULL THEN
        UPDATE leasehold_entry SET expires_at = GREATEST(expires_at,
            DATE_ADD(v_now, INTERVAL IF(v_holds, p_holding_us, p_waiting_us) MICROSECOND)) WHERE entry = p_entry;
        IF NOT v_holds THEN
            CALL leasehold_ahead(p_namespace, p_name, v_slot, v_now, v_holders, v_ahead);
        END IF;
        SET v_standing = IF(v_holds, 'holding', 'waiting');
    ELSE
        SET v_fits = v_capacity IS NULL OR v_capacity = p_capacity AND v_room >= p_weight;
--[spring]         IF v_fits AND NOT p_returns THEN
--[spring]             SET v_until = DATE_ADD(v_now, INTERVAL p_holding_us MICROSECOND);
--[spring]             CALL leasehold_take_row(p_namespace, p_name, p_entry, v_now, v_until, v_fits);
--[spring]         END IF;
        SET v_standing = CASE
            WHEN p_returns THEN 'gone'
            WHEN v_capacity <> p_capacity THEN 'mismatch'
            WHEN NOT v_fits AND NOT p_queues THEN 'refused'
        END;
        IF v_standing IS NULL AND (v_capacity IS NOT NULL OR NOT v_fits) THEN
            -- As above, and before slots are counted: somebody who is refused changes nothing, and has not come so far.
            IF NOT p_queues THEN
                UPDATE leasehold_entry SET alone = FALSE
                WHERE namespace = p_namespace AND name = p_name AND slot = 0 AND alone;
            END IF;
            SELECT COALESCE(MAX(slot) + 1, 0) INTO v_slot
            FROM leasehold_entry WHERE namespace = p_namespace AND name = p_name;
            CALL leasehold_ahead(p_namespace, p_name, v_slot, v_now, v_holders, v_ahead);
            IF NOT v_fits AND v_ahead >= p_line_max THEN
                SELECT COUNT(*) INTO v_ahead FROM leasehold_entry
                WHERE namespace = p_namespace AND name = p_name AND expires_at > v_now;
                SET v_standing = IF(v_ahead >= p_line_max, 'full', NULL);
            END IF;
        END IF;
        IF v_standing IS NULL THEN
            -- One of this id that has expired, and nobody has taken out yet.
            IF v_room < 0 THEN
                DELETE FROM leasehold_entry WHERE entry = p_entry;
            END IF;
--[spring]             CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
--[spring]             CALL leasehold_row_owner(p_entry, v_owner);
            INSERT INTO leasehold_entry (namespace, name, slot, entry, weight, capacity, holds, alone, owner, host, pid, value,
--[spring]                 row_key, row_owner,
                entered_at, expires_at)
            VALUES (p_namespace, p_name, v_slot, p_entry, p_weight, p_capacity, v_fits, v_fits AND v_capacity IS NULL, p_owner,
                p_host, p_pid, p_value,
--[spring]                 v_key, v_owner,
                v_now, DATE_ADD(v_now, INTERVAL IF(v_fits, p_holding_us, p_waiting_us) MICROSECOND));
            SET v_ticket = LAST_INSERT_ID();
            SET v_standing = IF(v_fits, 'holding', 'waiting');
        END IF;
    END IF;
--[spring]     -- Nobody of ours holds, so somebody else does, who tells nobody when it leaves: the first in line looks as often as
--[spring]     -- Spring's own do. Those behind it are told when it is not there any more.
--[spring]     IF v_holders = 0 AND v_standing = 'waiting' THEN
--[spring]         SET v_holders = 1, v_ahead = v_ahead + 1, v_soonest = NULL;
--[spring]         IF v_ahead = 1 THEN
--[spring]             CALL leasehold_foreign_row(p_namespace, p_name, v_now, v_id, v_client, v_since, v_until);
--[spring]             SET v_soonest = DATE_ADD(v_now, INTERVAL 100000 MICROSECOND);
--[spring]             SET v_soonest = LEAST(v_soonest, COALESCE(v_until, v_soonest));
--[spring]         END IF;
--[spring]     END IF;
    COMMIT;
    SELECT v_standing AS standing, v_ticket AS ticket, v_ahead AS ahead, v_holders AS holders,
        TIMESTAMPDIFF(MICROSECOND, v_now, v_soonest) AS soonest_us, v_capacity AS capacity, v_capacity IS NOT NULL AS crowded;
END //

DROP PROCEDURE IF EXISTS leasehold_leave //
-- Gives a place up. Standing: what it was: holding, waiting, gone. Crowded: whether anybody else is in line.
CREATE PROCEDURE leasehold_leave(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16))
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_shard SMALLINT DEFAULT CRC32(CONCAT(p_namespace, '/', p_name)) MOD 1024;
    DECLARE v_now, v_soonest, v_expires_at DATETIME(6);
    DECLARE v_locked, v_capacity, v_room, v_holders BIGINT;
    DECLARE v_holds BOOLEAN;
--[spring]     DECLARE v_had BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT id INTO v_locked FROM leasehold_shard WHERE id = v_shard FOR UPDATE;
    IF v_locked IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rows of leasehold_shard are missing: lines cannot be locked';
    END IF;
    SET v_now = UTC_TIMESTAMP(6);
    SELECT MAX(holds), MAX(expires_at) INTO v_holds, v_expires_at FROM leasehold_entry
    WHERE entry = p_entry AND namespace = p_namespace AND name = p_name;
    IF v_holds IS NOT NULL THEN
        DELETE FROM leasehold_entry WHERE entry = p_entry;
        -- One that was alone may have been given up since.
        SET v_holds = IF(ROW_COUNT() = 1, v_holds, NULL);
    END IF;
    IF v_holds IS NOT NULL THEN
--[spring]         CALL leasehold_pass_row(p_namespace, p_name, p_entry, v_now, v_had);
        CALL leasehold_settle(p_namespace, p_name, v_now, v_capacity, v_room, v_holders, v_soonest);
    END IF;
--[spring]     -- A program of another kind is taken out like one of ours.
--[spring]     IF v_holds IS NULL THEN
--[spring]         CALL leasehold_delete_foreign(p_namespace, p_name, p_entry, v_now, v_had);
--[spring]         IF v_had THEN
--[spring]             CALL leasehold_settle(p_namespace, p_name, v_now, v_capacity, v_room, v_holders, v_soonest);
--[spring]             SET v_holds = TRUE, v_expires_at = DATE_ADD(v_now, INTERVAL 1 SECOND);
--[spring]         END IF;
--[spring]     END IF;
    COMMIT;
    SELECT CASE WHEN v_holds IS NULL OR v_expires_at <= v_now THEN 'gone' WHEN v_holds THEN 'holding' ELSE 'waiting' END
        AS standing, v_capacity IS NOT NULL AS crowded;
END //

DROP PROCEDURE IF EXISTS leasehold_ask_to_yield //
-- Asks whoever has that entry to let go of it, with its next renewal. Whether there is one.
CREATE PROCEDURE leasehold_ask_to_yield(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16))
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    UPDATE leasehold_entry SET yield_asked = TRUE
    WHERE entry = p_entry AND namespace = p_namespace AND name = p_name AND expires_at > UTC_TIMESTAMP(6);
    SELECT COUNT(*) AS done FROM leasehold_entry
    WHERE entry = p_entry AND namespace = p_namespace AND name = p_name AND expires_at > UTC_TIMESTAMP(6);
END //

DROP PROCEDURE IF EXISTS leasehold_annotate //
-- Replaces the value beside an entry that holds. Whether it does.
CREATE PROCEDURE leasehold_annotate(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16),
    IN p_value VARBINARY(1024))
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_shard SMALLINT DEFAULT CRC32(CONCAT(p_namespace, '/', p_name)) MOD 1024;
    DECLARE v_now, v_soonest DATETIME(6);
    DECLARE v_locked, v_capacity, v_room, v_holders, v_found BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT id INTO v_locked FROM leasehold_shard WHERE id = v_shard FOR UPDATE;
    IF v_locked IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rows of leasehold_shard are missing: lines cannot be locked';
    END IF;
    SET v_now = UTC_TIMESTAMP(6);
    CALL leasehold_settle(p_namespace, p_name, v_now, v_capacity, v_room, v_holders, v_soonest);
    SELECT COUNT(*) INTO v_found FROM leasehold_entry
    WHERE entry = p_entry AND namespace = p_namespace AND name = p_name AND holds;
    IF v_found = 1 THEN
        UPDATE leasehold_entry SET value = p_value WHERE entry = p_entry;
    END IF;
    COMMIT;
    SELECT v_found AS done;
END //

DROP PROCEDURE IF EXISTS leasehold_tidy //
-- Takes everybody out of a line whose lease is over.
CREATE PROCEDURE leasehold_tidy(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512))
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_shard SMALLINT DEFAULT CRC32(CONCAT(p_namespace, '/', p_name)) MOD 1024;
    DECLARE v_now, v_soonest DATETIME(6);
    DECLARE v_locked, v_capacity, v_room, v_holders BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT id INTO v_locked FROM leasehold_shard WHERE id = v_shard FOR UPDATE;
    IF v_locked IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rows of leasehold_shard are missing: lines cannot be locked';
    END IF;
    SET v_now = UTC_TIMESTAMP(6);
    DELETE FROM leasehold_entry WHERE namespace = p_namespace AND name = p_name AND expires_at <= v_now
--[spring]         AND NOT holds -- `leasehold_settle` takes that one out, whose row goes to the next
    ;
    CALL leasehold_settle(p_namespace, p_name, v_now, v_capacity, v_room, v_holders, v_soonest);
    COMMIT;
END //

DROP PROCEDURE IF EXISTS leasehold_list //
-- The lines of a namespace from one name to another, in the order of their names, of so many keys at most. Whoever looks first
-- after a lease has ended takes it out.
CREATE PROCEDURE leasehold_list(IN p_namespace VARBINARY(128), IN p_after VARBINARY(512), IN p_only VARBINARY(512),
    IN p_keys_max BIGINT)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_name, v_last VARBINARY(512);
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
    SELECT MAX(name) INTO v_last FROM (
        SELECT DISTINCT name FROM leasehold_entry
        WHERE namespace = p_namespace AND name > p_after AND (p_only IS NULL OR name = p_only)
        ORDER BY name LIMIT p_keys_max) AS page;
    SET v_name = p_after;
    tidying: LOOP
        SET v_done = FALSE;
        SELECT name INTO v_name FROM leasehold_entry
        WHERE namespace = p_namespace AND name > v_name AND name <= v_last AND (p_only IS NULL OR name = p_only)
            AND expires_at <= UTC_TIMESTAMP(6)
        ORDER BY name LIMIT 1;
        IF v_done THEN
            LEAVE tidying;
        END IF;
        CALL leasehold_tidy(p_namespace, v_name);
    END LOOP;
    SELECT name, ticket, entry, weight, capacity, holds, yield_asked, owner, host, pid, value,
        TIMESTAMPDIFF(MICROSECOND, entered_at, UTC_TIMESTAMP(6)) AS age_us,
        TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) AS left_us
    FROM leasehold_entry
    WHERE namespace = p_namespace AND name > p_after AND name <= v_last AND (p_only IS NULL OR name = p_only)
        AND expires_at > UTC_TIMESTAMP(6)
    ORDER BY name, slot;
END //

DROP PROCEDURE IF EXISTS leasehold_sweep //
-- Takes out what nobody comes back for: entries of clients that are gone, on keys that nobody uses. Whoever asks, it is done
-- once a minute.
CREATE PROCEDURE leasehold_sweep()
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_namespace VARBINARY(128) DEFAULT '';
    DECLARE v_name VARBINARY(512) DEFAULT '';
    DECLARE v_left INT DEFAULT 10000;
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
    UPDATE leasehold_store SET swept_at = UTC_TIMESTAMP(6)
    WHERE swept_at < DATE_SUB(UTC_TIMESTAMP(6), INTERVAL 1 MINUTE);
    IF ROW_COUNT() = 1 THEN
        sweeping: LOOP
            SELECT namespace, name INTO v_namespace, v_name FROM leasehold_entry
            WHERE (namespace > v_namespace OR namespace = v_namespace AND name > v_name)
                AND expires_at <= UTC_TIMESTAMP(6)
            ORDER BY namespace, name LIMIT 1;
            IF v_done OR v_left = 0 THEN
                LEAVE sweeping;
            END IF;
            SET v_left = v_left - 1;
            CALL leasehold_tidy(v_namespace, v_name);
        END LOOP;
    END IF;
END //

DROP PROCEDURE IF EXISTS leasehold_fill //
-- Makes the rows that are locked, and says at last which layout this is.
CREATE PROCEDURE leasehold_fill()
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_id SMALLINT DEFAULT 0;
    WHILE v_id < 1024 DO
        INSERT IGNORE INTO leasehold_shard (id) VALUES (v_id);
        SET v_id = v_id + 1;
    END WHILE;
--[spring]     INSERT IGNORE INTO leasehold_store (one, version, region, ttl_ms, swept_at)
--[spring]     VALUES (1, 102, '{region}', {ttl_ms}, '2000-01-01');
--[spring]     -- Which leaves the next one nothing to do.
    INSERT IGNORE INTO leasehold_store (one, version, swept_at) VALUES (1, 2, '2000-01-01');
END //

DELIMITER ;

START TRANSACTION;
CALL leasehold_fill();
COMMIT;
DROP PROCEDURE leasehold_fill;
