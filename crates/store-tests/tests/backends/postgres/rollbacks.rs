//! A server that goes back in time, as after a failover to a replica that lags or a backup that is restored.

use domain::claim::Claim;
use store_tests::{
    servers::{PostgresOptions, PostgresServer},
    verify_chain,
};

use crate::gateways::{
    gateways,
    losses::{self, LosingServer, until_back},
};

impl LosingServer for PostgresServer {
    fn url(&self) -> String {
        self.url()
    }

    fn save(&self) {
        self.save();
    }

    fn roll_back(&self) {
        self.roll_back();
    }
}

/// A server with empty tables, and that state saved.
async fn server() -> PostgresServer {
    let server = PostgresServer::start(&PostgresOptions::default());
    drop(crate::connect(&server.url(), "losses").await);
    server.save();
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_restart_loses_nothing_that_is_under_way() {
    losses::an_empty_restart_loses_nothing_that_is_under_way(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_each_restore_their_own_records() {
    losses::two_gateways_each_restore_their_own_records(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_in_the_audit_trail_and_the_chain_is_intact() {
    losses::a_loss_is_in_the_audit_trail_and_the_chain_is_intact(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_is_restored_and_a_later_resume_with_it() {
    losses::a_pause_is_restored_and_a_later_resume_with_it(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_restored_with_its_challenge_when_the_gateway_that_admitted_it_is_gone() {
    losses::a_task_is_restored_with_its_challenge_when_the_gateway_that_admitted_it_is_gone(
        &server().await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_handed_out_after_the_last_save_is_not_handed_out_again() {
    losses::a_token_handed_out_after_the_last_save_is_not_handed_out_again(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_reassigned_after_the_last_save_stays_with_its_new_claim() {
    losses::a_token_reassigned_after_the_last_save_stays_with_its_new_claim(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_accepted_after_the_last_save_is_not_paid_again() {
    losses::a_task_accepted_after_the_last_save_is_not_paid_again(&server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_again_while_the_rows_are_in_doubt() {
    losses::nothing_is_sent_again_while_the_rows_are_in_doubt(&server().await).await;
}

/// Another gateway has written more commits since the failover than were lost, so their number tells this one nothing. It misses
/// its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_misses_its_own_commits_when_others_have_written_more() {
    let server = server().await;
    let all = gateways(&server.url(), "losses", 2).await;
    let mut claims: Vec<Claim> = Vec::new();
    for n in 0..3 {
        claims.push(all[0].world.open(all[0].world.turnstile(&format!("s{n}"))).await);
    }
    server.roll_back();
    // A gateway that has seen nothing of the time before.
    let later = all[1].world.through(&crate::connect(&server.url(), "losses").await);
    for n in 0..30 {
        later.open(later.turnstile(&format!("later-{n}"))).await;
    }
    until_back(&all[0].backend, &all[0].world).await;
    for claim in &claims {
        assert_eq!(&all[0].world.find(claim).await, claim, "it was restored");
    }
    verify_chain(&*all[0].backend.records).await.expect("the restored ledger is one chain");
}
