//! Parses a multipart body that is already in memory.

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use multer::{Constraints, Field, Multipart, SizeLimit};

use super::{BYTES_MAX, BadForm, NAME_MAX};

pub(super) struct Part {
    pub(super) name: String,
    pub(super) content: Content,
}

/// A part with a file name, or with bytes that are not UTF-8, is a file. The file name itself is ignored.
pub(super) enum Content {
    Text(String),
    File(Vec<u8>),
}

const PARTS_MAX: usize = 70;
/// RFC 2046 allows 70, but some clients send more.
const BOUNDARY_MAX: usize = 200;

/// All parts, in order. The body is in memory, so the stream never blocks.
pub(super) fn parts(content_type: &str, body: &[u8]) -> Result<Vec<Part>, BadForm> {
    read_all(multipart(content_type, body)?).now_or_never().unwrap_or(Err(CUT_SHORT))
}

/// The text of the part with this name, if it is complete in this beginning of a body.
pub(super) fn find_text(content_type: &str, beginning: &[u8], name: &str) -> Option<String> {
    let mut multipart = multipart(content_type, beginning).ok()?;
    let search = async {
        while let Some(field) = multipart.next_field().await.ok()? {
            let is_it = field.name() == Some(name) && field.file_name().is_none();
            let text = field.text().await.ok()?;
            if is_it {
                return Some(text);
            }
        }
        None
    };
    search.now_or_never()?
}

fn multipart(content_type: &str, body: &[u8]) -> Result<Multipart<'static>, BadForm> {
    let boundary = multer::parse_boundary(content_type)
        .ok()
        .filter(|boundary| (1..=BOUNDARY_MAX).contains(&boundary.len()))
        .ok_or(BadForm::Malformed("the multipart body has no usable boundary"))?;
    let body = Bytes::copy_from_slice(body);
    let whole = stream::once(async { Ok::<_, std::convert::Infallible>(body) });
    let limit = SizeLimit::new().whole_stream(BYTES_MAX as u64).per_field(BYTES_MAX as u64);
    Ok(Multipart::with_constraints(whole, boundary, Constraints::new().size_limit(limit)))
}

const CUT_SHORT: BadForm = BadForm::Malformed("the multipart body is not complete");

async fn read_all(mut multipart: Multipart<'_>) -> Result<Vec<Part>, BadForm> {
    let mut parts = Vec::new();
    while let Some(field) = multipart.next_field().await.map_err(|_| CUT_SHORT)? {
        if parts.len() == PARTS_MAX {
            return Err(BadForm::TooMany);
        }
        parts.push(read_part(field).await?);
    }
    Ok(parts)
}

async fn read_part(field: Field<'_>) -> Result<Part, BadForm> {
    let name = field.name().filter(|name| name.len() <= NAME_MAX).map(str::to_owned);
    let name = name.ok_or(BadForm::Malformed("a multipart part has no usable name"))?;
    let is_file = field.file_name().is_some();
    let bytes: Vec<u8> = field.bytes().await.map_err(|_| CUT_SHORT)?.into();
    let content = if is_file {
        Content::File(bytes)
    } else {
        match String::from_utf8(bytes) {
            Ok(text) => Content::Text(text),
            Err(not_text) => Content::File(not_text.into_bytes()),
        }
    };
    Ok(Part { name, content })
}
