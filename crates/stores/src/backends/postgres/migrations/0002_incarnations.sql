-- A server that has lost commits, because a replica without them took over or a backup was restored, begins a new incarnation,
-- in which the gateways restore their records.

ALTER TABLE head
    ADD COLUMN incarnation bigint NOT NULL DEFAULT 1,
    ADD COLUMN name bigint NOT NULL DEFAULT 0,
    ADD COLUMN lost_at timestamptz,
    ADD COLUMN stock_is_doubtful boolean NOT NULL DEFAULT false;
COMMENT ON TABLE head IS 'One row: whoever writes locks it first. How many commits there were, and when some were last lost.';
