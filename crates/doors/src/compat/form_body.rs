//! Reads the body of a form. The key is checked as soon as it is there, and the rest is read only for a caller with a valid
//! one. A key in the query is checked before the first byte.
//!
//! Several clients send the key after the picture (docs/api/compat.md lists them), so a form without a key in its first
//! 64 KiB is still read to its end, within what `strangers` allows.

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::{HeaderMap, header, request::Parts},
};
use domain::retry::Code;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use url::form_urlencoded;
use wire::{code, form::find_key};

use crate::{
    Doors, body,
    caller::{AuthError, Role},
    error::{self, Refusal},
    in_flight::{HeldBody, TooManyBytes},
    peer::Peer,
    strangers::{StrangerForm, TooManyStrangers},
};

/// Why a body is not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    Body(Refusal),
    Key(AuthError),
    TooManyStrangers,
}

/// A body that is coming in.
struct FormBody<'a> {
    doors: &'a Doors,
    parts: &'a Parts,
    max: usize,
    bytes: Blocks,
    owner: Owner,
    /// The length at which to look for the key again.
    look_at: usize,
}

/// Who the bytes of a form count for.
enum Owner {
    /// No key has come yet.
    Stranger(StrangerForm),
    /// The worker with the key.
    Worker(HeldBody),
}

/// The bytes that came so far, in blocks of equal size. One buffer would have to be copied into a larger one again and again,
/// and the memory of all the smaller ones stays with the process for a while.
struct Blocks {
    size: usize,
    blocks: Vec<Vec<u8>>,
}

/// Bounds the work for a body that comes in small pieces.
const LOOK_EVERY: usize = 4 * 1024;

/// A form as it came. Its bytes count for the worker until it is dropped.
pub(super) struct WholeForm {
    pub(super) bytes: Vec<u8>,
    _owner: Option<Owner>,
}

/// Reads a body of at most `max` bytes.
pub(super) async fn read(
    doors: &Doors,
    parts: &Parts,
    body: Body,
    max: usize,
) -> Result<WholeForm, Unread> {
    body::check_announced(&parts.headers, max)?;
    if body.is_end_stream() {
        return Ok(WholeForm { bytes: Vec::new(), _owner: None });
    }
    let peer = parts.extensions.get::<Peer>();
    let owner = match query_key(parts) {
        Some(key) => Owner::Worker(check(doors, &key, peer)?),
        None => Owner::Stranger(StrangerForm::begin(doors, peer)?),
    };
    let bytes = Blocks { size: doors.limits().key_bytes.max(LOOK_EVERY), blocks: Vec::new() };
    let form = FormBody { doors, parts, max, bytes, owner, look_at: 0 };
    let read = form.read(body);
    timeout(doors.limits().body_timeout, read).await.unwrap_or(Err(Refusal::Slow.into()))
}

/// The admin key does not count: it is refused on this door.
fn check(doors: &Doors, key: &str, peer: Option<&Peer>) -> Result<HeldBody, AuthError> {
    match doors.identify(Some(key), peer)? {
        Role::Worker(known) => Ok(HeldBody::begin(doors, known.worker.name.clone())),
        Role::Admin(_) => Err(AuthError::Unknown),
    }
}

fn query_key(parts: &Parts) -> Option<String> {
    let query = parts.uri.query()?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "key").map(|(_, key)| key.into_owned())
}

// === impl FormBody ===

impl FormBody<'_> {
    async fn read(mut self, mut body: Body) -> Result<WholeForm, Unread> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refusal::Broken)?;
            // Trailers are not part of a form.
            if let Ok(data) = frame.into_data() {
                self.add(&data)?;
            }
        }
        Ok(WholeForm { bytes: self.bytes.join(), _owner: Some(self.owner) })
    }

    fn add(&mut self, data: &Bytes) -> Result<(), Unread> {
        if self.bytes.len() + data.len() > self.max {
            return Err(Refusal::TooLarge(self.max).into());
        }
        self.bytes.add(data);
        if matches!(self.owner, Owner::Stranger(_))
            && let Some(held) = self.find_worker()?
        {
            self.owner = Owner::Worker(held);
        }
        match &mut self.owner {
            Owner::Stranger(stranger) => stranger.hold(self.bytes.held())?,
            Owner::Worker(held) => held
                .hold(self.bytes.held())
                .map_err(|TooManyBytes| Refusal::TooManyBytes(self.doors.limits().worker_bytes))?,
        }
        Ok(())
    }

    /// The worker whose key has come; `Err` for an invalid one.
    fn find_worker(&mut self) -> Result<Option<HeldBody>, AuthError> {
        let key_bytes = self.doors.limits().key_bytes;
        if self.bytes.len() < self.look_at || self.look_at > key_bytes {
            return Ok(None);
        }
        self.look_at = self.bytes.len() + LOOK_EVERY;
        // The first block has all that is searched.
        let beginning = self.bytes.blocks.first().map(Vec::as_slice).unwrap_or_default();
        let Some(key) = find_key(content_type(&self.parts.headers), beginning) else {
            return Ok(None);
        };
        check(self.doors, &key, self.parts.extensions.get::<Peer>()).map(Some)
    }
}

pub(super) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}

// === impl Blocks ===

impl Blocks {
    fn add(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let block = match self.blocks.last_mut().filter(|block| block.len() < self.size) {
                Some(block) => block,
                None => self.blocks.push_mut(Vec::new()),
            };
            let (now, later) = data.split_at(data.len().min(self.size - block.len()));
            block.extend_from_slice(now);
            data = later;
        }
    }

    fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// The memory they take.
    fn held(&self) -> usize {
        self.blocks.iter().map(Vec::capacity).sum()
    }

    fn join(mut self) -> Vec<u8> {
        if self.blocks.len() <= 1 {
            self.blocks.pop().unwrap_or_default()
        } else {
            self.blocks.concat()
        }
    }
}

// === impl Unread ===

impl Unread {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Body(refusal) => error::code_of_body(refusal),
            Self::Key(refused) => error::code_of_auth_error(refused),
            Self::TooManyStrangers => code::ERROR_SERVER_ERROR.into(),
        }
    }
}

impl From<Refusal> for Unread {
    fn from(refusal: Refusal) -> Self {
        Self::Body(refusal)
    }
}

impl From<AuthError> for Unread {
    fn from(refused: AuthError) -> Self {
        Self::Key(refused)
    }
}

impl From<TooManyStrangers> for Unread {
    fn from(TooManyStrangers: TooManyStrangers) -> Self {
        Self::TooManyStrangers
    }
}
