//! Checks before a table is trusted with money: its keys, its status, replication, billing, TTL and latency.

use std::time::Duration;

use aws_sdk_dynamodb::{
    primitives::{DateTime, DateTimeFormat},
    types::{BillingMode, MultiRegionConsistency, TableDescription, TableStatus, TimeToLiveStatus},
};
use domain::{ports::ServerTime, time::Timestamp};

use crate::{Finding, backends::server::measure_latency};

use super::{
    connection::TableClient,
    error::{RequestError, RequestErrorKind},
    layout::{GC_AT, PK, SK, meta_key},
};

pub(super) async fn examine(client: &TableClient) -> Result<Vec<Finding>, RequestError> {
    let latency = measure_latency(5, "one request, or a few", || client.get(meta_key()));
    let mut findings = vec![latency.await?];
    match client.describe().await {
        Ok(table) => {
            findings.extend([keys(&table), state(&table), replicas(&table), billing(&table)]);
        }
        Err(error) if error.kind == RequestErrorKind::Refused => findings.push(Finding::risky(
            format!("the table could not be described ({error})"),
            "allow dynamodb:DescribeTable, or make sure that its keys are right and that it is not a global table",
        )),
        Err(error) => return Err(error),
    }
    findings.push(time_to_live(client).await?);
    findings.extend(privacy(client));
    Ok(findings)
}

/// What the server's clock shows, in whole seconds.
pub(super) async fn server_time(client: &TableClient) -> Result<ServerTime, RequestError> {
    let date = client.date().await?;
    let read =
        date.as_deref().and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
    let seconds = read.and_then(|date| u64::try_from(date.secs()).ok());
    let seconds = seconds.ok_or_else(|| RequestError::refused("its replies have no date"))?;
    let at = Timestamp::from_millis(seconds.saturating_mul(1_000));
    Ok(ServerTime { at, precision: Duration::from_secs(1) })
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
        "use another table; `solvegate store migrate` creates it",
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

/// Replicas in other regions accept writes of their own, so two gateways could write the same slot.
fn replicas(table: &TableDescription) -> Finding {
    let is_strong = table.multi_region_consistency() == Some(&MultiRegionConsistency::Strong);
    match table.replicas().len() {
        0 => Finding::good("it is in one region"),
        _ if is_strong => Finding::good("it is a global table with strong consistency"),
        _ => Finding::bad(
            "it is a global table: one region may overwrite what another has confirmed",
            "use a table without replicas, or one with multi-region strong consistency",
        ),
    }
}

fn billing(table: &TableDescription) -> Finding {
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    match table.provisioned_throughput() {
        Some(units) if mode != Some(&BillingMode::PayPerRequest) => Finding::good(format!(
            "{} read and {} write units a second are provisioned",
            units.read_capacity_units().unwrap_or(0),
            units.write_capacity_units().unwrap_or(0)
        )),
        _ => Finding::good("it is billed on demand"),
    }
}

async fn time_to_live(client: &TableClient) -> Result<Finding, RequestError> {
    let remedy = "run `solvegate store migrate` to enable it";
    Ok(match client.time_to_live().await {
        Ok(Some((TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling, name)))
            if name == GC_AT =>
        {
            Finding::good(format!("old items go away by {GC_AT}"))
        }
        Ok(Some((TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling, name))) => Finding::risky(
            format!("its TTL attribute is {name}, not {GC_AT}: old commits stay for ever"),
            "use another table",
        ),
        Ok(_) => Finding::risky("TTL is disabled: old commits stay for ever", remedy),
        Err(error) if error.kind == RequestErrorKind::Refused => Finding::risky(
            format!("the TTL could not be checked ({error})"),
            "allow dynamodb:DescribeTimeToLive",
        ),
        Err(error) => return Err(error),
    })
}

fn privacy(client: &TableClient) -> Option<Finding> {
    client.address.is_unencrypted().then(|| {
        Finding::risky(
            "the connection is unencrypted: others can read tokens on it",
            "use https://",
        )
    })
}
