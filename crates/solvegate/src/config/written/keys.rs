//! Every key of the configuration, once. The comment of a key is its text in docs/configuration.md and in the schema.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use domain::{
    actor::AdminRole,
    challenge::Kind,
    id::{Project, WorkerName},
    money::{Currency, Money},
    rate::Rate,
    retry::{Class, Code, Jitter, Profile},
    secret::Secret,
    site::{AfterFailure, HostRule, Reuse},
    solve::AmbiguousPolicy,
    time::Day,
};

use super::{
    AutoOr, EncryptionKeys, Given, Key, KeyList, Mode, NonZeroDuration, OneOrMany, Params,
    PriceName, SecretPair, Section, SectionKeys,
    section::{Field, KeyForm, Source, section},
};
use crate::config::{ConfigError, valid::StoreUrl};

section! {
    /// Settings of the gateway itself.
    Keys {
        /// Address and port of the gateway. An address other than loopback needs `[tls]`.
        listen: Given<SocketAddr> = "127.0.0.1:8402", example "0.0.0.0:8402";
        /// Host names the gateway answers to, in lower case, besides `localhost` and IP addresses. A request with
        /// another `Host` gets 421. A self-signed certificate is valid for these names too.
        hosts: Given<Vec<String>> = "[]", example r#"["solvegate.internal"]"#;
        /// How long `res.php` holds an answer back for a solve that may finish soon. `0s` turns it off.
        hold: Given<Duration> = "4s", example "0s";
        /// How long a claim waits for its token when the request does not say.
        deadline: Given<NonZeroDuration> = "180s", example "2m";
        /// How long a claim without an idempotency key gets the answer of an equal earlier claim.
        reuse_window: Given<Duration> = "60s", example "30s";
        /// How long an idempotency key replays a failure before it opens the work again, at most 24 h. Answers carry what
        /// is left of it in `Retry-After`.
        failure_window: Given<Duration> = "30s", example "2m";
        /// How many attempts with an unknown outcome may be paid for a second time per day.
        ambiguity_budget: Given<u32> = "50", example "10";
        /// The most solves that wait for a slot on one gateway, from 1 to 100,000. A worker may have as many of them as are
        /// left for all, and its own `queue`.
        max_queued: Given<u32> = "10000", example "2000";
        /// Whether the connection to a store on another machine may be unencrypted, or its server unverified. Claims,
        /// tokens and passwords travel on it: set this only on a network that you trust as a whole.
        insecure_store: Given<bool> = "false", example "true";
        upstream: UpstreamKeys;
        store: StoreKeys;
        admin: OneOrMany<AdminKeys>, reloads true;
        worker: Vec<WorkerKeys>, reloads true;
        site: Vec<SiteKeys>, reloads true;
        images: ImagesKeys, reloads true;
        pool: Vec<PoolKeys>;
        polling: PollingKeys;
        retry: RetryKeys;
        callbacks: CallbacksKeys;
        alerts: AlertsKeys;
        /// How long tokens live, by kind, where a site differs from the usual.
        tokens: BTreeMap<Kind, TokenKeys>;
        tls: TlsKeys;
    }
}

