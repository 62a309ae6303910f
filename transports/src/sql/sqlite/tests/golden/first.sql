PRAGMA application_id = 1751216248;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE hapax_queue_migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
CREATE TABLE hapax_queue (
    id       INTEGER PRIMARY KEY,
    endpoint TEXT    NOT NULL UNIQUE
) STRICT;
CREATE TABLE hapax_queue_subscription (
    type  TEXT    NOT NULL,
    queue INTEGER NOT NULL,
    PRIMARY KEY (type, queue)
) STRICT, WITHOUT ROWID;
CREATE TABLE hapax_queue_message (
    id           INTEGER PRIMARY KEY,
    queue        INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    deliveries   INTEGER NOT NULL,
    place        INTEGER NOT NULL,
    sent_at      INTEGER NOT NULL,
    first_at     INTEGER NOT NULL,
    key          TEXT,
    message_id   TEXT    NOT NULL,
    envelope     BLOB    NOT NULL
) STRICT;
CREATE INDEX hapax_queue_message_available ON hapax_queue_message (queue, available_at);
CREATE INDEX hapax_queue_message_key ON hapax_queue_message (queue, key) WHERE key IS NOT NULL;
CREATE TABLE hapax_queue_dead_letter (
    id          INTEGER PRIMARY KEY,
    endpoint    TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    saga        TEXT    NOT NULL,
    destination TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    sent_at     INTEGER,
    first_at    INTEGER,
    time        INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    envelope    BLOB    NOT NULL,
    fingerprint BLOB,
    UNIQUE (endpoint, message_id, saga, destination, fingerprint)
) STRICT;
CREATE INDEX hapax_queue_dead_letter_time ON hapax_queue_dead_letter (time);
INSERT INTO hapax_queue_migration VALUES (1, 'queue', 1700000000000);
INSERT INTO hapax_queue VALUES (1, 'shop');
INSERT INTO hapax_queue_subscription VALUES ('shop.item-added', 1);
INSERT INTO hapax_queue_message (id, queue, available_at, token, deliveries, place, sent_at, first_at, key, message_id, envelope)
VALUES (1, 1, 1700000000001, -7, 0, 0, 1700000000000, 1700000000000, NULL, '0190163d-8694-739b-aea5-966c26f8ad91',
  X'7001000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170706c69636174696f6e2f6a736f6e01000d7b226f72646572223a2237227d00000000000000');
INSERT INTO hapax_queue_message (id, queue, available_at, token, deliveries, place, sent_at, first_at, key, message_id, envelope)
VALUES (2, 1, 1700000000002, -7, 0, 0, 1700000000000, 1700000000000, NULL, 'order 7/ü',
  X'7001010a6f7264657220372fc3bc0108696e74656e7420310d73686f702e6164642d6974656d010770726f636573730100f47ac10b58cc4372a5670e02b2c3d479010137106170706c69636174696f6e2f6a736f6e03040473686f700a4bc3b66c6e2031303025056170706c6503326e640c636f6e74656e742d74797065046d696e650e68617061782d73657175656e63651c3037303730373037303730373037303730373037303730372e323538197b226f72646572223a2237222c226e6f7465223a22c3bc227d0180d095ffbc310181d095ffbc3101e0a499ffbc31010461636d65013730302d30616637363531393136636434336464383434386562323131633830333139632d623761643662373136393230333333312d30310100046465736b01');
INSERT INTO hapax_queue_dead_letter (id, endpoint, message_id, saga, destination, attempts, sent_at, first_at, time, reason, envelope, fingerprint)
VALUES (1, 'shop', 'order 7/ü', 'order', 'topic:shop.item-added', 5, NULL, NULL, 1700000000002, 'it is
of no use: 100 %',
  X'7001010a6f7264657220372fc3bc0108696e74656e7420310d73686f702e6164642d6974656d010770726f636573730100f47ac10b58cc4372a5670e02b2c3d479010137106170706c69636174696f6e2f6a736f6e03040473686f700a4bc3b66c6e2031303025056170706c6503326e640c636f6e74656e742d74797065046d696e650e68617061782d73657175656e63651c3037303730373037303730373037303730373037303730372e323538197b226f72646572223a2237222c226e6f7465223a22c3bc227d0180d095ffbc310181d095ffbc3101e0a499ffbc31010461636d65013730302d30616637363531393136636434336464383434386562323131633830333139632d623761643662373136393230333333312d30310100046465736b01',
  X'2ba618f84101ad7001fcafdb0ad02f2a');
INSERT INTO hapax_queue_dead_letter (id, endpoint, message_id, saga, destination, attempts, sent_at, first_at, time, reason, envelope, fingerprint)
VALUES (2, 'shop', '0190163d-8694-739b-aea5-966c26f8ad91', '', '', 3, 1700000000000, 1700000000001, 1700000000002, 'no more tries',
  X'7001000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170706c69636174696f6e2f6a736f6e01000d7b226f72646572223a2237227d00000000000000',
  NULL);
COMMIT;
