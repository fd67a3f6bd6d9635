//! The table: said once, made by `store migrate` or printed for whoever makes it.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput,
    ScalarAttributeType, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};

use crate::Migrated;

use super::{
    failure::{Failure, Trouble},
    layout::{GC_AT, PK, SK},
    link::Link,
};

/// How the table is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Billing {
    /// By what is used.
    #[default]
    OnDemand,
    /// By what is set aside, in units a second.
    Provisioned {
        /// For reading.
        read: u32,
        /// For writing.
        write: u32,
    },
}

/// For whom the table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// `terraform`.
    Terraform,
    /// `CloudFormation`.
    CloudFormation,
    /// The input of `aws dynamodb create-table` and `update-time-to-live`.
    Json,
}

/// What the keys are: their names, what they hold, and how it is said to DynamoDB.
const KEYS: [(&str, &str, &str); 2] = [(PK, "S", "HASH"), (SK, "B", "RANGE")];

/// A table is made within this; it takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(200);

// === making ===

/// Makes the table and its time to live where they are missing. Several may do so at once.
pub(super) async fn make(link: &Link, billing: Billing) -> Result<Migrated, Failure> {
    let mut steps = Vec::new();
    if status(link).await?.is_none() {
        steps.push("table".to_owned());
        create(link, billing).await?;
    }
    wait_until_active(link).await?;
    let has_ttl = match link.time_to_live().await? {
        Some((TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling, name)) => name == GC_AT,
        _ => false,
    };
    if !has_ttl {
        steps.push("time to live".to_owned());
        let wish = TimeToLiveSpecification::builder().attribute_name(GC_AT).enabled(true).build();
        link.set_time_to_live(wish.expect("name and wish are given")).await?;
    }
    let from = u32::from(!steps.iter().any(|step| step == "table"));
    Ok(Migrated { from, to: 1, steps })
}

async fn status(link: &Link) -> Result<Option<TableStatus>, Failure> {
    match link.describe().await {
        Ok(table) => Ok(Some(table.table_status.unwrap_or(TableStatus::Active))),
        Err(failure) if failure.sort == Trouble::NoTable => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn create(link: &Link, billing: Billing) -> Result<(), Failure> {
    let mut ask = link.client.create_table().table_name(link.table());
    for (name, holds, place) in KEYS {
        let attribute = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::from(holds))
            .build();
        let key =
            KeySchemaElement::builder().attribute_name(name).key_type(KeyType::from(place)).build();
        ask = ask
            .attribute_definitions(attribute.expect("name and type are given"))
            .key_schema(key.expect("name and type are given"));
    }
    let ask = match billing {
        Billing::OnDemand => ask.billing_mode(BillingMode::PayPerRequest),
        Billing::Provisioned { read, write } => {
            let throughput = ProvisionedThroughput::builder()
                .read_capacity_units(read.into())
                .write_capacity_units(write.into())
                .build();
            ask.billing_mode(BillingMode::Provisioned)
                .provisioned_throughput(throughput.expect("both are given"))
        }
    };
    link.create(ask).await
}

async fn wait_until_active(link: &Link) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        if status(link).await? == Some(TableStatus::Active) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(Failure::refused(
                "the table is not active after two minutes; look again later",
            ));
        }
        tokio::time::sleep(STEP).await;
    }
}

// === printing ===

/// The table's definition as text.
pub(crate) fn print(table: &str, billing: Billing, form: Printed) -> String {
    match form {
        Printed::Terraform => terraform(table, billing),
        Printed::CloudFormation => cloud_formation(table, billing),
        Printed::Json => json(table, billing),
    }
}

fn each_key(text: impl Fn((&str, &str, &str)) -> String) -> String {
    KEYS.map(text).concat()
}

fn terraform(table: &str, billing: Billing) -> String {
    let billing = match billing {
        Billing::OnDemand => "  billing_mode = \"PAY_PER_REQUEST\"\n".to_owned(),
        Billing::Provisioned { read, write } => format!(
            "  billing_mode   = \"PROVISIONED\"\n  read_capacity  = {read}\n  write_capacity = {write}\n"
        ),
    };
    let attributes = each_key(|(name, holds, _)| {
        format!("\n  attribute {{\n    name = \"{name}\"\n    type = \"{holds}\"\n  }}\n")
    });
    format!(
        "resource \"aws_dynamodb_table\" \"solvegate\" {{\n  name         = \"{table}\"\n{billing}  hash_key     = \"{PK}\"\n  \
         range_key    = \"{SK}\"\n{attributes}\n  ttl {{\n    attribute_name = \"{GC_AT}\"\n    enabled        = true\n  }}\n\n  \
         point_in_time_recovery {{\n    enabled = true\n  }}\n}}\n"
    )
}

fn cloud_formation(table: &str, billing: Billing) -> String {
    let billing = match billing {
        Billing::OnDemand => "      BillingMode: PAY_PER_REQUEST\n".to_owned(),
        Billing::Provisioned { read, write } => format!(
            "      BillingMode: PROVISIONED\n      ProvisionedThroughput:\n        ReadCapacityUnits: {read}\n        \
             WriteCapacityUnits: {write}\n"
        ),
    };
    let attributes = each_key(|(name, holds, _)| {
        format!("        - AttributeName: {name}\n          AttributeType: {holds}\n")
    });
    let schema = each_key(|(name, _, place)| {
        format!("        - AttributeName: {name}\n          KeyType: {place}\n")
    });
    format!(
        "AWSTemplateFormatVersion: \"2010-09-09\"\nResources:\n  Solvegate:\n    Type: AWS::DynamoDB::Table\n    \
         DeletionPolicy: Retain\n    UpdateReplacePolicy: Retain\n    Properties:\n      TableName: {table}\n{billing}      \
         AttributeDefinitions:\n{attributes}      KeySchema:\n{schema}      TimeToLiveSpecification:\n        \
         AttributeName: {GC_AT}\n        Enabled: true\n      PointInTimeRecoverySpecification:\n        \
         PointInTimeRecoveryEnabled: true\n"
    )
}

fn json(table: &str, billing: Billing) -> String {
    let list = |each: &dyn Fn(&(&str, &str, &str)) -> String| {
        KEYS.iter().map(each).collect::<Vec<_>>().join(",\n    ")
    };
    let attributes = list(&|(name, holds, _)| {
        format!("{{ \"AttributeName\": \"{name}\", \"AttributeType\": \"{holds}\" }}")
    });
    let schema = list(&|(name, _, place)| {
        format!("{{ \"AttributeName\": \"{name}\", \"KeyType\": \"{place}\" }}")
    });
    let billing = match billing {
        Billing::OnDemand => "  \"BillingMode\": \"PAY_PER_REQUEST\"".to_owned(),
        Billing::Provisioned { read, write } => format!(
            "  \"BillingMode\": \"PROVISIONED\",\n  \"ProvisionedThroughput\": {{ \"ReadCapacityUnits\": {read}, \
             \"WriteCapacityUnits\": {write} }}"
        ),
    };
    format!(
        "{{\n  \"TableName\": \"{table}\",\n  \"AttributeDefinitions\": [\n    {attributes}\n  ],\n  \"KeySchema\": [\n    \
         {schema}\n  ],\n{billing}\n}}\n"
    )
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
