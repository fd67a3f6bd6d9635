//! Callbacks and alerts, in virtual time.

use std::{sync::atomic::Ordering, time::Duration};

use domain::{
    callback::NoticeData, claim::Allowance, id::WorkerName, money::Money, ports::Scope,
    secret::Secret,
};
use engine::{Alerts, ClaimRequest};
use simulator::{Call, Fault};

use simulation::stage::{claim_request, open, open_with, seconds, served, story};

fn with_callback(key: &str) -> ClaimRequest {
    ClaimRequest {
        callback_url: Some(Secret::new("https://hooks.example.com/x")),
        ..claim_request(key)
    }
}

/// Requirement 6.
#[test]
fn a_receiver_that_is_down_for_an_hour_gets_every_callback() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.receiver.is_down.store(true, Ordering::SeqCst);
        let mut ids = Vec::new();
        for n in 0..20 {
            if n % 4 == 0 {
                stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
            }
            ids.push(open_with(&engine, with_callback(&format!("k{n}"))).await);
            stage.pass(seconds(1)).await;
        }
        stage.pass(seconds(3600)).await;
        assert!(stage.receiver.got.lock().unwrap().is_empty());
        // Another process must continue with it.
        engine.crash();
        let _second = stage.gateway(2).await;
        stage.receiver.is_down.store(false, Ordering::SeqCst);
        stage.pass(seconds(31 * 60)).await;
        let got = stage.receiver.got.lock().unwrap().clone();
        let tried = stage.receiver.tried.lock().unwrap().clone();
        for id in ids {
            let belongs = |message: &str| message.starts_with(&format!("msg_{id}_"));
            let received: Vec<_> = got.iter().filter(|(message, _)| belongs(message)).collect();
            assert_eq!(received.len(), 1, "claim {id}");
            let mut names: Vec<_> = tried.iter().filter(|message| belongs(message)).collect();
            assert!((5..=14).contains(&names.len()), "{} tries in an hour", names.len());
            names.dedup();
            assert_eq!(names.len(), 1, "the same id at every try");
        }
        stage.pass(seconds(7200)).await;
        assert_eq!(
            stage.receiver.got.lock().unwrap().len(),
            20,
            "an accepted callback is not sent again"
        );
    });
}

/// The callback carries the token at once, and counts as its delivery.
#[test]
fn a_callback_brings_the_token_at_once() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let id = open_with(&engine, with_callback("a")).await;
        stage.pass(seconds(12)).await;
        let got = stage.receiver.got.lock().unwrap().clone();
        assert_eq!(got.len(), 1);
        let notice = &got[0].1;
        assert_eq!(notice.what, "solve.served");
        let NoticeData::Claim(callback) = &notice.data else { panic!("{notice:?}") };
        let token = callback.token.as_ref().unwrap().text.expose();
        assert_eq!(token, served(&engine, id, Duration::ZERO).await);
        let claim = engine.find_claim(&Scope::All, id).await.unwrap();
        let lag = claim.delivered_at.unwrap().since(claim.ended_at.unwrap());
        assert!(lag <= Duration::from_millis(50), "{lag:?}");
    });
}

/// Alerts: account trouble within ten seconds, budgets, dead letters; each once per cooldown.
#[test]
fn an_alert_is_sent_once_per_cooldown() {
    story(async |mut stage| {
        let worker = WorkerName::new("w").unwrap();
        let allowance = Allowance { solves_per_day: Some(11), ..Allowance::default() };
        stage.config.alerts = Some(Alerts {
            url: Secret::new("https://ops.example.com/alerts"),
            dead_letters: 10,
            cooldown: seconds(900),
        });
        // What the provider refuses is released, so only the nine later claims count.
        stage.config.budgets.workers.insert(worker, allowance);
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        let sent = || {
            let got = stage.receiver.got.lock().unwrap();
            got.iter().map(|(_, notice)| notice.what.clone()).collect::<Vec<_>>()
        };
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 11);
        for n in 0..11 {
            open(&engine, &format!("dead-{n}")).await;
        }
        stage.pass(seconds(45)).await;
        assert_eq!(sent(), ["alert.dead_letters"]);
        for n in 0..9 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(45)).await;
        assert_eq!(sent(), ["alert.dead_letters", "alert.budget_nearly_used"]);
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        open(&engine, "poor").await;
        stage.pass(seconds(10)).await;
        assert_eq!(sent().last().map(String::as_str), Some("alert.account"));
        stage.pass(seconds(600)).await;
        assert_eq!(sent().len(), 3, "no more within the cooldown: {:?}", sent());
        stage.pass(seconds(900)).await;
        assert!(sent().len() > 3, "and again after it");
    });
}
