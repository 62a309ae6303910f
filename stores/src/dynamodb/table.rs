//! The table: created, looked at, and what the store knows of itself in it.

use std::time::Duration;

use aws_sdk_dynamodb::{
    operation::{
        create_table::CreateTableError,
        describe_table::DescribeTableError,
        put_item::{PutItemError, PutItemOutput},
        update_time_to_live::UpdateTimeToLiveError,
    },
    types::{
        AttributeDefinition, BillingMode, BillingModeSummary, GlobalSecondaryIndex, GlobalSecondaryIndexDescription,
        IndexStatus, KeySchemaElement, KeyType, Projection, ProjectionType, ProvisionedThroughputDescription,
        ReturnConsumedCapacity, ScalarAttributeType, TableDescription, TableStatus, TimeToLiveSpecification,
        TimeToLiveStatus,
    },
};
use hapax_core::ports::{ErrorKind, StoreError};
use tokio::time::{Instant, sleep};

use super::{
    Inner,
    call::{Answer, Doing, Failed},
    keys::{EXPIRES, INDEX, INDEX_PK, INDEX_SK, Item, PK, Place, SK, VERSION, number},
    options::DynamoDbOptions,
    read::is_answer,
};

/// How items are written. Another is another program's.
const SCHEMA: u32 = 1;
/// Where the table says so.
const SCHEMA_NAME: &str = "schema";
/// Where the table says how many seconds dedup entries are kept.
const KEEPS_NAME: &str = "keeps";
/// Units that a small message with something to send takes: a load and a check.
const READS_OF_A_MESSAGE: i64 = 2;
/// The save, and the finish, which is a transaction of two items.
const WRITES_OF_A_MESSAGE: i64 = 5;
/// Into the index with the save, and out of it with the finish.
const INDEX_WRITES_OF_A_MESSAGE: i64 = 2;
/// How long a new table may take to be there.
const CREATED_WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Its writes may be done twice and mean the same, so that a lost answer is nothing to tell of.
const OPENING: Doing = Doing::reading("opening a DynamoDB table");

/// Looks at everything; answers how long dedup entries are kept.
pub(super) async fn open(store: &Inner, options: &DynamoDbOptions) -> Result<Duration, StoreError> {
    let table = match describe(store).await? {
        Some(table) if options.create && !is_usable(&table) => usable(store).await?, // Another process creates it.
        Some(table) => table,
        None if options.create => {
            create(store).await?;
            usable(store).await?
        }
        None => {
            let why = format!(
                "there is no table `{}`: create it, or open the store with `create_if_missing(true)`",
                store.table
            );
            return Err(OPENING.error(ErrorKind::Absent, why));
        }
    };
    check(store, options, &table)?;
    if let Some(why) = scarce(&table) {
        tracing::warn!(table = store.table, "{why}");
    }
    time_to_live(store, options).await?;
    kept(store, options).await
}

pub(super) fn wrong(why: impl Into<String>) -> StoreError {
    OPENING.error(ErrorKind::Misconfigured, why)
}

fn unmade(error: aws_sdk_dynamodb::error::BuildError) -> StoreError {
    wrong("the request could not be made").caused_by(error)
}

async fn describe(store: &Inner) -> Result<Option<TableDescription>, StoreError> {
    match store.limits.call(OPENING, || store.client.describe_table().table_name(&store.table).send()).await {
        Ok(answer) => Ok(answer.table),
        Err(Failed::Refused(DescribeTableError::ResourceNotFoundException(_))) => Ok(None),
        Err(failed) => Err(failed.into_error(OPENING)),
    }
}

