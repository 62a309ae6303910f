-- The body as text, which Debezium's outbox event router expands. Harmless when applied again.
BEGIN;
ALTER TABLE hapax.outbox ADD COLUMN IF NOT EXISTS body_text text;
CREATE OR REPLACE FUNCTION hapax.outbox_body_text() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF NEW.content_type <> 'application/json' THEN
        RAISE EXCEPTION 'the outbox is sent by Debezium with expanded payloads, which takes JSON only, not %', NEW.content_type;
    END IF;
    NEW.body_text := convert_from(NEW.body, 'UTF8');
    RETURN NEW;
END
$body$;
DROP TRIGGER IF EXISTS body_text ON hapax.outbox;
CREATE TRIGGER body_text BEFORE INSERT ON hapax.outbox FOR EACH ROW EXECUTE FUNCTION hapax.outbox_body_text();
UPDATE hapax.outbox SET body_text = convert_from(body, 'UTF8') WHERE status = 0 AND content_type = 'application/json' AND body_text IS NULL;
COMMIT;
