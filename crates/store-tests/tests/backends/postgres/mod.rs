//! The PostgreSQL store keeps its promises when connections end and the server crashes.

mod bells;
mod common;
mod losses;
mod schema;
mod secure;
mod trust;

use store_tests::servers::{pooled_postgres_url, through_pooler};
