//! A gateway on DynamoDB: its table is created and printed, `doctor` examines it, and the gateway survives without it.

use std::path::Path;

use serde_json::json;
use solvegate::client::Call;
use store_tests::servers::DynamoDbServer;

use crate::support::{Gateway, Settings, Sim, eventually, run};

fn doctor(dir: &Path, store: &str) -> (Option<i32>, String) {
    let output = run(dir, &["doctor", "--listen", "127.0.0.1:0", "--store", store], &[]);
    (output.code, output.stdout)
}

#[test]
fn a_table_is_created_once_and_never_by_doctor() {
    let dir = tempfile::tempdir().unwrap();
    let server = DynamoDbServer::start();
    let url = server.url("shop");
    let (code, said) = doctor(dir.path(), &url);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("has no table shop"), "{said}");
    let refused = run(dir.path(), &["serve", "--listen", "127.0.0.1:0", "--store", &url], &[]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(refused.stderr.contains("run `solvegate store migrate`"), "{}", refused.stderr);

    let migrate = ["store", "migrate", "--provisioned", "30,20", "--store", &url];
    let made = run(dir.path(), &migrate, &[]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(made.stdout.contains("from version 0 to 1: table, time to live"), "{}", made.stdout);
    let again = run(dir.path(), &migrate, &[]);
    assert!(again.stdout.contains("is up to date (version 1)"), "{}", again.stdout);
    let (code, said) = doctor(dir.path(), &url);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("30 read and 20 write units"), "{said}");
    assert!(said.contains("old items go away by gc_at"), "{said}");
}

#[test]
fn without_credentials_one_line_says_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "dynamodb:shop"];
    // Nobody asks the network of this machine for a role.
    let refused = run(dir.path(), &serve, &[("AWS_EC2_METADATA_DISABLED", "true")]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION"] {
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
}

#[test]
fn the_printed_table_is_the_one_that_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let print = |form: &str| {
        let args = ["store", "migrate", "--print", form, "--store", "dynamodb:shop"];
        let output = run(dir.path(), &args, &[]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let json: serde_json::Value = serde_json::from_str(&print("json")).unwrap();
    assert_eq!(json["TableName"], "shop");
    assert_eq!(json["KeySchema"][1]["AttributeName"], "SK");
    assert!(print("terraform").contains("resource \"aws_dynamodb_table\" \"solvegate\""));
    assert!(print("cloudformation").contains("Type: AWS::DynamoDB::Table"));
}

/// The table is deleted under a running gateway: one clear line, not ready, nothing is spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_whose_table_is_gone_is_not_ready_and_spends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = DynamoDbServer::start();
    stores::migrate(&server.url("shop")).await.unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let settings = Settings { store: server.url("shop"), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let body = |sitekey: &str| json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" });
    assert_eq!(gateway.solve(body("a"), Some("order-1")).await.body["state"], "served");
    let paid = sim.charges().await;
    // The server kept its tables in memory.
    server.restart();
    eventually("it says that it is not ready", async || {
        (gateway.send(&Call::get("/readyz")).await.status == 503).then_some(())
    })
    .await;
    let refused = gateway.solve(body("b"), Some("order-2")).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(sim.charges().await, paid, "nothing is spent");
    let said = gateway.process.stderr();
    assert!(said.contains("there is no table shop"), "{said}");
}