section! {
    /// The paid solving service.
    UpstreamKeys {
        /// Address of the service, or `sim` for the built-in simulator. It must begin with https://, except on this
        /// machine.
        url: Option<Given<String>>, unset "`https://ocr.captchaai.com` with a key, the simulator without",
            example "https://ocr.captchaai.com";
        /// The account's key. A new one must belong to the same account, because tasks in flight are polled with it.
        key: Option<Given<Secret>>, unset "the variable `CAPTCHAAI_API_KEY`", example "env:CAPTCHAAI_API_KEY",
            reloads true;
        /// How many tasks the service works on at once, for all gateways together. With `auto` the gateway asks the service,
        /// or learns it.
        slots: Given<AutoOr> = "auto", example "5";
        /// The most submissions per second, of all gateways together.
        submits_per_second: Given<NonZeroU32> = "20", example "5";
        /// The most polls for one task.
        polls_per_task: Given<NonZeroU32> = "20", example "30";
        /// Price of 1000 solves of a kind. `recaptcha_v2_enterprise`, `recaptcha_v3_enterprise` and `hcaptcha_enterprise`
        /// are prices of challenges with `enterprise=1`, and `default` is that of all kinds without a price of their own.
        price_per_1000: BTreeMap<PriceName, Given<Money>>,
            unset "the cost is unknown, unless the service reports it; the simulator's prices with the simulator",
            example "1.0";
        budget: BudgetKeys, reloads true;
        plan: PlanKeys;
        /// Currency of the account: three capital letters. It is shown beside amounts, which are never converted.
        currency: Option<Given<Currency>>, unset "amounts are shown without one", example "USD";
        /// Address at which the service can reach this gateway, so that it reports finished tasks itself.
        pingback_url: Option<Given<String>>, unset "the gateway polls", example "https://gateway.example.com";
        /// Secret that pingback addresses are derived from, 16 characters or more. Gateways on a shared store need the
        /// same one.
        pingback_secret: Option<Given<Secret>>, unset "made at the first start", example "env:PINGBACK_SECRET";
    }
}

section! {
    /// The plan of an account that pays for threads instead of solves.
    PlanKeys {
        /// Price of a month (30.4375 days) of a plan that sells threads. An attempt then costs the time from its acceptance
        /// to its end. It excludes `price_per_1000`; prices that the service reports count before both.
        monthly: Option<Given<Money>>, unset "there is no plan", example "15.0";
        /// Threads of the plan.
        threads: Option<Given<NonZeroU32>>, unset "there is no plan", example "5";
    }
}

section! {
    /// Where claims, solves, tokens and history are kept.
    StoreKeys {
        /// One of `memory:`, `embedded:DIR`, `redis://HOST:PORT`, `rediss://USER:PASSWORD@HOST:PORT/0`,
        /// `redis+cluster://HOST:PORT,HOST:PORT` (each with `?prefix=NAME` and, over TLS, `?ca=FILE`),
        /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` (with `?schema=NAME`), `dynamodb:TABLE?region=NAME`. A server on
        /// another machine needs verified TLS (`rediss://`, `sslmode=verify-full`, `https://`) or `insecure_store`.
        url: Option<Given<StoreUrl>>,
            unset "`REDIS_URL`, `REDIS_HOST` and `REDIS_PORT`, `DATABASE_URL` or `DYNAMODB_TABLE`, else `embedded:./solvegate-data`",
            example "rediss://cache:6379";
        /// Key that tokens, the parameters of challenges (proxies, cookies) and callback addresses are encrypted with in
        /// the store and in `ledger`: 32 random bytes, as 64 hex digits or as base64. All gateways on a store need the same
        /// one. To replace it, write a list: the new key, then the old one (docs/operations.md).
        encryption_key: Option<Given<EncryptionKeys>>, unset "they are stored unencrypted",
            example "env:SOLVEGATE_STORE_KEY";
        /// Another store for the history.
        ledger: Option<Given<StoreUrl>>, unset "history stays in the store", example "postgres://gateway@db/history?sslmode=verify-full";
    }
}

section! {
    /// A person or program that may see and do what workers may not. A single one may be written as `[admin]`, without
    /// a name. Without any, an admin called `admin` gets a key at the first start.
    AdminKeys {
        /// Its name in the audit trail. Names of workers, `pool` and `sighup` are taken.
        name: Option<Given<WorkerName>>, unset "`admin` in a single `[admin]`, required in `[[admin]]`",
            example "ops";
        /// Its key, exactly 32 characters.
        key: Option<Given<Secret>>, unset "made at the first start in a single `[admin]`, required in `[[admin]]`",
            example "env:SOLVEGATE_ADMIN_KEY";
        /// Its keys, instead of `key`, while one replaces another; see `keys` of `[[worker]]`.
        keys: Option<Given<KeyList>>, unset "`key` counts";
        /// `reader` may read everything except tokens. `operator` may also withdraw, report, revive, purge, change
        /// pools, pause and resume. `admin` may do everything, which in this release is no more than that.
        role: Given<AdminRole> = "admin", example "operator";
    }
}