async fn create(store: &Inner) -> Result<(), StoreError> {
    let mut request = store.client.create_table().table_name(&store.table).billing_mode(BillingMode::PayPerRequest);
    for name in [PK, SK, INDEX_PK, INDEX_SK] {
        let definition = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
        request = request.attribute_definitions(definition.build().map_err(unmade)?);
    }
    let index = GlobalSecondaryIndex::builder()
        .index_name(INDEX)
        .set_key_schema(Some(schema(INDEX_PK, INDEX_SK)?))
        .projection(Projection::builder().projection_type(ProjectionType::Include).non_key_attributes(VERSION).build());
    let request =
        request.set_key_schema(Some(schema(PK, SK)?)).global_secondary_indexes(index.build().map_err(unmade)?);
    match store.limits.call(OPENING, || request.clone().send()).await {
        // Somebody else creates it too.
        Ok(_) | Err(Failed::Refused(CreateTableError::ResourceInUseException(_))) => Ok(()),
        Err(failed) => Err(failed.into_error(OPENING)),
    }
}

/// The table, once it can be used.
async fn usable(store: &Inner) -> Result<TableDescription, StoreError> {
    let deadline = Instant::now() + CREATED_WITHIN;
    loop {
        match describe(store).await? {
            Some(table) if is_usable(&table) => return Ok(table),
            _ if Instant::now() > deadline => {
                let why = format!("the new table `{}` is not active after {CREATED_WITHIN:?}", store.table);
                return Err(OPENING.error(ErrorKind::Unavailable, why));
            }
            _ => sleep(LOOK_AGAIN).await,
        }
    }
}

fn schema(pk: &str, sk: &str) -> Result<Vec<KeySchemaElement>, StoreError> {
    let element = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().map_err(unmade);
    Ok(vec![element(pk, KeyType::Hash)?, element(sk, KeyType::Range)?])
}

/// Whether it can be read and written: also while it is updated, say to another capacity.
fn is_usable(table: &TableDescription) -> bool {
    let indexes = table.global_secondary_indexes();
    let index = indexes.iter().find(|index| index.index_name() == Some(INDEX));
    let index_status = index.and_then(GlobalSecondaryIndexDescription::index_status);
    matches!(table.table_status(), Some(TableStatus::Active | TableStatus::Updating))
        && matches!(index_status, None | Some(IndexStatus::Active | IndexStatus::Updating))
}

fn check(store: &Inner, options: &DynamoDbOptions, table: &TableDescription) -> Result<(), StoreError> {
    let name = &store.table;
    if !options.pinned && (!table.replicas().is_empty() || table.global_table_version().is_some()) {
        return Err(wrong(format!(
            "the table `{name}` has replicas in other regions, where conditions do not hold: of two regions' saves one would be \
             lost. Use a table without replicas; or, where all processes use one region, say `global_table_pinned(true)`"
        )));
    }
    if !has_schema(table, table.key_schema(), [PK, SK]) {
        return Err(wrong(format!(
            "the table `{name}` does not have the keys `{PK}` and `{SK}`, both text: let the store create a table of its own"
        )));
    }
    let indexes = table.global_secondary_indexes();
    let index = indexes.iter().find(|index| index.index_name() == Some(INDEX));
    let projects = |projection: &Projection| {
        projection.projection_type() == Some(&ProjectionType::All)
            || projection.non_key_attributes().iter().any(|name| name == VERSION)
    };
    let fits = index.is_some_and(|index| {
        has_schema(table, index.key_schema(), [INDEX_PK, INDEX_SK]) && index.projection().is_some_and(projects)
    });
    if !fits {
        return Err(wrong(format!(
            "the table `{name}` needs the global secondary index `{INDEX}` with the keys `{INDEX_PK}` and `{INDEX_SK}`, both text, \
             which includes `{VERSION}`: add it"
        )));
    }
    if !is_usable(table) {
        let of_table = table.table_status().map_or("unknown", TableStatus::as_str);
        let of_index = index.and_then(|index| index.index_status()).map_or("unknown", IndexStatus::as_str);
        let why = format!(
            "the table `{name}` is {of_table} and its index {of_index}: wait until both are ACTIVE or UPDATING, and see to it that \
             they become so"
        );
        return Err(OPENING.error(ErrorKind::Unavailable, why));
    }
    Ok(())
}

