//! The options of `store`.

use clap::{Subcommand, ValueEnum};

const MIGRATE_EXAMPLES: &str = "\
Examples:
  solvegate store migrate --store postgres://gateway@db/shop
  solvegate store migrate --print | psql postgres://owner@db/shop
  solvegate store migrate --store dynamodb:shop?region=eu-west-1
  solvegate store migrate --store dynamodb:shop --print terraform > solvegate.tf
On PostgreSQL, `serve` migrates at start; gateways that start together do it once.
A DynamoDB table is created only by this command or from the printed definition.";

#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Create the tables of a PostgreSQL or DynamoDB store, or bring them up to date
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate {
        /// The store: `postgres://HOST:PORT/DB`, dynamodb:TABLE; or env:NAME, file:PATH [default: as `serve` has it]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        /// Print the definition and connect to nothing. SQL is for the schema `solvegate`
        #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "sql", value_enum)]
        print: Option<Form>,
        /// Provision this many read and write units per second instead of on-demand billing; DynamoDB only
        #[arg(long, value_name = "READ,WRITE", value_parser = units)]
        provisioned: Option<(u32, u32)>,
    },
}

/// The format of a printed definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For PostgreSQL
    Sql,
    /// For DynamoDB
    Terraform,
    /// For DynamoDB
    #[value(name = "cloudformation")]
    CloudFormation,
    /// For DynamoDB: the input of `aws dynamodb create-table`
    Json,
}

fn units(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|units| *units > 0);
    let pair = text.split_once(',').and_then(|(read, write)| number(read).zip(number(write)));
    pair.ok_or_else(|| "expected two numbers, such as 25,25".to_owned())
}
