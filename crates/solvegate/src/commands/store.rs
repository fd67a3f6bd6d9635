//! `solvegate store`: creates or migrates the tables of a store.

use stores::{Migrated, OpenError};

use super::Context;
use crate::{
    cli::{Form, StoreAction},
    exit::{Exit, Failure},
    output,
};

pub(super) async fn run(context: &Context, action: &StoreAction) -> Result<(), Failure> {
    let StoreAction::Migrate { print, provisioned, .. } = action;
    match print {
        Some(Form::Sql) => output::line(format_args!("{}", stores::migrations_sql().trim_end())),
        Some(form) => print_table(context, *form, *provisioned),
        None => migrate(context, *provisioned).await,
    }
}

async fn migrate(context: &Context, provisioned: Option<(u32, u32)>) -> Result<(), Failure> {
    let store = context.sources.load()?.store;
    let done = make(store.expose(), provisioned).await.map_err(failed)?;
    let Migrated { from, to, steps } = done;
    if steps.is_empty() {
        return output::line(format_args!("{store} is up to date (version {to})"));
    }
    let steps = steps.join(", ");
    output::line(format_args!("{store} migrated from version {from} to {to}: {steps}"))
}

fn failed(error: OpenError) -> Failure {
    let is_usage = matches!(error, OpenError::NoTables(_) | OpenError::Address { .. });
    Failure::of(if is_usage { Exit::Usage } else { Exit::Unreachable })(error)
}

#[cfg(feature = "dynamodb")]
async fn make(url: &str, provisioned: Option<(u32, u32)>) -> Result<Migrated, OpenError> {
    if url.starts_with("dynamodb:") {
        return stores::make_table(url, billing(provisioned)).await;
    }
    stores::migrate(url).await
}

#[cfg(feature = "dynamodb")]
fn billing(provisioned: Option<(u32, u32)>) -> stores::Billing {
    provisioned.map_or(stores::Billing::OnDemand, |(read, write)| stores::Billing::Provisioned {
        read,
        write,
    })
}

/// Prints the definition of the configured table, or of one called `solvegate`.
#[cfg(feature = "dynamodb")]
fn print_table(
    context: &Context,
    form: Form,
    provisioned: Option<(u32, u32)>,
) -> Result<(), Failure> {
    let store = context.sources.load()?.store;
    let url = if store.is_table() { store.expose() } else { "dynamodb:solvegate" };
    let form = match form {
        Form::Terraform => stores::Printed::Terraform,
        Form::CloudFormation => stores::Printed::CloudFormation,
        Form::Json | Form::Sql => stores::Printed::Json,
    };
    let text = stores::table_definition(url, billing(provisioned), form).map_err(failed)?;
    output::line(format_args!("{}", text.trim_end()))
}

#[cfg(not(feature = "dynamodb"))]
async fn make(url: &str, _provisioned: Option<(u32, u32)>) -> Result<Migrated, OpenError> {
    stores::migrate(url).await
}

#[cfg(not(feature = "dynamodb"))]
fn print_table(_: &Context, _: Form, _: Option<(u32, u32)>) -> Result<(), Failure> {
    Err(failed(OpenError::NoTables("dynamodb".to_owned())))
}
