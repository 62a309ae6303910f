-- hapax on MariaDB and MySQL, schema 2: messages that are not due yet.
CREATE TABLE IF NOT EXISTS hapax.schedule (
    id           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    endpoint     VARBINARY(255) NOT NULL, -- that sends it
    message_id   VARBINARY(255) NOT NULL,
    destination  VARBINARY(512) NOT NULL,
    due_at       BIGINT         NOT NULL, -- by the sender's clock
    leased_until BIGINT         NOT NULL DEFAULT 0,
    token        BIGINT         NOT NULL DEFAULT 0, -- of whoever was given it last: a receipt with another one is lost
    repeats      BIGINT         NOT NULL DEFAULT 0, -- how often it was put again: a change, whose commit waits for the disk
    bytes        BIGINT         NOT NULL, -- of the envelope
    envelope     LONGBLOB       NOT NULL, -- hapax record
    UNIQUE KEY message (endpoint, message_id, destination),
    KEY due (endpoint, due_at, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Programs that know schema 1 and no more may go on: they leave the table alone.
INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON DUPLICATE KEY UPDATE value = value;

INSERT INTO hapax.migration (version, name) VALUES (2, 'schedule') ON DUPLICATE KEY UPDATE version = version;