/// What is wrong with a capacity that was bought in advance: too little for a message a second, or an index that holds up the table.
fn scarce(table: &TableDescription) -> Option<String> {
    let mode = table.billing_mode_summary().and_then(BillingModeSummary::billing_mode);
    if mode == Some(&BillingMode::PayPerRequest) {
        return None;
    }
    let units = |bought: Option<&ProvisionedThroughputDescription>| {
        let bought = bought?;
        Some([bought.read_capacity_units()?, bought.write_capacity_units()?]).filter(|units| units[1] > 0)
    };
    let [reads, writes] = units(table.provisioned_throughput())?;
    let indexes = table.global_secondary_indexes();
    let index = indexes.iter().find(|index| index.index_name() == Some(INDEX));
    let index_writes = units(index.and_then(|index| index.provisioned_throughput())).map_or(writes, |units| units[1]);
    let remedy = "set it to on demand (PAY_PER_REQUEST), or let it scale";
    if reads < READS_OF_A_MESSAGE || writes < WRITES_OF_A_MESSAGE || index_writes < INDEX_WRITES_OF_A_MESSAGE {
        return Some(format!(
            "the table has {reads} units of reads a second, {writes} of writes and {index_writes} of writes of its index, less than \
             the {READS_OF_A_MESSAGE}, {WRITES_OF_A_MESSAGE} and {INDEX_WRITES_OF_A_MESSAGE} that a small message takes: messages \
             will be throttled; {remedy}"
        ));
    }
    if index_writes.saturating_mul(WRITES_OF_A_MESSAGE) < writes.saturating_mul(INDEX_WRITES_OF_A_MESSAGE) {
        return Some(format!(
            "the index `{INDEX}` has {index_writes} units of writes a second, too few beside the {writes} of its table: the service \
             throttles the table for it; give it at least two for each five, or {remedy}"
        ));
    }
    None
}

fn has_schema(table: &TableDescription, schema: &[KeySchemaElement], [pk, sk]: [&str; 2]) -> bool {
    let key = |kind| schema.iter().find(|key| *key.key_type() == kind).map(KeySchemaElement::attribute_name);
    let is_text = |name: &str| {
        let mut definitions = table.attribute_definitions().iter();
        definitions.any(|it| it.attribute_name() == name && *it.attribute_type() == ScalarAttributeType::S)
    };
    key(KeyType::Hash) == Some(pk) && key(KeyType::Range) == Some(sk) && is_text(pk) && is_text(sk)
}

/// That the service removes dedup entries when their time is over: nobody else does.
async fn time_to_live(store: &Inner, options: &DynamoDbOptions) -> Result<(), StoreError> {
    let looking = || store.client.describe_time_to_live().table_name(&store.table).send();
    let found = store.limits.plainly(OPENING, looking).await?.time_to_live_description;
    let on = found.as_ref().and_then(|found| found.time_to_live_status());
    let on = matches!(on, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
    let attribute = found.as_ref().and_then(|found| found.attribute_name());
    if on && attribute == Some(EXPIRES) {
        return Ok(());
    }
    if on || !options.create {
        let now = if on { format!("on `{}`", attribute.unwrap_or("?")) } else { "off".to_owned() };
        return Err(wrong(format!(
            "the time to live of the table `{}` is {now}, and dedup entries would stay for ever: enable it on the attribute \
             `{EXPIRES}`",
            store.table
        )));
    }
    let wanted = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES).build().map_err(unmade)?;
    let enabling = || {
        store.client.update_time_to_live().table_name(&store.table).time_to_live_specification(wanted.clone()).send()
    };
    match store.limits.call(OPENING, enabling).await {
        Ok(_) => Ok(()),
        Err(Failed::Refused(refused)) if is_enabled_by_another(&refused) => Ok(()),
        Err(failed) => Err(failed.into_error(OPENING)),
    }
}

