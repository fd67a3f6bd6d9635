//! Code that several decisions share. Decisions import support; support never imports a decision.
//!
//! A support module imports only modules with a lower number in this list:
//!
//! 1. `ledger`: pages of entries, their index, the daily totals; `callbacks`: the rows of the callback outbox; `effort`: the
//!    cost of a solve; `lanes`: the rows that one sum is divided into; `margin`: how early a site needs its tokens; `merge`: which version of a record is newer;
//!    `repeats`: answers and reports that callers repeat; `stakes`: the gateways' shares of the account's limits
//! 2. `context`: the decision in progress and the entries it records; `indexes`: records together with their indexes
//! 3. `books`: claims, outcomes and costs in the daily totals; `budgets`: what is reserved and spent; `pools`: a pool's stock and counters; `delivery`: fetched and unfetched tokens; `new_claim`: writes an admitted claim;
//!    `dead_letters`
//! 4. `fail`: ends claims without a token; `retention`: deletes records after their retention period
//! 5. `allocate`: which claim gets a token; `promote`: makes revived work urgent when a live claim wants it

pub(crate) mod allocate;
pub(crate) mod books;
pub(crate) mod budgets;
pub(crate) mod callbacks;
pub(crate) mod context;
pub(crate) mod dead_letters;
pub(crate) mod delivery;
pub(crate) mod effort;
pub(crate) mod fail;
pub(crate) mod indexes;
pub(crate) mod lanes;
pub(crate) mod ledger;
pub(crate) mod margin;
pub(crate) mod merge;
pub(crate) mod new_claim;
pub(crate) mod pools;
pub(crate) mod promote;
pub(crate) mod repeats;
pub(crate) mod retention;
pub(crate) mod secrets;
pub(crate) mod stakes;
