//! The way to the table: every request the store makes, asked again where that may help. Each of them may arrive twice
//! without harm: what is written once only is written under a condition, and whoever is refused looks at who was there.

use std::{
    collections::HashMap,
    error::Error,
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Credentials},
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        create_table::builders::CreateTableFluentBuilder, query::builders::QueryFluentBuilder,
    },
    types::{
        AttributeValue, ConsumedCapacity, ReturnConsumedCapacity,
        ReturnValuesOnConditionCheckFailure, TableDescription, TimeToLiveSpecification,
        TimeToLiveStatus, TransactWriteItem,
    },
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::remote;

use super::{
    address::Address,
    failure::{Failure, Retried, is_refused, may_pass},
    layout::{Item, PK, SK, bytes, text},
};

/// The client, the table, and what was used of it.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) address: Address,
    used: Used,
}

/// What was asked of the table, and what it is paid by: capacity units, in thousandths.
#[derive(Debug, Default)]
struct Used {
    requests: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    again: AtomicU64,
}

/// What this process has asked of the table so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DynamoDbUse {
    /// Requests, also those made again.
    pub requests: u64,
    /// Requests made again.
    pub again: u64,
    /// Read units.
    pub read_units: f64,
    /// Write units.
    pub write_units: f64,
}

/// What became of a write under a condition.
#[derive(Debug)]
pub(super) enum Written {
    Done,
    /// The condition did not hold; the item that was there.
    Refused(Option<Item>),
}

/// Part of a partition, in the order of its sort keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) partition: String,
    pub(super) least: Option<Vec<u8>>,
    pub(super) most: Option<Vec<u8>>,
    pub(super) falling: bool,
    pub(super) limit: Option<usize>,
}

/// An answer that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// So often something is asked before the caller is told.
const TRIES: u32 = 7;

// === impl Link ===

