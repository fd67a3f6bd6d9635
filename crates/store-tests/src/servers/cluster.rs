//! A Redis cluster of three masters, with or without replicas.

use super::{
    process::wait_for,
    redis::{RedisOptions, RedisServer, redis_cli},
};

const MASTERS: usize = 3;

/// A silent node counts as failed after this time. It is short, so that failover tests are quick.
const NODE_TIMEOUT_MS: &str = "1000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// The slots of a failed master are unavailable until it is back.
    None,
    /// A failed master is replaced by its replica within a few seconds.
    OneEach,
}

/// A private cluster without persistence.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

// === impl RedisCluster ===

impl RedisCluster {
    /// Starts the nodes, joins them and waits until all of them report a healthy cluster.
    pub fn start(replicas: Replicas) -> Self {
        let each = match replicas {
            Replicas::None => 0,
            Replicas::OneEach => 1,
        };
        let extra = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS];
        let options = RedisOptions { extra: extra.map(Into::into).into(), ..Default::default() };
        let start = |_| RedisServer::start(&options);
        let cluster = Self { nodes: (0..MASTERS * (1 + each)).map(start).collect() };
        cluster.join(each);
        cluster
    }

    fn join(&self, replicas: usize) {
        let addresses = self.addresses();
        let replicas = replicas.to_string();
        let mut args = vec!["--cluster", "create"];
        args.extend(addresses.iter().map(String::as_str));
        args.extend(["--cluster-replicas", &replicas, "--cluster-yes"]);
        redis_cli(None, &args).unwrap_or_else(|said| panic!("the cluster was not created: {said}"));
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        wait_for("all nodes report a healthy cluster", || {
            self.nodes.iter().all(|node| {
                let info = node.cli(&["cluster", "info"]);
                info.contains("cluster_state:ok") && info.contains(&known)
            })
        });
        for node in &self.nodes {
            node.wait_for_master();
        }
    }

    /// `redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT,…` with all nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.addresses().join(","))
    }

    /// All servers, masters and replicas.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Runs `redis-cli -c`, which finds the node by the key, and returns its output.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> String {
        let mut all = vec!["-c"];
        all.extend(args);
        self.any_running().cli(&all)
    }

    /// The server that owns a key's slot, according to a running node.
    pub fn master_of(&self, key: &str) -> &RedisServer {
        let node = self.any_running();
        let slot = node.cli(&["cluster", "keyslot", key]).parse().unwrap();
        let nodes = node.cli(&["cluster", "nodes"]);
        let port = nodes.lines().find_map(|line| master_with(slot, line));
        let port = port.unwrap_or_else(|| panic!("no node owns the slot {slot}:\n{nodes}"));
        self.nodes.iter().find(|node| node.port() == port).expect("all nodes are ours")
    }

    /// Kills and returns the server that owns a key's slot.
    pub fn kill_master_of(&self, key: &str) -> &RedisServer {
        let master = self.master_of(key);
        master.kill();
        master
    }

    /// Waits until a running server owns a key's slot and all running ones report a healthy cluster.
    pub fn wait_for_failover(&self, key: &str) {
        wait_for("a replica takes its dead master's place", || {
            let mut running = self.nodes.iter().filter(|node| node.is_running());
            self.master_of(key).is_running()
                && running.all(|node| node.cli(&["cluster", "info"]).contains("cluster_state:ok"))
        });
    }

    fn any_running(&self) -> &RedisServer {
        self.nodes.iter().find(|node| node.is_running()).expect("some node is running")
    }

    fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect()
    }
}

/// The port in a line of `CLUSTER NODES`, if that node is a master that owns the slot:
/// `ID 127.0.0.1:PORT@BUS FLAGS MASTER PING PONG EPOCH LINK SLOTS…`.
fn master_with(slot: u16, line: &str) -> Option<u16> {
    let fields: Vec<&str> = line.split(' ').collect();
    let has = |range: &&str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    };
    fields.get(8..)?.iter().find(|range| has(range))?;
    fields[1].split_once('@')?.0.rsplit(':').next()?.parse().ok()
}
