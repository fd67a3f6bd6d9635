-- Everything solvegate keeps. A primary key is in the order rows are looked for; there is no other index, because nothing is
-- looked for in any other order. `version` changes with every write of a row and is what decisions compare. `body` is the
-- row itself, with a checksum; the columns behind it show what is in it, for people and their queries. Nothing is decided by
-- them. Texts of keys sort by their bytes. Times are UTC with milliseconds; money is in millionths.

CREATE TABLE head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    commits bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE head IS 'One row: whoever writes locks it first. How many commits there were.';
INSERT INTO head DEFAULT VALUES;

CREATE TABLE turns (
    writer bigint PRIMARY KEY,
    turn bigint NOT NULL,
    at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE turns IS 'The last commit of each gateway process: after a lost reply it says whether the commit was carried out.';

CREATE TABLE claims (
    claim bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    worker text,
    project text,
    kind text,
    state text,
    source text,
    code text,
    sitekey text,
    pageurl text,
    solve bigint,
    opened_at timestamptz,
    ended_at timestamptz,
    delivered_at timestamptz,
    attempts bigint,
    cost_micros bigint,
    PRIMARY KEY (claim)
) WITH (fillfactor = 80);
COMMENT ON TABLE claims IS 'Claims by name: one workers right to one token.';

CREATE TABLE keys (
    key bytea NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    claim bigint,
    PRIMARY KEY (key)
);
COMMENT ON TABLE keys IS 'Which claim an idempotency key (hashed) belongs to.';

CREATE TABLE solves (
    solve bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    worker text,
    project text,
    kind text,
    stage text,
    holder text,
    task text,
    attempt bigint,
    opened_at timestamptz,
    due timestamptz,
    ended_at timestamptz,
    PRIMARY KEY (solve)
) WITH (fillfactor = 70);
COMMENT ON TABLE solves IS 'Solves by name: the effort to get one token.';

CREATE TABLE challenges (
    solve bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    kind text,
    PRIMARY KEY (solve)
);
COMMENT ON TABLE challenges IS 'What a solve is about; written once, up to a mebibyte.';

CREATE TABLE free (
    due timestamptz NOT NULL,
    solve bigint NOT NULL,
    PRIMARY KEY (due, solve)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE free IS 'Solves under way that nobody holds, by when they are due.';

CREATE TABLE held (
    holder bytea NOT NULL,
    due timestamptz NOT NULL,
    solve bigint NOT NULL,
    PRIMARY KEY (holder, due, solve)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE held IS 'Solves under way that a gateway holds, by gateway and when they are due.';

CREATE TABLE holders (
    holder bytea NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    alive_until timestamptz,
    PRIMARY KEY (holder)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE holders IS 'Until when each gateway is believed alive.';

CREATE TABLE waiting (
    fingerprint bytea NOT NULL,
    opened_at timestamptz NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (fingerprint, opened_at, claim)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE waiting IS 'Waiting claims of a fingerprint, oldest first.';

CREATE TABLE joinable (
    fingerprint bytea NOT NULL,
    solve bigint NOT NULL,
    PRIMARY KEY (fingerprint, solve)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE joinable IS 'Solves under way whose answer several claims may have.';

CREATE TABLE watched (
    at timestamptz NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (at, claim)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE watched IS 'Claims the sweep has to look at, by when.';

CREATE TABLE stock (
    fingerprint bytea NOT NULL,
    expires_at timestamptz NOT NULL,
    solve bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    worker text,
    project text,
    kind text,
    PRIMARY KEY (fingerprint, expires_at, solve)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE stock IS 'Tokens that belong to nobody, by fingerprint, earliest expiry first.';

CREATE TABLE expiries (
    expires_at timestamptz NOT NULL,
    fingerprint bytea NOT NULL,
    solve bigint NOT NULL,
    PRIMARY KEY (expires_at, fingerprint, solve)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE expiries IS 'The stock by expiry.';

CREATE TABLE pages (
    seq bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    first_seq bigint,
    at timestamptz,
    entries bigint,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);
COMMENT ON TABLE pages IS 'The ledger: the entries of one decision, by the place of the last of them.';
-- The newest partition takes everything that comes. When a day has passed it is closed at the last entry, and another is
-- begun; a closed one that retention has emptied is dropped.
CREATE TABLE pages_newest PARTITION OF pages FOR VALUES FROM (MINVALUE) TO (MAXVALUE);

CREATE TABLE told (
    sort smallint NOT NULL,
    subject bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (sort, subject, seq)
);
COMMENT ON TABLE told IS 'Which pages tell about a claim (sort 0), a solve (1) or a moment (2).';

CREATE TABLE totals (
    day date NOT NULL,
    label text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    worker text,
    project text,
    kind text,
    claims bigint,
    opened bigint,
    attempts bigint,
    solved bigint,
    failed bigint,
    replayed bigint,
    joined bigint,
    stocked bigint,
    cost_micros bigint,
    PRIMARY KEY (day, label)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE totals IS 'Sums of the ledger by day and label.';

CREATE TABLE spending (
    day date NOT NULL,
    worker text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    opened bigint,
    listed_micros bigint,
    PRIMARY KEY (day, worker)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE spending IS 'What a worker opened on a day.';

CREATE TABLE authorised (
    day date NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    authorised bigint,
    PRIMARY KEY (day)
);
COMMENT ON TABLE authorised IS 'Ambiguous attempts of a day that were sent once more.';

CREATE TABLE by_time (
    opened_at timestamptz NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (opened_at, claim)
);
COMMENT ON TABLE by_time IS 'Claims by age.';

CREATE TABLE by_worker (
    worker text COLLATE "C" NOT NULL,
    opened_at timestamptz NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (worker, opened_at, claim)
);
COMMENT ON TABLE by_worker IS 'A worker''s claims by age.';

CREATE TABLE by_sitekey (
    sitekey text COLLATE "C" NOT NULL,
    opened_at timestamptz NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (sitekey, opened_at, claim)
);
COMMENT ON TABLE by_sitekey IS 'A site key''s claims by age.';

CREATE TABLE dead_letters (
    solve bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    worker text,
    project text,
    kind text,
    code text,
    attempts bigint,
    cost_micros bigint,
    died_at timestamptz,
    closed_at timestamptz,
    PRIMARY KEY (solve)
);
COMMENT ON TABLE dead_letters IS 'What failed, by solve.';

CREATE TABLE died (
    died_at timestamptz NOT NULL,
    solve bigint NOT NULL,
    PRIMARY KEY (died_at, solve)
);
COMMENT ON TABLE died IS 'Dead letters by age.';

CREATE TABLE tasks (
    task text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    solve bigint,
    attempt bigint,
    PRIMARY KEY (task)
);
COMMENT ON TABLE tasks IS 'Which attempt a task of the provider belongs to; two never share one.';

CREATE TABLE garbage (
    at timestamptz NOT NULL,
    sort smallint NOT NULL,
    subject bigint NOT NULL,
    PRIMARY KEY (at, sort, subject)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE garbage IS 'What may be dropped, and when: a challenge (sort 0), a solve (1), a claim (2).';

CREATE TABLE callbacks (
    claim bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    state text,
    tries bigint,
    due timestamptz,
    PRIMARY KEY (claim)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE callbacks IS 'Ends of claims that no receiver has taken yet.';

CREATE TABLE outbox (
    due timestamptz NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (due, claim)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE outbox IS 'The same by when they are tried next.';

CREATE TABLE pools (
    fingerprint bytea NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    arrived bigint,
    hits bigint,
    ordered bigint,
    wasted bigint,
    PRIMARY KEY (fingerprint)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE pools IS 'Standing orders.';

CREATE TABLE spare (
    fingerprint bytea NOT NULL,
    solve bigint NOT NULL,
    PRIMARY KEY (fingerprint, solve)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, fillfactor = 70);
COMMENT ON TABLE spare IS 'Solves under way that nobody waits for and whose token one claim may have.';

CREATE TABLE margins (
    host text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    good bigint,
    bad bigint,
    PRIMARY KEY (host, kind)
);
COMMENT ON TABLE margins IS 'What was learned about how early tokens have to be used, by site and kind.';

CREATE TABLE memos (
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (name)
);
COMMENT ON TABLE memos IS 'Small things learned, by name.';

CREATE TABLE archived (
    one smallint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    seq bigint,
    PRIMARY KEY (one)
);
COMMENT ON TABLE archived IS 'In an archive: how far it was told the ledger of its store. One row.';