impl Link {
    pub(super) async fn open(address: Address) -> Self {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let times = TimeoutConfig::builder()
            .connect_timeout(PATIENCE)
            .operation_attempt_timeout(PATIENCE)
            .build();
        // Asked again by us: with a pause for everybody, and counted.
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .retry_config(RetryConfig::disabled())
            .timeout_config(times);
        if let Some(region) = &address.region {
            loader = loader.region(Region::new(region.clone()));
        } else if address.is_local() {
            loader = loader.region(Region::new("local"));
        }
        if address.is_local() && std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
            // A stand-in takes any; looking for others would take seconds.
            loader = loader
                .credentials_provider(Credentials::new("local", "local", None, None, "local"));
        }
        let config = loader.load().await;
        let mut config = Builder::from(&config);
        if let Some(endpoint) = &address.endpoint {
            config = config.endpoint_url(endpoint.as_str());
        }
        Self { client: Client::from_conf(config.build()), address, used: Used::default() }
    }

    pub(super) fn table(&self) -> &str {
        &self.address.table
    }

    /// What this process has asked so far.
    pub(super) fn usage(&self) -> DynamoDbUse {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let units = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / 1000.0;
        DynamoDbUse {
            requests: self.used.requests.load(Ordering::Relaxed),
            again: self.used.again.load(Ordering::Relaxed),
            read_units: units(&self.used.reads),
            write_units: units(&self.used.writes),
        }
    }

    /// The item of these names, as it is now.
    pub(super) async fn get(&self, key: Item) -> Result<Option<Item>, Failure> {
        let got = self.ask(|| {
            let ask = self.client.get_item().table_name(self.table()).set_key(Some(key.clone()));
            ask.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total).send()
        });
        let got = got.await.map_err(|error| Failure::of(&error, self.table()))?;
        self.count_read(got.consumed_capacity());
        Ok(got.item)
    }

    /// Items of a partition, as they are now.
    pub(super) async fn query(&self, part: &Part) -> Result<Vec<Item>, Failure> {
        let mut found: Vec<Item> = Vec::new();
        let mut from: Option<Item> = None;
        loop {
            let left = part.limit.map(|limit| limit - found.len());
            let got = self.ask(|| self.query_page(part, from.clone(), left).send());
            let got = got.await.map_err(|error| Failure::of(&error, self.table()))?;
            self.count_read(got.consumed_capacity());
            found.extend(got.items.unwrap_or_default());
            from = got.last_evaluated_key;
            if from.is_none() || part.limit.is_some_and(|limit| found.len() >= limit) {
                return Ok(found);
            }
        }
    }

    fn query_page(
        &self,
        part: &Part,
        from: Option<Item>,
        limit: Option<usize>,
    ) -> QueryFluentBuilder {
        let mut ask = self
            .client
            .query()
            .table_name(self.table())
            .consistent_read(true)
            .scan_index_forward(!part.falling)
            .set_exclusive_start_key(from)
            .set_limit(limit.and_then(|limit| i32::try_from(limit).ok()))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .expression_attribute_names("#p", PK)
            .expression_attribute_values(":p", text(part.partition.clone()));
        let mut condition = "#p = :p".to_owned();
        for (name, bound) in [(":a", &part.least), (":b", &part.most)] {
            if let Some(bound) = bound {
                ask = ask.expression_attribute_values(name, bytes(bound));
            }
        }
        match (&part.least, &part.most) {
            (Some(_), Some(_)) => condition.push_str(" AND #s BETWEEN :a AND :b"),
            (Some(_), None) => condition.push_str(" AND #s >= :a"),
            (None, Some(_)) => condition.push_str(" AND #s <= :b"),
            (None, None) => {}
        }
        if part.least.is_some() || part.most.is_some() {
            ask = ask.expression_attribute_names("#s", SK);
        }
        ask.key_condition_expression(condition)
    }

    /// Writes an item if the condition holds for what is there.
    pub(super) async fn put(&self, item: Item, condition: Condition) -> Result<Written, Failure> {
        let put = self.ask(|| {
            let ask = self.client.put_item().table_name(self.table()).set_item(Some(item.clone()));
            ask.condition_expression(condition.text)
                .set_expression_attribute_names(Some(condition.names()))
                .set_expression_attribute_values(condition.values())
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .return_consumed_capacity(ReturnConsumedCapacity::Total)
                .send()
        });
        self.settle(put.await.map(|done| done.consumed_capacity))
    }

    /// Changes the head if the condition holds for what is there.
    pub(super) async fn update(
        &self,
        key: Item,
        update: &str,
        condition: Condition,
    ) -> Result<Written, Failure> {
        let updated = self.ask(|| {
            let ask = self.client.update_item().table_name(self.table()).set_key(Some(key.clone()));
            ask.update_expression(update)
                .condition_expression(condition.text)
                .set_expression_attribute_names(Some(condition.names()))
                .set_expression_attribute_values(condition.values())
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .return_consumed_capacity(ReturnConsumedCapacity::Total)
                .send()
        });
        self.settle(updated.await.map(|done| done.consumed_capacity))
    }

    fn settle<E: ProvideErrorMetadata + Retried + Error + 'static>(
        &self,
        answer: Result<Option<ConsumedCapacity>, SdkError<E>>,
    ) -> Result<Written, Failure> {
        match answer {
            Ok(used) => {
                self.count_write(used.as_ref());
                Ok(Written::Done)
            }
            Err(error) => match error.as_service_error().and_then(Retried::refusal) {
                Some(refusal) => Ok(Written::Refused(refusal.item.clone())),
                None => Err(Failure::of(&error, self.table())),
            },
        }
    }

    /// All of the actions or none. Refused: a condition did not hold.
    pub(super) async fn transact(
        &self,
        actions: Vec<TransactWriteItem>,
    ) -> Result<Written, Failure> {
        // The same request that arrives twice within ten minutes is carried out once.
        let token = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let written = self.ask(|| {
            let ask = self.client.transact_write_items().set_transact_items(Some(actions.clone()));
            ask.client_request_token(&token)
                .return_consumed_capacity(ReturnConsumedCapacity::Total)
                .send()
        });
        match written.await {
            Ok(done) => {
                self.count_write(done.consumed_capacity().first());
                Ok(Written::Done)
            }
            Err(error) if is_refused(&error) => Ok(Written::Refused(None)),
            Err(error) => Err(Failure::of(&error, self.table())),
        }
    }

    /// What the table is like.
    pub(super) async fn describe(&self) -> Result<TableDescription, Failure> {
        let told = self.ask(|| self.client.describe_table().table_name(self.table()).send()).await;
        let told = told.map_err(|error| Failure::of(&error, self.table()))?;
        told.table.ok_or_else(|| Failure::refused("it said nothing about the table"))
    }

    /// Whether old items go away, and by which attribute.
    pub(super) async fn time_to_live(&self) -> Result<Option<(TimeToLiveStatus, String)>, Failure> {
        let told =
            self.ask(|| self.client.describe_time_to_live().table_name(self.table()).send()).await;
        let told =
            told.map_err(|error| Failure::of(&error, self.table()))?.time_to_live_description;
        Ok(told.and_then(|told| {
            told.time_to_live_status.zip(Some(told.attribute_name.unwrap_or_default()))
        }))
    }

    pub(super) async fn set_time_to_live(
        &self,
        wish: TimeToLiveSpecification,
    ) -> Result<(), Failure> {
        let set = self.ask(|| {
            let ask = self.client.update_time_to_live().table_name(self.table());
            ask.time_to_live_specification(wish.clone()).send()
        });
        set.await.map(drop).map_err(|error| Failure::of(&error, self.table()))
    }

    /// Makes the table; somebody else may have done so just now.
    pub(super) async fn create(&self, ask: CreateTableFluentBuilder) -> Result<(), Failure> {
        match self.ask(|| ask.clone().send()).await {
            Err(error) if error.code() != Some("ResourceInUseException") => {
                Err(Failure::of(&error, self.table()))
            }
            _ => Ok(()),
        }
    }

    /// Asks until there is an answer that stays the same.
    async fn ask<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, SdkError<E>>
    where
        E: ProvideErrorMetadata + Retried,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        let mut tries = 0;
        loop {
            self.used.requests.fetch_add(1, Ordering::Relaxed);
            tries += 1;
            match request().await {
                Err(error) if tries < TRIES && may_pass(&error) => {
                    let total = self.used.again.fetch_add(1, Ordering::Relaxed) + 1;
                    tracing::debug!(tries, total, "retrying DynamoDB request");
                    tokio::time::sleep(remote::pause(tries - 1)).await;
                }
                answer => return answer,
            }
        }
    }

    fn count_read(&self, units: Option<&ConsumedCapacity>) {
        count(&self.used.reads, units);
    }

    fn count_write(&self, units: Option<&ConsumedCapacity>) {
        count(&self.used.writes, units);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and not below nothing"
)]
fn count(counter: &AtomicU64, units: Option<&ConsumedCapacity>) {
    let units = units.and_then(ConsumedCapacity::capacity_units).unwrap_or(0.0);
    counter.fetch_add((units * 1000.0) as u64, Ordering::Relaxed);
}

// === conditions ===

/// What has to hold for an item, with the names and values it speaks of.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) text: &'static str,
    pub(super) names: Vec<(&'static str, &'static str)>,
    pub(super) values: Vec<(&'static str, AttributeValue)>,
}

impl Condition {
    /// There is no such item.
    pub(super) fn is_new() -> Self {
        Self { text: "attribute_not_exists(#p)", names: vec![("#p", PK)], values: Vec::new() }
    }

    pub(super) fn names(&self) -> HashMap<String, String> {
        self.names.iter().map(|(mark, name)| ((*mark).to_owned(), (*name).to_owned())).collect()
    }

    pub(super) fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        let values = self.values.iter().map(|(mark, value)| ((*mark).to_owned(), value.clone()));
        Some(values.collect()).filter(|values: &HashMap<_, _>| !values.is_empty())
    }
}
