//! The PostgreSQL store when connections end and the server crashes.

mod common;
mod losses;
mod notifications;
mod rollbacks;
mod schema;
mod secure;
mod trust;

use store_tests::servers::{pooled_postgres_url, through_pooler};
