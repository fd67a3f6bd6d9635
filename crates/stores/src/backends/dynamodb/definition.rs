//! The definition of the table. `store migrate` creates it, or prints it for administrators who create it themselves.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput,
    ScalarAttributeType, TableStatus, TimeToLiveStatus,
};

use crate::Migrated;

use super::{
    connection::TableClient,
    error::{RequestError, RequestErrorKind},
    layout::{GC_AT, PK, SK},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Billing {
    /// By request.
    #[default]
    OnDemand,
    /// By provisioned units a second.
    Provisioned { read: u32, write: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    Terraform,
    CloudFormation,
    /// The input of `aws dynamodb create-table` and `update-time-to-live`.
    Json,
}

/// The keys: name, type and role. The templates in `definition/` have them too.
const KEYS: [(&str, &str, &str); 2] = [(PK, "S", "HASH"), (SK, "B", "RANGE")];

/// Creating a table usually takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(200);

// === creating ===

/// Creates the table and enables its TTL, if they are missing. Several processes may do so at once.
pub(super) async fn create(
    client: &TableClient,
    billing: Billing,
) -> Result<Migrated, RequestError> {
    let mut steps = Vec::new();
    if status(client).await?.is_none() {
        steps.push("table".to_owned());
        create_table(client, billing).await?;
    }
    wait_until_active(client).await?;
    let has_ttl = match client.time_to_live().await? {
        Some((TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling, name)) => name == GC_AT,
        _ => false,
    };
    if !has_ttl {
        steps.push("time to live".to_owned());
        client.enable_time_to_live(GC_AT).await?;
    }
    let from = u32::from(!steps.iter().any(|step| step == "table"));
    Ok(Migrated { from, to: 1, steps })
}

async fn status(client: &TableClient) -> Result<Option<TableStatus>, RequestError> {
    match client.describe().await {
        Ok(table) => Ok(Some(table.table_status.unwrap_or(TableStatus::Active))),
        Err(error) if error.kind == RequestErrorKind::NoTable => Ok(None),
        Err(error) => Err(error),
    }
}

async fn create_table(client: &TableClient, billing: Billing) -> Result<(), RequestError> {
    let mut builder = client.client.create_table().table_name(client.table());
    for (name, holds, place) in KEYS {
        let attribute = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::from(holds))
            .build();
        let key =
            KeySchemaElement::builder().attribute_name(name).key_type(KeyType::from(place)).build();
        builder = builder
            .attribute_definitions(attribute.expect("all required fields are set"))
            .key_schema(key.expect("all required fields are set"));
    }
    let builder = match billing {
        Billing::OnDemand => builder.billing_mode(BillingMode::PayPerRequest),
        Billing::Provisioned { read, write } => {
            let throughput = ProvisionedThroughput::builder()
                .read_capacity_units(read.into())
                .write_capacity_units(write.into())
                .build();
            builder
                .billing_mode(BillingMode::Provisioned)
                .provisioned_throughput(throughput.expect("all required fields are set"))
        }
    };
    client.create(builder).await
}

async fn wait_until_active(client: &TableClient) -> Result<(), RequestError> {
    let start = Instant::now();
    loop {
        if status(client).await? == Some(TableStatus::Active) {
            return Ok(());
        }
        if start.elapsed() > TIMEOUT {
            return Err(RequestError::refused(
                "timeout: the table is not active after two minutes; try again later",
            ));
        }
        tokio::time::sleep(STEP).await;
    }
}

// === printing ===

pub(crate) fn print(table: &str, billing: Billing, form: Printed) -> String {
    let (template, on_demand, provisioned) = match form {
        Printed::Terraform => (
            include_str!("definition/table.tf"),
            "  billing_mode = \"PAY_PER_REQUEST\"",
            "  billing_mode   = \"PROVISIONED\"\n  read_capacity  = {read}\n  write_capacity = {write}",
        ),
        Printed::CloudFormation => (
            include_str!("definition/table.yaml"),
            "      BillingMode: PAY_PER_REQUEST",
            "      BillingMode: PROVISIONED\n      ProvisionedThroughput:\n        \
             ReadCapacityUnits: {read}\n        WriteCapacityUnits: {write}",
        ),
        Printed::Json => (
            include_str!("definition/table.json"),
            "  \"BillingMode\": \"PAY_PER_REQUEST\"",
            "  \"BillingMode\": \"PROVISIONED\",\n  \"ProvisionedThroughput\": \
             { \"ReadCapacityUnits\": {read}, \"WriteCapacityUnits\": {write} }",
        ),
    };
    let billing = match billing {
        Billing::OnDemand => on_demand.to_owned(),
        Billing::Provisioned { read, write } => {
            provisioned.replace("{read}", &read.to_string()).replace("{write}", &write.to_string())
        }
    };
    template.replace("{table}", table).replace("{billing}", &billing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_the_keys_and_the_billing() {
        let provisioned = Billing::Provisioned { read: 7, write: 9 };
        for form in [Printed::Terraform, Printed::CloudFormation, Printed::Json] {
            let text = print("shop", Billing::OnDemand, form);
            for word in ["shop", "PK", "SK", "PAY_PER_REQUEST"] {
                assert!(text.contains(word), "{word} in {text}");
            }
            let text = print("shop", provisioned, form);
            for word in ["PROVISIONED", "7", "9"] {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
    }
}
