-- Spring Integration's table. If there is none, it is made as Spring 7's script makes it.
CREATE TABLE IF NOT EXISTS INT_LOCK (
    LOCK_KEY CHAR(36) NOT NULL,
    REGION VARCHAR(100) NOT NULL,
    CLIENT_ID CHAR(36),
    CREATED_DATE DATETIME(6) NOT NULL,
    EXPIRED_AFTER DATETIME(6) NOT NULL,
    CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)
) ENGINE = InnoDB //

DROP PROCEDURE IF EXISTS leasehold_row //
-- Where the row of a lock is, how long Spring 6 lets one live, and whether rows say when they end, as they do since Spring 7.
-- That is asked anew each time: the table may be altered beneath us, but by nobody from here on until we commit. Other programs compute the same key: Java's
-- UUID.nameUUIDFromBytes, unless the name looks like a UUID. Texts are ASCII, and so agree with any collation of the table.
CREATE PROCEDURE leasehold_row(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512),
    OUT p_key CHAR(36) CHARACTER SET ascii, OUT p_region VARCHAR(100) CHARACTER SET ascii, OUT p_ttl_us BIGINT,
    OUT p_ends BOOLEAN)
SQL SECURITY INVOKER
READS SQL DATA
BEGIN
    DECLARE v_hash CHAR(32) CHARACTER SET ascii;
    DECLARE v_end DATETIME(6);
    -- There is no such column.
    DECLARE CONTINUE HANDLER FOR 1054 SET p_ends = FALSE;
    SELECT region, ttl_ms * 1000 INTO p_region, p_ttl_us FROM leasehold_store;
    SET p_ends = TRUE;
    -- No row is read for this. The server's own list of columns is made anew for each question, and takes several times as long.
    SELECT MAX(EXPIRED_AFTER) INTO v_end FROM INT_LOCK WHERE FALSE;
    IF p_namespace = '' AND LENGTH(p_name) = 36 AND CONVERT(p_name USING latin1)
        REGEXP '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$' THEN
        SET p_key = LOWER(CONVERT(p_name USING latin1));
    ELSE
        SET v_hash = MD5(IF(p_namespace = '', p_name, CONCAT(p_namespace, ':', p_name)));
        -- Version 3, and the variant in the two upper bits of its digit.
        SET p_key = CONCAT_WS('-', SUBSTR(v_hash, 1, 8), SUBSTR(v_hash, 9, 4), CONCAT('3', SUBSTR(v_hash, 14, 3)),
            CONCAT(SUBSTR('89ab89ab89ab89ab', INSTR('0123456789abcdef', SUBSTR(v_hash, 17, 1)), 1), SUBSTR(v_hash, 18, 3)),
            SUBSTR(v_hash, 21));
    END IF;
END //

DROP PROCEDURE IF EXISTS leasehold_row_owner //
-- What stands in a row that an entry of ours has.
CREATE PROCEDURE leasehold_row_owner(IN p_entry BINARY(16), OUT p_owner CHAR(36) CHARACTER SET ascii)
SQL SECURITY INVOKER
NO SQL
BEGIN
    DECLARE v_id CHAR(32) CHARACTER SET ascii DEFAULT LOWER(HEX(p_entry));
    SET p_owner = CONCAT_WS('-', SUBSTR(v_id, 1, 8), SUBSTR(v_id, 9, 4), SUBSTR(v_id, 13, 4), SUBSTR(v_id, 17, 4),
        SUBSTR(v_id, 21));
END //

DROP PROCEDURE IF EXISTS leasehold_has_row //
-- Whether an entry has the row of its lock.
CREATE PROCEDURE leasehold_has_row(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16),
    OUT p_has BOOLEAN)
SQL SECURITY INVOKER
READS SQL DATA
BEGIN
    DECLARE v_key, v_owner CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_ends BOOLEAN;
    CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
    CALL leasehold_row_owner(p_entry, v_owner);
    SELECT COUNT(*) INTO p_has FROM INT_LOCK WHERE LOCK_KEY = v_key AND REGION = v_region AND CLIENT_ID = v_owner;
