//! Requests to the table, with retries. Any request may arrive twice without harm: writes have conditions, and a write whose
//! condition fails returns the item that is there.

use std::{collections::HashMap, error::Error, future::Future, time::Duration};

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

use crate::backends::server::backoff;

use super::{
    address::DynamoDbAddress,
    error::{RequestError, failed_condition, is_condition_failed, may_retry},
    layout::{Item, PK, SK, bytes, meta_key, text},
    usage::UsageCounters,
};

/// The SDK's client with the table's name, retries and usage counters.
pub(super) struct TableClient {
    pub(super) client: Client,
    pub(super) address: DynamoDbAddress,
    pub(super) usage: UsageCounters,
}

/// The result of a conditional write.
#[derive(Debug)]
pub(super) enum WriteResult {
    Done,
    /// The condition failed; the item that is there.
    ConditionFailed(Option<Item>),
}

/// A range of items in one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemRange {
    pub(super) partition: String,
    pub(super) least: Option<Vec<u8>>,
    pub(super) most: Option<Vec<u8>>,
    pub(super) falling: bool,
    pub(super) limit: Option<usize>,
}

/// The timeout of a request and of a connection attempt.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A request is given up after this many attempts.
const MAX_ATTEMPTS: u32 = 7;

// === impl TableClient ===

