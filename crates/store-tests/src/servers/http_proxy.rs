//! A proxy before a DynamoDB-compatible server that injects faults per request: it refuses some requests, drops the
//! replies to others, and counts all. It has its own threads, so that it does not depend on the test's runtime.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// A proxy with faults. It lives as long as the process.
#[derive(Clone, Debug)]
pub struct HttpProxy {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    faults: Faults,
    chance: fastrand::Rng,
    request_counts: BTreeMap<String, u64>,
    items_written: BTreeMap<String, u64>,
    delay: Duration,
    puts: BTreeMap<String, Puts>,
}

/// The puts with one partition key that are under way.
#[derive(Clone, Copy, Debug, Default)]
struct Puts {
    now: usize,
    most: usize,
}

/// The percentage of requests that meet each fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// `ProvisionedThroughputExceededException`, before the request is carried out.
    pub throttled: u8,
    /// `TransactionConflictException` or `TransactionInProgressException`, before the request is carried out.
    pub conflicts: u8,
    /// `InternalServerError`, after the request was carried out.
    pub failed_after: u8,
    /// The request is carried out, and the connection is closed without a reply.
    pub lost: u8,
    /// `AccessDeniedException`.
    pub denied: u8,
    /// Restricts the faults to this operation.
    pub only: Option<&'static str>,
}

struct Request {
    head: String,
    body: Vec<u8>,
    operation: String,
}

enum Fault {
    Say(u16, &'static str, &'static str),
    LoseAnswer,
    FailAfter,
}

impl HttpProxy {
    /// Starts a proxy before the server on port `target`.
    pub fn start(target: u16, seed: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Mutex::new(Shared {
            faults: Faults::default(),
            chance: fastrand::Rng::with_seed(seed),
            request_counts: BTreeMap::new(),
            items_written: BTreeMap::new(),
            delay: Duration::ZERO,
            puts: BTreeMap::new(),
        }));
        let proxy = Self { port, shared };
        let serving = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = serving.clone();
                thread::spawn(move || proxy.serve(&client, target).ok());
            }
        });
        proxy
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, faults: Faults) {
        self.shared.lock().unwrap().faults = faults;
    }

    /// Delays every request by this much.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().unwrap().delay = delay;
    }

    /// How many puts with one partition key were under way at the same time, at most.
    pub fn most_puts_at_once(&self) -> BTreeMap<String, usize> {
        let shared = self.shared.lock().unwrap();
        shared.puts.iter().map(|(key, puts)| (key.clone(), puts.most)).collect()
    }

    /// Requests by operation.
    pub fn request_counts(&self) -> BTreeMap<String, u64> {
        self.shared.lock().unwrap().request_counts.clone()
    }

    /// Items written, by partition key.
    pub fn items_written(&self) -> BTreeMap<String, u64> {
        self.shared.lock().unwrap().items_written.clone()
    }

    fn serve(&self, client: &TcpStream, target: u16) -> io::Result<()> {
        let mut requests = BufReader::new(client);
        let server = TcpStream::connect(("127.0.0.1", target))?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let mut answers = BufReader::new(&server);
        while let Some(request) = Request::read(&mut requests)? {
            let fault = self.shared.lock().unwrap().draw(&request);
            if let Some(Fault::Say(status, code, said)) = &fault {
                (&mut &*client).write_all(&answer(*status, code, said))?;
                continue;
            }
            let delay = self.shared.lock().unwrap().begin(&request);
            thread::sleep(delay);
            (&mut &server).write_all(request.head.as_bytes())?;
            (&mut &server).write_all(&request.body)?;
            let reply = read_message(&mut answers);
            self.shared.lock().unwrap().end(&request);
            let Some((head, body)) = reply? else { return Ok(()) };
            match fault {
                Some(Fault::LoseAnswer) => return Ok(()),
                Some(Fault::FailAfter) => {
                    let said = answer(500, "InternalServerError", "it was carried out");
                    (&mut &*client).write_all(&said)?;
                }
                Some(Fault::Say(..)) | None => {
                    (&mut &*client).write_all(head.as_bytes())?;
                    (&mut &*client).write_all(&body)?;
                }
            }
        }
        Ok(())
    }
}

impl Shared {
    /// Counts a put that begins. Returns how long the request is delayed.
    fn begin(&mut self, request: &Request) -> Duration {
        for partition in request.put_partitions() {
            let puts = self.puts.entry(partition).or_default();
            puts.now += 1;
            puts.most = puts.most.max(puts.now);
        }
        self.delay
    }

    fn end(&mut self, request: &Request) {
        for partition in request.put_partitions() {
            self.puts.entry(partition).or_default().now -= 1;
        }
    }

    fn draw(&mut self, request: &Request) -> Option<Fault> {
        *self.request_counts.entry(request.operation.clone()).or_default() += 1;
        if ["PutItem", "UpdateItem", "TransactWriteItems"].contains(&request.operation.as_str()) {
            for partition in partitions(&request.body) {
                *self.items_written.entry(partition).or_default() += 1;
            }
        }
        let Faults { throttled, conflicts, failed_after, lost, denied, only } = self.faults;
        if only.is_some_and(|only| only != request.operation) {
            return None;
        }
        let drawn = self.chance.u8(0..100);
        let is_transaction = request.operation == "TransactWriteItems";
        let mut edge = 0;
        let mut falls = |share: u8| {
            let is_within = (edge..edge + share).contains(&drawn);
            edge += share;
            is_within
        };
        if falls(throttled) {
            return Some(Fault::Say(400, "ProvisionedThroughputExceededException", "slower"));
        }
        if falls(conflicts) {
            return Some(if is_transaction {
                Fault::Say(
                    400,
                    "TransactionInProgressException",
                    "another transaction is in progress",
                )
            } else {
                Fault::Say(
                    400,
                    "TransactionConflictException",
                    "another transaction is in progress",
                )
            });
        }
        if falls(failed_after) {
            return Some(Fault::FailAfter);
        }
        if falls(lost) {
            return Some(Fault::LoseAnswer);
        }
        falls(denied).then_some(Fault::Say(400, "AccessDeniedException", "you may not do that"))
    }
}

impl Request {
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some((head, body)) = read_message(from)? else { return Ok(None) };
        let target = header(&head, "x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        Ok(Some(Self { head, body, operation }))
    }

    fn put_partitions(&self) -> Vec<String> {
        if self.operation == "PutItem" { partitions(&self.body) } else { Vec::new() }
    }
}

/// Reads a request or a reply: its head, with the empty line, and its body.
fn read_message(from: &mut impl BufRead) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let length = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some((head, body)))
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim())
}

fn answer(status: u16, code: &str, said: &str) -> Vec<u8> {
    let body = format!(
        "{{\"__type\":\"com.amazonaws.dynamodb.v20120810#{code}\",\"message\":\"{said}\"}}"
    );
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The partition keys in a request.
fn partitions(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let named = text.split("\"PK\":{\"S\":\"").skip(1);
    named.filter_map(|rest| rest.split('"').next()).map(ToOwned::to_owned).collect()
}