END //

DROP PROCEDURE IF EXISTS leasehold_take_row //
-- Lets an entry have the row until then, if there is none or its time is over. Otherwise somebody else has it.
CREATE PROCEDURE leasehold_take_row(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16),
    IN p_now DATETIME(6), IN p_until DATETIME(6), OUT p_taken BOOLEAN)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_key, v_owner CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_ends BOOLEAN;
    CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
    CALL leasehold_row_owner(p_entry, v_owner);
    IF v_ends THEN
        UPDATE INT_LOCK SET CLIENT_ID = v_owner, CREATED_DATE = p_now, EXPIRED_AFTER = p_until
        WHERE LOCK_KEY = v_key AND REGION = v_region AND (CLIENT_ID = v_owner OR EXPIRED_AFTER < p_now);
        IF ROW_COUNT() = 0 THEN
            INSERT IGNORE INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER)
            VALUES (v_key, v_region, v_owner, p_now, p_until);
        END IF;
    ELSE
        -- Spring 6 counts from this date: as early as makes its end the end of our lease.
        UPDATE INT_LOCK SET CLIENT_ID = v_owner, CREATED_DATE = DATE_SUB(p_until, INTERVAL v_ttl_us MICROSECOND)
        WHERE LOCK_KEY = v_key AND REGION = v_region
            AND (CLIENT_ID = v_owner OR CREATED_DATE < DATE_SUB(p_now, INTERVAL v_ttl_us MICROSECOND));
        IF ROW_COUNT() = 0 THEN
            INSERT IGNORE INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE)
            VALUES (v_key, v_region, v_owner, DATE_SUB(p_until, INTERVAL v_ttl_us MICROSECOND));
        END IF;
    END IF;
    SELECT COUNT(*) INTO p_taken FROM INT_LOCK WHERE LOCK_KEY = v_key AND REGION = v_region AND CLIENT_ID = v_owner;
END //

DROP PROCEDURE IF EXISTS leasehold_hand_row //
-- Hands the row that one entry has to another, or to itself for longer. If it has none, it is not taken back.
CREATE PROCEDURE leasehold_hand_row(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_from BINARY(16),
    IN p_to BINARY(16), IN p_now DATETIME(6), IN p_until DATETIME(6), OUT p_had BOOLEAN)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_key, v_from, v_to CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_ends BOOLEAN;
    CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
    CALL leasehold_row_owner(p_from, v_from);
    CALL leasehold_row_owner(p_to, v_to);
    -- Not by how many rows an update changed: one that changes nothing has none.
    SELECT COUNT(*) INTO p_had FROM INT_LOCK
    WHERE LOCK_KEY = v_key AND REGION = v_region AND CLIENT_ID = v_from FOR UPDATE;
    IF p_had AND v_ends THEN
        UPDATE INT_LOCK SET CLIENT_ID = v_to, CREATED_DATE = IF(v_from = v_to, CREATED_DATE, p_now),
            EXPIRED_AFTER = p_until
        WHERE LOCK_KEY = v_key AND REGION = v_region AND CLIENT_ID = v_from;
    ELSEIF p_had THEN
        UPDATE INT_LOCK SET CLIENT_ID = v_to, CREATED_DATE = DATE_SUB(p_until, INTERVAL v_ttl_us MICROSECOND)
        WHERE LOCK_KEY = v_key AND REGION = v_region AND CLIENT_ID = v_from;
    END IF;
END //