impl TableClient {
    pub(super) async fn open(address: DynamoDbAddress) -> Self {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let times = TimeoutConfig::builder()
            .connect_timeout(TIMEOUT)
            .operation_attempt_timeout(TIMEOUT)
            .build();
        // The SDK's retries are off, because ours are counted and know which errors to retry.
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
            // A local test server accepts any credentials; looking for real ones would take seconds.
            loader = loader
                .credentials_provider(Credentials::new("local", "local", None, None, "local"));
        }
        let config = loader.load().await;
        let mut config = Builder::from(&config);
        if let Some(endpoint) = &address.endpoint {
            config = config.endpoint_url(endpoint.as_str());
        }
        Self { client: Client::from_conf(config.build()), address, usage: UsageCounters::default() }
    }

    pub(super) fn table(&self) -> &str {
        &self.address.table
    }

    /// Reads an item, with a consistent read.
    pub(super) async fn get(&self, key: Item) -> Result<Option<Item>, RequestError> {
        let get = self.client.get_item().table_name(self.table()).set_key(Some(key));
        let get = get.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let got = self.send(|| get.clone().send()).await?;
        self.usage.count_read(got.consumed_capacity());
        Ok(got.item)
    }

    /// Reads a range of items, with a consistent read.
    pub(super) async fn query(&self, range: &ItemRange) -> Result<Vec<Item>, RequestError> {
        let mut items: Vec<Item> = Vec::new();
        let mut from: Option<Item> = None;
        loop {
            let left = range.limit.map(|limit| limit - items.len());
            let got = self.send(|| self.query_page(range, from.clone(), left).send()).await?;
            self.usage.count_read(got.consumed_capacity());
            items.extend(got.items.unwrap_or_default());
            from = got.last_evaluated_key;
            if from.is_none() || range.limit.is_some_and(|limit| items.len() >= limit) {
                return Ok(items);
            }
        }
    }

    fn query_page(
        &self,
        range: &ItemRange,
        from: Option<Item>,
        limit: Option<usize>,
    ) -> QueryFluentBuilder {
        let mut builder = self
            .client
            .query()
            .table_name(self.table())
            .consistent_read(true)
            .scan_index_forward(!range.falling)
            .set_exclusive_start_key(from)
            .set_limit(limit.and_then(|limit| i32::try_from(limit).ok()))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .expression_attribute_names("#p", PK)
            .expression_attribute_values(":p", text(range.partition.clone()));
        let mut condition = "#p = :p".to_owned();
        for (name, bound) in [(":a", &range.least), (":b", &range.most)] {
            if let Some(bound) = bound {
                builder = builder.expression_attribute_values(name, bytes(bound));
            }
        }
        match (&range.least, &range.most) {
            (Some(_), Some(_)) => condition.push_str(" AND #s BETWEEN :a AND :b"),
            (Some(_), None) => condition.push_str(" AND #s >= :a"),
            (None, Some(_)) => condition.push_str(" AND #s <= :b"),
            (None, None) => {}
        }
        if range.least.is_some() || range.most.is_some() {
            builder = builder.expression_attribute_names("#s", SK);
        }
        builder.key_condition_expression(condition)
    }

    /// Writes an item if the condition holds.
    pub(super) async fn put(
        &self,
        item: Item,
        condition: Condition,
    ) -> Result<WriteResult, RequestError> {
        let put = self.client.put_item().table_name(self.table()).set_item(Some(item));
        let put = put
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names()))
            .set_expression_attribute_values(condition.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let put = self.request(|| put.clone().send()).await;
        self.write_result(put.map(|done| done.consumed_capacity))
    }

    /// Updates the metadata item if the condition holds.
    pub(super) async fn update_meta(
        &self,
        update: &str,
        condition: Condition,
    ) -> Result<WriteResult, RequestError> {
        let set = self.client.update_item().table_name(self.table()).set_key(Some(meta_key()));
        let set = set
            .update_expression(update)
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names()))
            .set_expression_attribute_values(condition.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let set = self.request(|| set.clone().send()).await;
        self.write_result(set.map(|done| done.consumed_capacity))
    }

    fn write_result<E: ProvideErrorMetadata + Error + 'static>(
        &self,
        answer: Result<Option<ConsumedCapacity>, SdkError<E>>,
    ) -> Result<WriteResult, RequestError> {
        match answer {
            Ok(used) => {
                self.usage.count_write(used.as_ref());
                Ok(WriteResult::Done)
            }
            Err(error) => match failed_condition(&error) {
                Some(failed) => Ok(WriteResult::ConditionFailed(failed.item.clone())),
                None => Err(RequestError::new(&error, self.table())),
            },
        }
    }

    /// Runs all actions or none.
    pub(super) async fn transact(
        &self,
        actions: Vec<TransactWriteItem>,
    ) -> Result<WriteResult, RequestError> {
        // DynamoDB executes requests with the same token once within ten minutes.
        let token = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let write = self.client.transact_write_items().set_transact_items(Some(actions));
        let write = write
            .client_request_token(&token)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match self.request(|| write.clone().send()).await {
            Ok(done) => {
                self.usage.count_write(done.consumed_capacity().first());
                Ok(WriteResult::Done)
            }
            Err(error) if is_condition_failed(&error) => Ok(WriteResult::ConditionFailed(None)),
            Err(error) => Err(RequestError::new(&error, self.table())),
        }
    }

    pub(super) async fn describe(&self) -> Result<TableDescription, RequestError> {
        let describe = self.client.describe_table().table_name(self.table());
        let described = self.send(|| describe.clone().send()).await?.table;
        described.ok_or_else(|| RequestError::refused("it returned no description of the table"))
    }

    /// The status of the TTL and its attribute.
    pub(super) async fn time_to_live(
        &self,
    ) -> Result<Option<(TimeToLiveStatus, String)>, RequestError> {
        let describe = self.client.describe_time_to_live().table_name(self.table());
        let described = self.send(|| describe.clone().send()).await?.time_to_live_description;
        Ok(described.and_then(|ttl| {
            ttl.time_to_live_status.zip(Some(ttl.attribute_name.unwrap_or_default()))
        }))
    }

    pub(super) async fn set_time_to_live(
        &self,
        specification: TimeToLiveSpecification,
    ) -> Result<(), RequestError> {
        let update = self.client.update_time_to_live().table_name(self.table());
        let update = update.time_to_live_specification(specification);
        self.send(|| update.clone().send()).await.map(drop)
    }

    /// Creates the table, unless another process has just done so.
    pub(super) async fn create(
        &self,
        builder: CreateTableFluentBuilder,
    ) -> Result<(), RequestError> {
        match self.request(|| builder.clone().send()).await {
            Err(error) if error.code() != Some("ResourceInUseException") => {
                Err(RequestError::new(&error, self.table()))
            }
            _ => Ok(()),
        }
    }

    async fn send<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, RequestError>
    where
        E: ProvideErrorMetadata + Error + 'static,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        self.request(request).await.map_err(|error| RequestError::new(&error, self.table()))
    }

    /// Sends a request, and retries it after errors that may pass.
    async fn request<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, SdkError<E>>
    where
        E: ProvideErrorMetadata + Error + 'static,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        let mut attempts = 0;
        loop {
            self.usage.count_request();
            attempts += 1;
            match request().await {
                Err(error) if attempts < MAX_ATTEMPTS && may_retry(&error) => {
                    let total = self.usage.count_retry();
                    tracing::debug!(attempts, total, "retrying DynamoDB request");
                    tokio::time::sleep(backoff::delay(attempts - 1)).await;
                }
                answer => return answer,
            }
        }
    }
}

// === conditions ===

/// A condition on an item, with its placeholders.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) text: &'static str,
    pub(super) names: Vec<(&'static str, &'static str)>,
    pub(super) values: Vec<(&'static str, AttributeValue)>,
}

impl Condition {
    /// The item does not exist.
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
