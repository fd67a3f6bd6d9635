//! Who does something to the gateway, and from where: the roles of admins, and the actor in the audit trail.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::id::WorkerName;

/// What an admin may do. A higher role may do everything that a lower one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminRole {
    /// May read everything except tokens.
    Reader,
    /// May also withdraw, report, revive, purge, change pools, pause and resume.
    Operator,
    /// May do everything. That is no more than an operator yet: no request changes keys or declarations.
    Admin,
}

/// The text is not the name of a role.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a role; the roles are reader, operator and admin")]
pub struct UnknownRole;

/// Who did something, and from where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// The name of the admin or worker; names of admins have the form of workers' names.
    pub name: WorkerName,
    /// What the actor was allowed to do.
    pub role: ActorRole,
    /// The address the request came from; `None` for an action inside the gateway's process, such as a signal.
    pub address: Option<IpAddr>,
}

/// The role of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorRole {
    /// A worker.
    Worker,
    /// An admin that may only read.
    Reader,
    /// An admin that may operate.
    Operator,
    /// An admin that may do everything.
    Admin,
    /// A person with access to the machine: a signal, or a command in a process of its own.
    Process,
}

/// The network by which an address is counted: one IPv6 customer owns a /64, so it counts as one. An IPv4-mapped address
/// counts as the IPv4 address.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
    }
}

// === impl AdminRole ===

impl AdminRole {
    /// All roles, the lowest first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Operator, Self::Admin];

    /// The role as it is written in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for AdminRole {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or(UnknownRole)
    }
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Actor ===

impl Actor {
    /// A person with access to the machine.
    pub fn process(name: WorkerName) -> Self {
        Self { name, role: ActorRole::Process, address: None }
    }

    /// Whether it acts in place of others: workers act for themselves, and their entries say so.
    pub fn is_admin(&self) -> bool {
        self.role != ActorRole::Worker
    }
}

// === impl ActorRole ===

impl ActorRole {
    /// The role as it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Reader => AdminRole::Reader.name(),
            Self::Operator => AdminRole::Operator.name(),
            Self::Admin => AdminRole::Admin.name(),
            Self::Process => "process",
        }
    }
}

impl From<AdminRole> for ActorRole {
    fn from(role: AdminRole) -> Self {
        match role {
            AdminRole::Reader => Self::Reader,
            AdminRole::Operator => Self::Operator,
            AdminRole::Admin => Self::Admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_role_may_do_what_a_lower_one_may() {
        assert!(AdminRole::Reader < AdminRole::Operator && AdminRole::Operator < AdminRole::Admin);
        for role in AdminRole::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(ActorRole::from(role).name(), role.name());
        }
        assert_eq!("root".parse::<AdminRole>(), Err(UnknownRole));
    }
}