DROP PROCEDURE IF EXISTS leasehold_pass_row //
-- An entry has left that held: its row goes to the next in line, or away. Whether it had one.
CREATE PROCEDURE leasehold_pass_row(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_gone BINARY(16),
    IN p_now DATETIME(6), OUT p_had BOOLEAN)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_key, v_owner CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_ends BOOLEAN;
    DECLARE v_next BINARY(16);
    DECLARE v_until DATETIME(6);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_next = NULL;
    SELECT entry, expires_at INTO v_next, v_until FROM leasehold_entry
    WHERE namespace = p_namespace AND name = p_name AND expires_at > p_now ORDER BY slot LIMIT 1 FOR UPDATE;
    IF v_next IS NOT NULL THEN
        CALL leasehold_hand_row(p_namespace, p_name, p_gone, v_next, p_now, v_until, p_had);
    ELSE
        CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
        CALL leasehold_row_owner(p_gone, v_owner);
        DELETE FROM INT_LOCK WHERE LOCK_KEY = v_key AND REGION = v_region AND CLIENT_ID = v_owner;
        SET p_had = ROW_COUNT() = 1;
    END IF;
END //

DROP PROCEDURE IF EXISTS leasehold_foreign_row //
-- Who has the row and is not of ours, since when, and until when; null if nobody. Its id is its own if that is a UUID, and
-- otherwise made of it.
CREATE PROCEDURE leasehold_foreign_row(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_now DATETIME(6),
    OUT p_id CHAR(32) CHARACTER SET ascii, OUT p_client VARCHAR(36) CHARACTER SET utf8mb4, OUT p_since DATETIME(6),
    OUT p_until DATETIME(6))
SQL SECURITY INVOKER
READS SQL DATA
BEGIN
    DECLARE v_key CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us, v_ours BIGINT;
    DECLARE v_ends BOOLEAN;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET p_until = NULL;
    CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
    IF v_ends THEN
        SELECT COALESCE(CLIENT_ID, ''), CREATED_DATE, EXPIRED_AFTER INTO p_client, p_since, p_until
        FROM INT_LOCK WHERE LOCK_KEY = v_key AND REGION = v_region;
    ELSE
        SELECT COALESCE(CLIENT_ID, ''), CREATED_DATE, DATE_ADD(CREATED_DATE, INTERVAL v_ttl_us MICROSECOND)
        INTO p_client, p_since, p_until FROM INT_LOCK WHERE LOCK_KEY = v_key AND REGION = v_region;
    END IF;
    SELECT COUNT(*) INTO v_ours FROM leasehold_entry
    WHERE namespace = p_namespace AND name = p_name AND holds AND row_owner = p_client;
    IF p_until IS NULL OR p_until < p_now OR v_ours > 0 THEN
        SET p_client = NULL, p_since = NULL, p_until = NULL;
    END IF;
    SET p_id = IF(p_client REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$',
        LOWER(REPLACE(p_client, '-', '')), MD5(p_client));
END //

DROP PROCEDURE IF EXISTS leasehold_foreign //
-- That one, as a row.
CREATE PROCEDURE leasehold_foreign(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512))
SQL SECURITY INVOKER
READS SQL DATA
BEGIN
    DECLARE v_id CHAR(32) CHARACTER SET ascii;
    DECLARE v_client VARCHAR(36) CHARACTER SET utf8mb4;
    DECLARE v_now, v_since, v_until DATETIME(6);
    SET v_now = UTC_TIMESTAMP(6);
    CALL leasehold_foreign_row(p_namespace, p_name, v_now, v_id, v_client, v_since, v_until);
    SELECT UNHEX(v_id) AS entry, CAST(v_client AS BINARY) AS owner,
        TIMESTAMPDIFF(MICROSECOND, v_since, v_now) AS age_us, TIMESTAMPDIFF(MICROSECOND, v_now, v_until) AS left_us
    FROM leasehold_store WHERE v_id IS NOT NULL;
END //

