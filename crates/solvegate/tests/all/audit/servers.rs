//! Bits flipped in the rows of servers, by somebody with access to them: `audit verify` names the entry.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    ops::RangeInclusive,
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use store_tests::servers::{
    DynamoDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use super::{PAGES, audit, live, stop, text};
use crate::support::{Settings, Sim};

/// Changed pages of one store; each costs a run of the program.
const CHANGED: usize = 12;
/// A byte of a row behind its head. The entries and hashes of every page reach beyond it.
const BEHIND_HEAD: usize = 40;

/// Lets a gateway work on the store. Then changes pages, one at a time, by `flip`, which changes one bit of a page and the
/// second time changes it back. A page is named by its last entry, and `pages` returns all names.
async fn a_flipped_bit_is_found(
    url: &str,
    pages: impl Fn(&Path) -> Vec<u64>,
    flip: impl Fn(u64, usize),
) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let settings = Settings { store: url.to_owned(), ..Settings::default() };
    let mut gateway = live(dir.path(), &sim, &settings).await;
    stop(&mut gateway);
    assert!(audit(dir.path(), &["verify"]).status.success());
    let pages = pages(dir.path());
    assert!(pages.len() > CHANGED, "{pages:?}");
    let entries = ranges(&pages);
    for (number, entries) in entries.iter().enumerate().step_by(entries.len().div_ceil(CHANGED)) {
        flip(*entries.end(), 8 * BEHIND_HEAD + number % 8);
        let found = audit(dir.path(), &["verify"]);
        assert_eq!(found.status.code(), Some(1), "the page {entries:?}");
        let said = text(&found.stderr);
        let is_named = |number: u64| {
            said.contains(&format!("entry {number}:"))
                || said.contains(&format!("entries {number} to"))
        };
        assert!(entries.clone().any(is_named), "{entries:?}: {said}");
        flip(*entries.end(), 8 * BEHIND_HEAD + number % 8);
    }
    assert!(audit(dir.path(), &["verify"]).status.success(), "all is as before");
}

/// The entries of each page.
fn ranges(pages: &[u64]) -> Vec<RangeInclusive<u64>> {
    let before = std::iter::once(&0).chain(pages);
    before.zip(pages).map(|(before, last)| before + 1..=*last).collect()
}

fn numbers(lines: &str) -> Vec<u64> {
    lines.lines().map(|line| line.trim().parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bit_flipped_on_redis_is_found_with_the_number_of_the_entry() {
    // The name of a page ends with the number of its last entry.
    const NAMES: &str = "local found = {} \
        for _, name in ipairs(redis.call('KEYS', '*:pages:*')) do \
          found[#found + 1] = struct.unpack('>I8', string.sub(name, -8)) \
        end \
        table.sort(found) return found";
    const FLIP: &str = "for _, name in ipairs(redis.call('KEYS', '*:pages:*')) do \
          if struct.unpack('>I8', string.sub(name, -8)) == tonumber(ARGV[1]) then \
            return redis.call('SETBIT', name, ARGV[2], 1 - redis.call('GETBIT', name, ARGV[2])) \
          end \
        end \
        return redis.error_reply('there is no such page')";
    let redis = RedisServer::start(&RedisOptions::default());
    let pages = |_: &Path| numbers(&redis.cli(&["eval", NAMES, "0"]));
    let flip = |page: u64, bit: usize| {
        // The version of the row comes before the row.
        let (page, bit) = (page.to_string(), (bit + 64).to_string());
        redis.cli(&["eval", FLIP, "0", &page, &bit]);
    };
    a_flipped_bit_is_found(&redis.url(), pages, flip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bit_flipped_on_postgres_is_found_with_the_number_of_the_entry() {
    let postgres = PostgresServer::start(&PostgresOptions::default());
    let pages = |_: &Path| numbers(&postgres.psql("SELECT seq FROM solvegate.pages ORDER BY seq"));
    let flip = |page: u64, bit: usize| {
        let changed = postgres.psql(&format!(
            "UPDATE solvegate.pages SET body = set_bit(body, {bit}, 1 - get_bit(body, {bit})) \
             WHERE seq = {page} RETURNING seq"
        ));
        assert_eq!(changed, page.to_string());
    };
    a_flipped_bit_is_found(&postgres.url(), pages, flip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bit_flipped_on_dynamodb_is_found_with_the_number_of_the_entry() {
    let server = DynamoDbServer::start();
    let url = server.url("shop");
    stores::migrate(&url).await.unwrap();
    let table = Table { port: server.port() };
    let pages = |dir: &Path| {
        let last = text(&audit(dir, &["export"]).stdout).lines().count();
        let items = table.items();
        let is_page = |seq: &u64| items.iter().any(|item| item.row_of(*seq).is_some());
        (1..=u64::try_from(last).unwrap()).filter(is_page).collect()
    };
    let flip = |page: u64, bit: usize| {
        let mut changed = 0;
        for mut item in table.items() {
            // A commit may be merged into a segment, and still be there.
            let Some(row) = item.row_of(page) else { continue };
            item.body[row + bit / 8] ^= 1 << (bit % 8);
            table.put(&item);
            changed += 1;
        }
        assert!(changed > 0, "no item has the page {page}");
    };
    a_flipped_bit_is_found(&url, pages, flip).await;
}

/// The items of the table `shop`, through the server's own interface.
struct Table {
    port: u16,
}

/// An item with a body: a commit, or a segment of rows.
struct Item {
    attributes: Value,
    body: Vec<u8>,
}

// === impl Table ===

impl Table {
    fn call(&self, operation: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = body.to_string();
        let head = [
            "POST / HTTP/1.1",
            "host: localhost",
            "connection: close",
            "content-type: application/x-amz-json-1.0",
            "x-amz-date: 20260101T000000Z",
            "authorization: AWS4-HMAC-SHA256 Credential=key/20260101/local/dynamodb/aws4_request, \
             SignedHeaders=host, Signature=0",
        ];
        let target = format!("x-amz-target: DynamoDB_20120810.{operation}");
        let length = format!("content-length: {}", body.len());
        let request = format!("{}\r\n{target}\r\n{length}\r\n\r\n{body}", head.join("\r\n"));
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
        serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"))
    }

    fn items(&self) -> Vec<Item> {
        let mut found = Vec::new();
        let mut request = json!({ "TableName": "shop", "ConsistentRead": true });
        loop {
            let mut page = self.call("Scan", &request);
            let items = page["Items"].as_array_mut().unwrap().drain(..);
            found.extend(items.filter_map(Item::read));
            let Some(last) = page.get("LastEvaluatedKey") else { return found };
            request["ExclusiveStartKey"] = last.clone();
        }
    }

    fn put(&self, item: &Item) {
        let mut attributes = item.attributes.clone();
        attributes["body"]["B"] = json!(STANDARD.encode(&item.body));
        self.call("PutItem", &json!({ "TableName": "shop", "Item": attributes }));
    }
}

// === impl Item ===

impl Item {
    fn read(attributes: Value) -> Option<Self> {
        let body = STANDARD.decode(attributes["body"]["B"].as_str()?).unwrap();
        Some(Self { attributes, body })
    }

    /// Where the row of a page is behind its key, if the item has it: each key has its length before it.
    fn row_of(&self, page: u64) -> Option<usize> {
        let key = [&[9, PAGES][..], &page.to_be_bytes()].concat();
        let at = self.body.windows(key.len()).position(|window| window == key)?;
        Some(at + key.len())
    }
}
