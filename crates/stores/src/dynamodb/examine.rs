//! What is looked at before a table is trusted with money: its keys, whether what it confirms stays the only truth, whether
//! old items go away, how far it is.

use std::time::Instant;

use aws_sdk_dynamodb::types::{
    BillingMode, MultiRegionConsistency, TableDescription, TableStatus, TimeToLiveStatus,
};

use crate::examine::Finding;

use super::{
    failure::{Failure, Trouble},
    layout::{GC_AT, PK, SK, head_key},
    link::Link,
};

/// Looks at everything.
pub(super) async fn examine(link: &Link) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![latency(link).await?];
    match link.describe().await {
        Ok(table) => {
            findings.extend([keys(&table), state(&table), copies(&table), billing(&table)]);
        }
        Err(failure) if failure.sort == Trouble::Refused => findings.push(Finding::risky(
            format!("the table could not be looked at ({failure})"),
            "allow dynamodb:DescribeTable, or make sure of its keys and that it is no global table",
        )),
        Err(failure) => return Err(failure),
    }
    findings.push(time_to_live(link).await?);
    findings.extend(privacy(link));
    Ok(findings)
}

async fn latency(link: &Link) -> Result<Finding, Failure> {
    let mut took = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        link.get(head_key()).await?;
        took.push(start.elapsed());
    }
    Ok(Finding::latency(took, "one request, or a few"))
}

fn keys(table: &TableDescription) -> Finding {
    let found: Vec<String> = table
        .key_schema()
        .iter()
        .map(|key| {
            let name = key.attribute_name();
            let sort =
                table.attribute_definitions().iter().find(|one| one.attribute_name() == name);
            format!("{name} ({})", sort.map_or("?", |sort| sort.attribute_type().as_str()))
        })
        .collect();
    let right = [format!("{PK} (S)"), format!("{SK} (B)")];
    if found == right {
        return Finding::good(format!("its keys are {}", right.join(" and ")));
    }
    Finding::bad(
        format!("its keys are {}, not {}", found.join(" and "), right.join(" and ")),
        "name a table of its own; `solvegate store migrate` makes it",
    )
}

fn state(table: &TableDescription) -> Finding {
    match table.table_status() {
        Some(TableStatus::Active | TableStatus::Updating) | None => {
            Finding::good("the table is active")
        }
        Some(other) => {
            Finding::bad(format!("the table is {}", other.as_str()), "wait until it is active")
        }
    }
}

/// Copies in other regions take writes of their own: two gateways could win the same slot.
fn copies(table: &TableDescription) -> Finding {
    let is_strong = table.multi_region_consistency() == Some(&MultiRegionConsistency::Strong);
    match table.replicas().len() {
        0 => Finding::good("it is in one region"),
        _ if is_strong => Finding::good("it is a global table with strong consistency"),
        _ => Finding::bad(
            "it is a global table: what one region confirms another may overwrite",
            "use a table without replicas, or one with multi-region strong consistency",
        ),
    }
}

fn billing(table: &TableDescription) -> Finding {
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    match (mode, table.provisioned_throughput()) {
        (Some(BillingMode::PayPerRequest), _) | (None, None) => Finding::good("it is paid by use"),
        (_, throughput) => {
            let units = |get: fn(&_) -> Option<i64>| throughput.and_then(get).unwrap_or(0);
            Finding::good(format!(
                "{} read and {} write units a second are set aside",
                units(
                    aws_sdk_dynamodb::types::ProvisionedThroughputDescription::read_capacity_units
                ),
                units(
                    aws_sdk_dynamodb::types::ProvisionedThroughputDescription::write_capacity_units
                )
            ))
        }
    }
}

async fn time_to_live(link: &Link) -> Result<Finding, Failure> {
    let remedy = "`solvegate store migrate` switches it on";
    Ok(match link.time_to_live().await {
        Ok(Some((TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling, name)))
            if name == GC_AT =>
        {
            Finding::good(format!("old items go away by {GC_AT}"))
        }
        Ok(Some((TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling, name))) => Finding::risky(
            format!("its time to live is {name}, not {GC_AT}: old commits stay for ever"),
            "use a table of its own",
        ),
        Ok(_) => Finding::risky("it has no time to live: old commits stay for ever", remedy),
        Err(failure) if failure.sort == Trouble::Refused => Finding::risky(
            format!("whether old items go away could not be seen ({failure})"),
            "allow dynamodb:DescribeTimeToLive",
        ),
        Err(failure) => return Err(failure),
    })
}

fn privacy(link: &Link) -> Option<Finding> {
    link.address.is_in_the_clear().then(|| {
        Finding::risky(
            "what travels to the endpoint can be read on the way, tokens included",
            "use https://",
        )
    })
}