section! {
    /// A program that may ask for solves. Without any, a worker called `local` gets a key at the first start.
    WorkerKeys {
        /// Its name in history, budgets and metrics. `pool`, `admin` and `sighup` are taken.
        name: Option<Given<WorkerName>>, unset "required", example "checkout-tests";
        /// Its key, exactly 32 characters because client libraries insist on that. Make one with `openssl rand -hex 16`:
        /// a key with fewer than 8 different characters, one that repeats a shorter text and one that counts is refused,
        /// and so is the key of `[upstream]`.
        key: Option<Given<Secret>>, unset "`keys` is required", example "env:CHECKOUT_KEY";
        /// Its keys, instead of `key`, while one replaces another: each has `key`, or `sha256` with the digest of a key in
        /// 64 hexadecimal digits, and may have `until`, the last day (UTC) or the moment at which it ends. For example
        /// `[{ key = "env:NEW_KEY" }, { sha256 = "…", until = "2027-01-31" }]`.
        keys: Option<Given<KeyList>>, unset "`key` is required";
        /// The project its costs are charged to when a claim names none.
        project: Option<Given<Project>>, unset "the name of the worker", example "checkout";
        /// The other projects that its claims may name, 100 at most.
        projects: Given<Vec<Project>> = "[]", example r#"["returns"]"#;
        budget: BudgetKeys;
        callbacks: WorkerCallbacksKeys;
        /// The most claims in a period, on all gateways together.
        rate: Option<Given<Rate>>, unset "unlimited", example "20/s";
        /// The most fetches of claims in a period (`res.php`, `GET /v1/solves/ID`), on all gateways together.
        poll_rate: Given<Rate> = "500/s", example "100/s";
        /// The most other requests in a period (lists, sums, reports, withdrawals), on all gateways together.
        read_rate: Given<Rate> = "20/s", example "5/s";
        /// The most of its solves that wait for a slot, on all gateways together, from 1 to 100,000.
        queue: Given<u32> = "1000", example "200";
        /// The declared sites it may use.
        sites: Option<Given<Vec<HostRule>>>, unset "all of them", example r#"["shop.example.com"]"#;
        /// Whether it may have challenges without a page solved, as far as `[images]` allows them.
        images: Option<Given<bool>>, unset "`true`; `false` with `sites`", example "true";
        /// Whether it may read the account's balance at the provider, through `/v1/balance` and `getbalance`.
        balance: Given<bool> = "true", example "false";
        /// Its share of the slots beside the other workers, from 1 to 100.
        priority: Given<u32> = "1", example "3";
    }
}

section! {
    /// Limits on spending, of a worker, of a pool's refills, or of the whole account. Retries count, and so do tokens of a
    /// pool that a worker's claims get. Limits on money need a price for everything that may be solved.
    BudgetKeys {
        /// The most solves per day (UTC). Every attempt that the service accepted, or may have accepted, is one.
        solves_per_day: Option<Given<u64>>, unset "unlimited", example "2000";
        /// The most money per day (UTC). It is reserved at the prices of `price_per_1000`, and counted at what the service
        /// charged.
        cost_per_day: Option<Given<Money>>, unset "unlimited", example "5.0";
        /// The most solves per month (UTC).
        solves_per_month: Option<Given<u64>>, unset "unlimited", example "40000";
        /// The most money per month (UTC).
        cost_per_month: Option<Given<Money>>, unset "unlimited", example "100.0";
    }
}

