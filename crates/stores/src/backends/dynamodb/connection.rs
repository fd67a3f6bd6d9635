//! Requests to the table, with retries. Any request may arrive twice without harm: writes have conditions, and a write whose
//! condition fails returns the item that is there.

use std::{
    collections::HashMap,
    error::Error,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{
        Builder, ConfigBag, Credentials, Intercept, RuntimeComponents,
        interceptors::BeforeDeserializationInterceptorContextRef,
    },
    error::{BoxError, ProvideErrorMetadata, SdkError},
    operation::{
        create_table::builders::CreateTableFluentBuilder, query::builders::QueryFluentBuilder,
    },
    types::{
        AttributeValue, ConsumedCapacity, ReturnConsumedCapacity,
        ReturnValuesOnConditionCheckFailure, TableDescription, TimeToLiveSpecification,
        TimeToLiveStatus, TransactWriteItem, error::ConditionalCheckFailedException,
    },
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use parking_lot::Mutex;

use crate::backends::server::backoff;

use super::{
    address::DynamoDbAddress,
    error::{RequestError, RequestErrorKind, cause, is_condition_failed, may_retry},
    layout::{Item, PK, SK, bytes, meta_key, text},
};

/// The SDK's client with the table's name, retries and usage counters.
pub(super) struct TableClient {
    pub(super) client: Client,
    pub(super) address: DynamoDbAddress,
    pub(super) usage: Mutex<DynamoDbUse>,
    /// The table was missing, so it may be another one when it is back.
    pub(super) was_missing: AtomicBool,
}

/// Notes the date of the reply to one request.
#[derive(Clone, Debug, Default)]
struct DateReader(Arc<Mutex<Option<String>>>);

#[derive(Debug)]
pub(super) enum WriteResult {
    Done,
    /// The condition failed; the item that is there.
    ConditionFailed(Option<Item>),
}

/// The requests and capacity units of this process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DynamoDbUse {
    /// Includes the retries.
    pub requests: u64,
    pub retries: u64,
    pub read_units: f64,
    pub write_units: f64,
}

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
        Self {
            client: Client::from_conf(config.build()),
            address,
            usage: Mutex::default(),
            was_missing: AtomicBool::new(false),
        }
    }

    pub(super) fn table(&self) -> &str {
        &self.address.table
    }

    /// Reads an item, with a consistent read.
    pub(super) async fn get(&self, key: Item) -> Result<Option<Item>, RequestError> {
        let get = self.client.get_item().table_name(self.table()).set_key(Some(key));
        let get = get.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let got = self.send(|| get.clone().send()).await?;
        self.usage.lock().read_units += units(got.consumed_capacity());
        Ok(got.item)
    }

    /// The date of a reply, as the server wrote it. Each has one; this request is the cheapest one that the account is
    /// certainly allowed. It is not the date of another reply, which may have waited in the connection for long.
    pub(super) async fn date(&self) -> Result<Option<String>, RequestError> {
        let reader = DateReader::default();
        let get = self.client.get_item().table_name(self.table()).set_key(Some(meta_key()));
        let get = get.return_consumed_capacity(ReturnConsumedCapacity::Total);
        let got = self.send(|| get.clone().customize().interceptor(reader.clone()).send()).await?;
        self.usage.lock().read_units += units(got.consumed_capacity());
        Ok(reader.0.lock().take())
    }

    /// Reads a range of items, with a consistent read.
    pub(super) async fn query(&self, range: &ItemRange) -> Result<Vec<Item>, RequestError> {
        let mut items: Vec<Item> = Vec::new();
        let mut from: Option<Item> = None;
        loop {
            let left = range.limit.map(|limit| limit - items.len());
            let got = self.send(|| self.query_page(range, from.clone(), left).send()).await?;
            self.usage.lock().read_units += units(got.consumed_capacity());
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
        for (name, bound) in [(":a", &range.least), (":b", &range.most)] {
            if let Some(bound) = bound {
                builder = builder
                    .expression_attribute_names("#s", SK)
                    .expression_attribute_values(name, bytes(bound));
            }
        }
        builder.key_condition_expression(match (&range.least, &range.most) {
            (Some(_), Some(_)) => "#p = :p AND #s BETWEEN :a AND :b",
            (Some(_), None) => "#p = :p AND #s >= :a",
            (None, Some(_)) => "#p = :p AND #s <= :b",
            (None, None) => "#p = :p",
        })
    }

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

    pub(super) async fn update_meta(
        &self,
        update: &str,
        condition: Condition,
    ) -> Result<WriteResult, RequestError> {
        self.update(meta_key(), update, condition).await
    }

    pub(super) async fn update(
        &self,
        key: Item,
        update: &str,
        condition: Condition,
    ) -> Result<WriteResult, RequestError> {
        let set = self.client.update_item().table_name(self.table()).set_key(Some(key));
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
                self.usage.lock().write_units += units(used.as_ref());
                Ok(WriteResult::Done)
            }
            Err(error) => match cause::<ConditionalCheckFailedException>(&error) {
                Some(failed) => Ok(WriteResult::ConditionFailed(failed.item.clone())),
                None => Err(self.failed(&error)),
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
                self.usage.lock().write_units += units(done.consumed_capacity().first());
                Ok(WriteResult::Done)
            }
            Err(error) if is_condition_failed(&error) => Ok(WriteResult::ConditionFailed(None)),
            Err(error) => Err(self.failed(&error)),
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

    pub(super) async fn enable_time_to_live(&self, attribute: &str) -> Result<(), RequestError> {
        let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true);
        let ttl = ttl.build().expect("all required fields are set");
        let update = self.client.update_time_to_live().table_name(self.table());
        let update = update.time_to_live_specification(ttl);
        self.send(|| update.clone().send()).await.map(drop)
    }

    /// Creates the table, unless another process has just done so.
    pub(super) async fn create(
        &self,
        builder: CreateTableFluentBuilder,
    ) -> Result<(), RequestError> {
        match self.request(|| builder.clone().send()).await {
            Err(error) if error.code() != Some("ResourceInUseException") => {
                Err(self.failed(&error))
            }
            _ => Ok(()),
        }
    }

    async fn send<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, RequestError>
    where
        E: ProvideErrorMetadata + Error + 'static,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        self.request(request).await.map_err(|error| self.failed(&error))
    }

    fn failed<E: ProvideErrorMetadata + Error + 'static>(
        &self,
        error: &SdkError<E>,
    ) -> RequestError {
        let error = RequestError::new(error, self.table());
        if error.kind == RequestErrorKind::NoTable {
            self.was_missing.store(true, Ordering::Relaxed);
        }
        error
    }

    /// Sends a request, and retries it after errors that may pass.
    async fn request<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, SdkError<E>>
    where
        E: ProvideErrorMetadata + Error + 'static,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        let mut attempts = 0;
        loop {
            self.usage.lock().requests += 1;
            attempts += 1;
            match request().await {
                Err(error) if attempts < MAX_ATTEMPTS && may_retry(&error) => {
                    self.usage.lock().retries += 1;
                    tracing::debug!(attempts, %error, "retrying DynamoDB request");
                    tokio::time::sleep(backoff::delay(attempts - 1)).await;
                }
                answer => return answer,
            }
        }
    }
}

fn units(consumed: Option<&ConsumedCapacity>) -> f64 {
    consumed.and_then(ConsumedCapacity::capacity_units).unwrap_or(0.0)
}

// === impl DateReader ===

impl Intercept for DateReader {
    fn name(&self) -> &'static str {
        "date reader"
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        *self.0.lock() = date.map(str::to_owned);
        Ok(())
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
