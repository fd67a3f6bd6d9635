//! What client libraries of other authors send (docs/clients.md), through the real binary: everything is accepted with the
//! declarations of that page, and reaches the provider. `scripts/clients/record` wrote the fixtures.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::form::Form;

use crate::support::{LoggingProvider, Process, Sent, WORKER, command, eventually};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/clients");
/// The key in the fixtures. It is as long as the worker's.
const KEPT: &str = "0123456789abcdef0123456789abcdef";
/// Fields that are the gateway's business, and pictures, which arrive in another encoding.
const NOT_COMPARED: [&str; 11] = [
    "key",
    "json",
    "soft_id",
    "softId",
    "header_acao",
    "pingback",
    "method",
    "pageurl",
    "body",
    "file",
    "imginstructions",
];

/// One submission of a library.
#[derive(Deserialize)]
struct Recorded {
    case: String,
    request: String,
    r#type: Option<String>,
    body: Option<String>,
    base64: Option<String>,
}

/// The methods that a site has to open, and their parameters.
struct Openings {
    methods: Vec<String>,
    params: Vec<String>,
}

// === impl Recorded ===

impl Recorded {
    fn all() -> Vec<(String, Self)> {
        let mut all = Vec::new();
        for file in fs::read_dir(FIXTURES).unwrap() {
            let path = file.unwrap().path();
            let library = path.file_stem().unwrap().to_str().unwrap().to_owned();
            for line in fs::read_to_string(&path).unwrap().lines() {
                all.push((library.clone(), serde_json::from_str(line).unwrap()));
            }
        }
        all
    }

    fn request(&self) -> String {
        self.request.replace(KEPT, WORKER)
    }

    fn body(&self) -> Vec<u8> {
        let text = |body: &String| body.replace(KEPT, WORKER).into_bytes();
        let decoded = |body: &String| STANDARD.decode(body).unwrap();
        self.body
            .as_ref()
            .map(text)
            .or_else(|| self.base64.as_ref().map(decoded))
            .unwrap_or_default()
    }

    /// What the library means, as the gateway reads it.
    fn form(&self) -> Form {
        let query = self.request.split_once('?').map(|(_, query)| query);
        Form::read(query, self.r#type.as_deref(), &self.body()).unwrap()
    }

    /// Sends the request as the library did, and returns the answer's body.
    async fn send(&self, host: &str) -> io::Result<String> {
        let (request, body) = (self.request(), self.body());
        let kind = self.r#type.as_ref().map(|kind| format!("content-type: {kind}\r\n"));
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{}content-length: {}\r\n\r\n",
            kind.unwrap_or_default(),
            body.len()
        );
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(reply.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    /// Whether the provider got this: every field that the library sent, unchanged.
    fn is(&self, sent: &Sent) -> bool {
        let form = self.form();
        let mut fields = form.fields().iter();
        let same_page = form.get("pageurl").is_none() || sent.contains_key("pageurl");
        same_page
            && fields.all(|(name, value)| {
                NOT_COMPARED.contains(&name.as_str())
                    || name.starts_with("image_base64")
                    || sent.get(name) == Some(value)
            })
    }
}

// === impl Openings ===

impl Openings {
    /// Reads the table of docs/clients.md.
    fn documented() -> Self {
        let page = fs::read_to_string(format!("{ROOT}/docs/clients.md")).unwrap();
        let (_, table) = page.split_once("<!-- methods -->").unwrap();
        let (table, _) = table.split_once("<!-- end -->").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let (mut methods, mut params) = (Vec::new(), Vec::new());
        let words = |cell: &str| {
            let words = cell.split_whitespace().map(|word| word.trim_matches('`').to_owned());
            words.collect::<Vec<_>>()
        };
        for row in rows {
            let cells: Vec<&str> = row.split('|').collect();
            methods.extend(words(cells[1]));
            params.extend(words(cells[2]));
        }
        Self { methods, params }
    }
}

fn start(dir: &Path, provider: &LoggingProvider) -> (Process, String) {
    let Openings { methods, params } = Openings::documented();
    let url = &provider.url;
    let config = format!(
        r#"
        listen = "127.0.0.1:0"
        [upstream]
        url = "{url}"
        key = "provider-0123456789-abcdefghijkl"
        slots = 1000
        submits_per_second = 1000
        [store]
        url = "memory:"
        [[worker]]
        name = "one"
        key = "{WORKER}"
        [[site]]
        host = "shop.example.com"
        basis = "own shop"
        [[site]]
        host = "open.example.com"
        basis = "own shop, with everything of docs/clients.md"
        methods = {methods:?}
        params = {params:?}
        [images]
        basis = "own forms"
        kinds = ["image", "text", "grid", "coordinates", "rotate", "bls", "audio", "vkimage", "temuimage", "bounding_box"]
        [polling]
        mode = "fixed"
        first = "60s"
        interval = "60s"
        "#
    );
    let file = dir.join("solvegate.toml");
    fs::write(&file, config).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let process = Process::start(command(dir, &["serve"]));
    let base = process.line_after("is listening on ");
    let host = base.strip_prefix("http://").unwrap().to_owned();
    (process, host)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_client_libraries_send_is_accepted_and_reaches_the_provider() {
    let dir = tempfile::tempdir().unwrap();
    let provider = LoggingProvider::start().await;
    let (_process, host) = start(dir.path(), &provider);
    let recorded = Recorded::all();
    assert!(recorded.len() > 100, "only {} requests", recorded.len());
    for batch in recorded.chunks(16) {
        let replies = join_all(batch.iter().map(|(_, one)| one.send(&host))).await;
        for ((library, one), reply) in batch.iter().zip(replies) {
            let reply = reply.unwrap();
            let is_accepted = reply.starts_with("OK|") || reply.contains(r#""status":1"#);
            assert!(is_accepted, "{library}, {}: {reply}", one.case);
        }
    }
    for (library, one) in &recorded {
        let what = format!("{library}, {} at the provider", one.case);
        // Equal pictures of several libraries are one solve.
        eventually(&what, async || provider.sent().iter().any(|sent| one.is(sent)).then_some(()))
            .await;
    }
}