section! {
    /// A site you are entitled to automate. Pages of other hosts are refused. With the simulator `example.com`,
    /// `example.net`, `example.org`, their subdomains and `localhost` are declared too.
    SiteKeys {
        /// An exact host, or `*.example.com` for every host below it; `:8443` at the end for that port only.
        host: Option<Given<HostRule>>, unset "required", example "shop.example.com";
        /// The ground on which you automate it. Every solve records it.
        basis: Option<Given<String>>, unset "required", example "own shop, QA contract 2026-14";
        /// The person or team that answers for the declaration.
        owner: Option<Given<String>>, unset "nobody", example "qa@example.com";
        /// The last day of the declaration (UTC).
        expires: Option<Given<Day>>, unset "never", example "2027-06-30";
        /// Methods of the provider that have no kind here and may be used for this site. Unknown methods are refused.
        methods: Given<Vec<String>> = "[]", example r#"["yandex"]"#;
        /// Parameters that may be sent beyond those of the kind. URLs and hosts in their values must be covered by `host`.
        params: Given<Vec<String>> = "[]", example r#"["div_id"]"#;
        /// The only site keys that claims may use. Empty allows all.
        sitekeys: Given<Vec<String>> = "[]", example r#"["0x4AAAAAAA"]"#;
        /// When claims without an idempotency key share an answer: within `reuse_window`, only while the solve is in
        /// flight, or never.
        reuse: Option<Given<Reuse>>,
            unset "`\"window\"` for v1 and the CLI, `\"never\"` for in.php", example "in-flight";
        /// What an idempotency key does after a failure: open the work again after `failure_window`, or replay the failure
        /// for 24 h.
        after_failure: Given<AfterFailure> = "reopen", example "replay";
        /// Whether an attempt with an unknown outcome may be paid for a second time.
        ambiguous: Given<AmbiguousPolicy> = "resubmit-once", example "never";
        /// Whether challenges that differ only in their proxy count as the same.
        key_ignores_proxy: Given<bool> = "false", example "true";
    }
}

section! {
    /// Allows challenges without a page, such as pictures. They need it even if a page is sent with them.
    ImagesKeys {
        /// The ground on which you solve them.
        basis: Option<Given<String>>, unset "pictures are refused; with the simulator they are allowed",
            example "own intranet forms";
        /// The kinds it covers, of `image`, `text`, `grid`, `coordinates`, `bls` and `rotate`, and of the methods `audio`,
        /// `vkimage`, `temuimage` and `bounding_box`, which a site opens as well.
        kinds: Option<Given<Vec<Kind>>>, unset "`[\"image\", \"text\"]`; all of them with the simulator",
            example r#"["image", "grid"]"#;
        /// The last day of the declaration (UTC).
        expires: Option<Given<Day>>, unset "never", example "2027-06-30";
    }
}

section! {
    /// A standing order: tokens that are kept ready for one challenge.
    PoolKeys {
        /// The kind of challenge. Its tokens must be usable once.
        kind: Option<Given<Kind>>, unset "required", example "turnstile";
        /// The site's public key.
        sitekey: Option<Given<String>>, unset "required by most kinds", example "0x4AAAAAAA";
        /// The page. A `[[site]]` must cover it.
        pageurl: Option<Given<String>>, unset "required", example "https://shop.example.com/login";
        /// Other parameters of the challenge.
        params: Given<Params> = "{}", example r#"{ action = "login" }"#;
        /// How many tokens to keep ready. With `auto` the gateway follows the demand.
        level: Given<AutoOr> = "auto", example "5";
        /// The most tokens it may hold, from 1 to 1000.
        max: Given<u32> = "20", example "9";
        /// How many tokens may expire unused for each one served, from 0 to 1.
        waste: Given<f64> = "0.10", example "0.2";
        /// The project its costs are charged to.
        project: Given<Project> = "pool", example "checkout";
        budget: BudgetKeys;
    }
}

section! {
    /// When the gateway asks the service whether a task is finished.
    PollingKeys {
        /// At learned moments, or at fixed ones.
        mode: Option<Given<Mode>>, unset "`\"fixed\"` with `first` or `interval`, else `\"learned\"`", example "fixed";
        /// The first poll after a submission, in the mode `fixed`.
        first: Option<Given<Duration>>, unset "`\"5s\"`; `\"1s\"` with the simulator", example "3s";
        /// Time between later polls, in the mode `fixed`.
        interval: Option<Given<NonZeroDuration>>, unset "`\"5s\"`; `\"1s\"` with the simulator", example "4s";
        /// The least time between two polls of one task.
        min_gap: Option<Given<NonZeroDuration>>, unset "`\"1s\"`; `\"250ms\"` with the simulator", example "2s";
        /// Whether one call may ask about several tasks.
        batch: Given<bool> = "true", example "false";
    }
}