fn is_enabled_by_another(refused: &UpdateTimeToLiveError) -> bool {
    matches!(refused, UpdateTimeToLiveError::ResourceInUseException(_)) || refused_as_done(refused)
}

fn refused_as_done(refused: &impl Answer) -> bool {
    refused.code() == Some("ValidationException")
        && refused.message().is_some_and(|said| said.contains("already enabled"))
}

/// How long dedup entries are kept: as the table says, which whoever opens it first has written there.
async fn kept(store: &Inner, options: &DynamoDbOptions) -> Result<Duration, StoreError> {
    const TRIES_MAX: u32 = 10;
    let asked = options.keeps.as_secs() + u64::from(options.keeps.subsec_nanos() > 0);
    let place = Place::meta();
    for _ in 0..TRIES_MAX {
        let request = store.client.get_item().table_name(&store.table).set_key(Some(place.key())).consistent_read(true);
        let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = store.limits.plainly(OPENING, || request.clone().send()).await?;
        is_answer(OPENING, answer.consumed_capacity())?;
        match answer.item {
            Some(found) => {
                return stored_keeps(&store.table, &found).and_then(|keeps| long_enough(store, keeps, asked));
            }
            None => {
                if put(store, of_itself(asked)).await? {
                    return Ok(Duration::from_secs(asked));
                }
            }
        }
    }
    Err(OPENING.error(ErrorKind::Unavailable, "others write and delete what the table says of itself all the time"))
}

/// Entries that are there keep the time that they were inserted with, and so do those of whoever has opened the table before: a
/// longer one would be promised for what is gone sooner.
fn long_enough(store: &Inner, keeps: u64, asked: u64) -> Result<Duration, StoreError> {
    if asked <= keeps {
        return Ok(Duration::from_secs(keeps));
    }
    Err(wrong(format!(
        "the table `{}` keeps dedup entries for {keeps} s, less than the {asked} s asked for. To raise it, stop all programs on the \
         table, set the number `{KEEPS_NAME}` of its item `{PK}` = `m`, `{SK}` = `m` to {asked}, start them, and wait for {keeps} s \
         before an endpoint asks for a longer retention",
        store.table
    )))
}

/// What a table says of itself that keeps dedup entries for `keeps` seconds.
pub(super) fn of_itself(keeps: u64) -> Item {
    Place::meta().item([(SCHEMA_NAME, number(SCHEMA)), (KEEPS_NAME, number(keeps))])
}

/// For how long `table` keeps dedup entries by what it says of itself.
pub(super) fn stored_keeps(table: &str, found: &Item) -> Result<u64, StoreError> {
    let field =
        |name: &str| found.get(name).and_then(|value| value.as_n().ok()).and_then(|text| text.parse::<u64>().ok());
    let schema = field(SCHEMA_NAME);
    if schema != Some(u64::from(SCHEMA)) {
        let found = schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string());
        return Err(wrong(format!(
            "the table `{table}` has schema {found}, this program knows {SCHEMA}: upgrade the program, or use another table"
        )));
    }
    field(KEEPS_NAME).ok_or_else(|| wrong(format!("the table `{table}` does not say how long it keeps dedup entries")))
}

/// Writes what the table says of itself if it says nothing yet; answers whether it has.
async fn put(store: &Inner, item: Item) -> Result<bool, StoreError> {
    let request = store.client.put_item().table_name(&store.table).set_item(Some(item));
    let request = request.condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK);
    let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
    let whole = |answer: &PutItemOutput| answer.consumed_capacity().is_some();
    match store.limits.call_whole(OPENING, whole, || request.clone().send()).await {
        Ok(_) => Ok(true),
        Err(Failed::Refused(PutItemError::ConditionalCheckFailedException(_))) => Ok(false),
        Err(failed) => Err(failed.into_error(OPENING)),
    }
}