DROP PROCEDURE IF EXISTS leasehold_delete_foreign //
-- Takes the row from somebody who is not of ours and has that id. Whether there was such a row.
CREATE PROCEDURE leasehold_delete_foreign(IN p_namespace VARBINARY(128), IN p_name VARBINARY(512), IN p_entry BINARY(16),
    IN p_now DATETIME(6), OUT p_had BOOLEAN)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_id CHAR(32) CHARACTER SET ascii;
    DECLARE v_client VARCHAR(36) CHARACTER SET utf8mb4;
    DECLARE v_since, v_until DATETIME(6);
    DECLARE v_key CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_ends BOOLEAN;
    SET p_had = FALSE;
    CALL leasehold_foreign_row(p_namespace, p_name, p_now, v_id, v_client, v_since, v_until);
    IF UNHEX(v_id) = p_entry THEN
        CALL leasehold_row(p_namespace, p_name, v_key, v_region, v_ttl_us, v_ends);
        DELETE FROM INT_LOCK WHERE LOCK_KEY = v_key AND REGION = v_region
            AND CONVERT(COALESCE(CLIENT_ID, '') USING utf8mb4) COLLATE utf8mb4_bin = v_client COLLATE utf8mb4_bin;
        SET p_had = ROW_COUNT() = 1;
    END IF;
END //

DROP PROCEDURE IF EXISTS leasehold_renew_rows //
-- Extends the leases that are not over, and with those that hold their rows. One that has lost its row has lost its lock, and is
-- not extended; nor is its lease shortened, as long as its holder may not have heard of it. Entries are a list of literals that
-- becomes part of statements: a procedure takes no lists. They are as many statements for one lease as for hundreds.
CREATE PROCEDURE leasehold_renew_rows(IN p_entries MEDIUMTEXT CHARACTER SET ascii, IN p_length_us BIGINT)
SQL SECURITY INVOKER
MODIFIES SQL DATA
BEGIN
    DECLARE v_key CHAR(36) CHARACTER SET ascii;
    DECLARE v_region VARCHAR(100) CHARACTER SET ascii;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_ends BOOLEAN;
    DECLARE v_row, v_these, v_kept, v_until TEXT CHARACTER SET ascii;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    CALL leasehold_row('', '', v_key, v_region, v_ttl_us, v_ends);
    SET v_row = CONCAT('INT_LOCK l ON l.LOCK_KEY = e.row_key AND l.REGION = ', QUOTE(v_region), ' AND l.CLIENT_ID = e.row_owner');
    SET v_these = CONCAT('e.expires_at > UTC_TIMESTAMP(6) AND e.entry IN (', p_entries, ')');
    SET v_kept = CONCAT('(NOT e.holds OR l.LOCK_KEY IS NOT NULL) AND ', v_these);
    -- From here on nobody moves their ends, or lets one of them hold.
    SET @renewal = CONCAT('SELECT COUNT(*) INTO @renewed FROM leasehold_entry e WHERE ', v_these, ' FOR UPDATE');
    PREPARE renewal FROM @renewal;
    EXECUTE renewal;
    SET v_until = CONCAT('GREATEST(e.expires_at, TIMESTAMP',
        QUOTE(CAST(DATE_ADD(UTC_TIMESTAMP(6), INTERVAL p_length_us MICROSECOND) AS CHAR)), ')');
    SET @renewal = CONCAT('UPDATE leasehold_entry e STRAIGHT_JOIN ', v_row, ' SET ',
        IF(v_ends, CONCAT('l.EXPIRED_AFTER = ', v_until),
            CONCAT('l.CREATED_DATE = DATE_SUB(', v_until, ', INTERVAL ', v_ttl_us, ' MICROSECOND)')),
        ' WHERE e.holds AND ', v_these);
    PREPARE renewal FROM @renewal;
    EXECUTE renewal;
    SET @renewal = CONCAT('UPDATE leasehold_entry e LEFT JOIN ', v_row, ' SET e.expires_at = ', v_until, ' WHERE ', v_kept);
    PREPARE renewal FROM @renewal;
    EXECUTE renewal;
    COMMIT;
    SET @renewal = CONCAT('SELECT e.entry, e.yield_asked FROM leasehold_entry e LEFT JOIN ', v_row, ' WHERE ', v_kept);
    PREPARE renewal FROM @renewal;
    EXECUTE renewal;
    DEALLOCATE PREPARE renewal;
    SET @renewal = NULL, @renewed = NULL;
END //