section! {
    /// What failures mean and how long retries wait. `solvegate retry-table` prints the table in force.
    RetryKeys {
        /// Values for `base`, `cap` and `most` that fit together.
        profile: Given<Profile> = "default", example "conservative";
        /// The backoff of the first retry.
        base: Option<Given<NonZeroDuration>>, unset "from the profile", example "2s";
        /// The longest backoff, an hour at most.
        cap: Option<Given<NonZeroDuration>>, unset "from the profile", example "40s";
        /// The most retries for one code, 100 at most.
        most: Option<Given<u32>>, unset "from the profile", example "4";
        /// How chance spreads retries: over the whole backoff, or up to a second on top of it.
        jitter: Given<Jitter> = "full", example "additive";
        codes: BTreeMap<Code, CodeKeys>;
    }
}

section! {
    /// Changes to one line of the retry table.
    CodeKeys {
        /// What kind of failure it is. A code that the table does not know needs it.
        class: Option<Given<Class>>, unset "from the table", example "task-over";
        /// The most retries for this code.
        max: Option<Given<u32>>, unset "from the table", example "1";
        /// Whether a retry waits.
        backoff: Option<Given<bool>>, unset "from the table", example "true";
        /// The least wait before a retry.
        wait: Option<Given<Duration>>, unset "from the table", example "5s";
    }
}

section! {
    /// Signed messages to the `callback_url` of a claim.
    CallbacksKeys {
        /// Secret that callbacks and alerts are signed with. Gateways on a shared store need the same one.
        /// While one replaces another, `["env:NEW", "env:OLD"]`: messages then carry both signatures.
        secret: Option<Given<SecretPair>>, unset "made at the first start", example "env:CALLBACK_SECRET";
        /// Hosts that callbacks may go to, with or without a port. They may have a private address or no TLS.
        hosts: Given<Vec<String>> = "[]", example r#"["hooks.internal:9000"]"#;
    }
}

section! {
    /// Callbacks of one worker, where they differ from `[callbacks]`.
    WorkerCallbacksKeys {
        /// Secret that they are signed with. While one replaces another, `["env:NEW", "env:OLD"]`.
        secret: Option<Given<SecretPair>>, unset "that of `[callbacks]`", example "env:CHECKOUT_CALLBACK_SECRET";
        /// The only hosts that they may go to.
        hosts: Option<Given<Vec<String>>>, unset "those of `[callbacks]`", example r#"["hooks.checkout.internal"]"#;
    }
}

section! {
    /// Messages to the operator about trouble.
    AlertsKeys {
        /// Address that alerts are posted to.
        url: Option<Given<Secret>>, unset "no alerts", example "https://hooks.example.com/solvegate";
        /// An alert is sent above this number of open dead letters of class `failed`.
        dead_letters: Given<NonZeroU64> = "10", example "25";
        /// The least time between two alerts about the same trouble.
        cooldown: Given<NonZeroDuration> = "15m", example "5m";
    }
}

section! {
    /// How long tokens of a kind live.
    TokenKeys {
        /// Time from solving to expiry at the site.
        lifetime: Option<Given<Duration>>, unset "from the kind", example "200s";
        /// A token is not handed out in this last part of its life.
        margin: Option<Given<Duration>>, unset "from the kind", example "20s";
    }
}

section! {
    /// TLS on the gateway's own port.
    TlsKeys {
        /// Certificate chain, PEM. A reload reads both files again, also when their names are the same.
        cert: Option<Given<PathBuf>>, unset "no TLS", example "/etc/solvegate/tls.pem", reloads true;
        /// Key of the certificate, PEM. Only its owner may be able to read it (mode 0600 or stricter).
        key: Option<Given<PathBuf>>, unset "no TLS", example "/etc/solvegate/tls.key", reloads true;
        /// Whether to create a certificate at the first start instead.
        self_signed: Given<bool> = "false";
    }
}
