//! What is looked at before a server is trusted with money: its version, whether it is the one that writes, whether what it
//! confirms stays, how far it is, and whether it has room for this gateway.

use std::time::Instant;

use tokio_postgres::Row;

use crate::examine::Finding;

use super::{
    READERS,
    link::{Failure, Line, Step},
    sql::Ask,
};

/// What the server says about itself.
#[derive(Default)]
struct Facts {
    version: String,
    number: i64,
    is_replica: bool,
    is_read_only: bool,
    encoding: String,
    fsync: String,
    full_pages: String,
    durability: String,
    replicas: i64,
    synchronous: String,
    connections: i64,
    most_connections: i64,
}

/// Of other roles' connections a role with few rights sees neither what they do nor what they are.
const FACTS: &str = "SELECT current_setting('server_version'), \
    current_setting('server_version_num')::bigint, pg_is_in_recovery(), \
    current_setting('default_transaction_read_only') = 'on', current_setting('server_encoding'), \
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), \
    (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), \
    (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL \
     AND coalesce(backend_type, 'client backend') = 'client backend'), \
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint";

/// Looks at everything.
pub(super) async fn examine(line: &Line) -> Result<Vec<Finding>, Failure> {
    let answers = line.run(&[ask(FACTS)]).await?;
    let row = answers.first().and_then(|rows| rows.first());
    let facts = row.map(Facts::read).transpose()?;
    let Some(facts) = facts else { return Err(Failure::away("it said nothing about itself")) };
    let mut findings = vec![version(&facts), latency(line).await?, role(&facts), encoding(&facts)];
    findings.extend([durability(&facts), replication(&facts), room(&facts), privacy(line)]);
    Ok(findings)
}

fn ask(text: &str) -> Step {
    Step::Ask(Ask { text: text.to_owned(), params: Vec::new() })
}

impl Facts {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            version: row.try_get(0)?,
            number: row.try_get(1)?,
            is_replica: row.try_get(2)?,
            is_read_only: row.try_get(3)?,
            encoding: row.try_get(4)?,
            fsync: row.try_get(5)?,
            full_pages: row.try_get(6)?,
            durability: row.try_get(7)?,
            replicas: row.try_get(8)?,
            synchronous: row.try_get(9)?,
            connections: row.try_get(10)?,
            most_connections: row.try_get(11)?,
        })
    }
}

fn version(facts: &Facts) -> Finding {
    let what = format!("version {}", facts.version);
    if facts.number < 130_000 {
        return Finding::bad(what, "use PostgreSQL 13 or later");
    }
    Finding::good(what)
}

fn role(facts: &Facts) -> Finding {
    if facts.is_replica {
        return Finding::bad(
            "it is a replica (pg_is_in_recovery): nothing can be decided there",
            "give the address of the primary",
        );
    }
    if facts.is_read_only {
        return Finding::risky(
            "default_transaction_read_only is on; decisions say READ WRITE and go on",
            "make sure that this is the server meant",
        );
    }
    Finding::good("it is the primary")
}

fn encoding(facts: &Facts) -> Finding {
    if facts.encoding == "UTF8" {
        return Finding::good("its text is UTF8");
    }
    Finding::bad(
        format!(
            "its text is {}: names from outside would not come back as they were",
            facts.encoding
        ),
        "create a database with ENCODING 'UTF8'",
    )
}

fn durability(facts: &Facts) -> Finding {
    if facts.fsync != "on" {
        return Finding::risky(
            "fsync is off: a power cut can lose or damage everything, and solves in flight may be paid again",
            "fsync = on in postgresql.conf",
        );
    }
    if facts.full_pages != "on" {
        return Finding::risky(
            "full_page_writes is off: a power cut can damage tables",
            "full_page_writes = on in postgresql.conf, unless the disk never writes half a page",
        );
    }
    match facts.durability.as_str() {
        "on" | "remote_apply" => {
            Finding::good("what is confirmed is on its disk (fsync, synchronous_commit)")
        }
        weaker => Finding::good(format!(
            "what is confirmed is on its disk (fsync; synchronous_commit is {weaker} there and on in every decision)"
        )),
    }
}

fn replication(facts: &Facts) -> Finding {
    match (facts.replicas, facts.synchronous.is_empty()) {
        (0, _) => Finding::good("no replicas: there is no failover that could lose commits"),
        (replicas, false) => {
            Finding::good(format!("{replicas} replicas; commits wait for {}", facts.synchronous))
        }
        (replicas, true) => Finding::risky(
            format!(
                "{replicas} replicas, and commits wait for none of them: one that takes over may lack the last ones, and solves of that moment may be paid again"
            ),
            "name a replica in synchronous_standby_names",
        ),
    }
}

fn room(facts: &Facts) -> Finding {
    let needed = i64::try_from(READERS).unwrap_or(i64::MAX).saturating_add(3);
    let left = facts.most_connections - facts.connections;
    let what =
        format!("{} of {} connections are in use", facts.connections, facts.most_connections);
    if left < needed {
        return Finding::risky(
            format!("{what}; a gateway needs up to {needed} more"),
            "raise max_connections, or put a pooler in transaction mode before it",
        );
    }
    Finding::good(what)
}

fn privacy(line: &Line) -> Finding {
    let address = &line.address;
    if address.is_private() {
        return Finding::good("the way there is private (this machine, or TLS with proof)");
    }
    if address.may_be_plain() {
        return Finding::risky(
            "the way there may be unencrypted: tokens and proxies can be read on it",
            "add ?sslmode=verify-full to the URL",
        );
    }
    Finding::risky(
        "the way there is encrypted, but nobody proves to be the server (sslmode=require)",
        "add ?sslmode=verify-full, with &sslrootcert=FILE for an authority of your own",
    )
}

/// The middle of three looks.
async fn latency(line: &Line) -> Result<Finding, Failure> {
    let mut took = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        line.run(&[ask("SELECT 1")]).await?;
        took.push(start.elapsed());
    }
    Ok(Finding::latency(took, "two"))
}

#[cfg(test)]
mod tests {
    use crate::Weight;

    use super::*;

    #[test]
    fn a_server_before_13_is_refused() {
        for (number, weight) in [
            (90_624, Weight::Bad),
            (120_022, Weight::Bad),
            (130_000, Weight::Good),
            (170_002, Weight::Good),
        ] {
            let facts = Facts { number, version: "as it is".to_owned(), ..Facts::default() };
            let found = version(&facts);
            assert_eq!((found.weight, found.what.as_str()), (weight, "version as it is"));
        }
    }

    #[test]
    fn a_replica_is_refused_and_a_database_that_is_read_only_by_default_is_not() {
        let replica = Facts { is_replica: true, is_read_only: true, ..Facts::default() };
        assert_eq!(role(&replica).weight, Weight::Bad);
        assert_eq!(role(&Facts { is_replica: false, ..replica }).weight, Weight::Risky);
        assert_eq!(role(&Facts::default()).weight, Weight::Good);
    }
}
