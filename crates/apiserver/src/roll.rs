//! Lists that are too large to be made at once: rendered piece by piece while
//! the client takes them. Entries are shared with the store, so a reader that
//! never reads costs one piece, and what it keeps from being forgotten is
//! counted per user.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use ambient::Now;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use objects::Kind;
use serde_json::{Value, json};
use store::Entry;

use crate::answer::Style;
use crate::auth::Identity;
use crate::error::ApiError;
use crate::negotiate::{Form, Include};
use crate::object;
use crate::table;

/// A piece has about this size, or that of one object if that is larger.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// For a piece no more than this is looked at, however little comes of it.
const READ_BYTES_MAX: usize = 8 * PIECE_BYTES;
/// Packed together at a time, so that other lists get their turn.
const PACKED_PIECES_MAX: usize = 4;
/// What the lists and initial states that one user is being sent may keep in
/// memory beyond its time, together; one of them may be larger, and what is
/// small is always sent.
const USER_BYTES_MAX: usize = 256 << 20;

/// What users are being sent.
#[derive(Default)]
pub(crate) struct Sending(Mutex<HashMap<Arc<str>, usize>>);

/// A part of a user's budget; dropping it gives it back.
pub(crate) struct Share {
    sending: Arc<Sending>,
    user: Arc<str>,
    bytes: usize,
}

impl Sending {
    /// Administrators are always served: somebody must look after the rest.
    pub(crate) fn share(self: &Arc<Self>, caller: &Identity, entries: &[Arc<Entry>]) -> Result<Share, ApiError> {
        let bytes = entries.iter().map(|entry| entry.value.len()).sum();
        let user: Arc<str> = caller.user.as_str().into();
        let mut users = self.users();
        let sum = users.get(&user).map_or(bytes, |others| others.saturating_add(bytes));
        if sum > USER_BYTES_MAX && sum != bytes && bytes > PIECE_BYTES && !caller.is_master() {
            return Err(ApiError::Overloaded);
        }
        users.insert(Arc::clone(&user), sum);
        drop(users);
        Ok(Share { sending: Arc::clone(self), user, bytes })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().expect("nobody panics while counting")
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = self.sending.users();
        if let Some(sum) = users.get_mut(&self.user) {
            *sum -= self.bytes;
            if *sum == 0 {
                users.remove(&self.user);
            }
        }
    }
}

/// How the entries of a list are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) kind: &'static Kind,
    pub(crate) form: Form,
    pub(crate) style: Style,
    pub(crate) now: Now,
}

impl Look {
    /// What comes before the entries, and the name of their array.
    fn head(&self, metadata: Value) -> (Value, &'static str) {
        match self.form {
            Form::Plain => {
                let (kind, version) = (self.kind.list_kind, self.kind.api_version());
                (json!({"kind": kind, "apiVersion": version, "metadata": metadata}), "items")
            }
            Form::Metadata => {
                let kind = "PartialObjectMetadataList";
                (json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata}), "items")
            }
            Form::Table(_) => (table::head(self.kind, metadata), "rows"),
        }
    }

    fn document(&self, entry: &Entry, include: Option<Include>) -> Value {
        if self.form == Form::Metadata {
            return table::partial(&object::decode_metadata(&object::seen(self.kind, &entry.value), entry.modified));
        }
        let mut doc = object::document_as(self.kind, entry);
        match include {
            Some(include) => table::row(self.kind, &doc, include, self.now),
            None => {
                if let Some(fields) = doc.as_object_mut() {
                    // Items of a list do not repeat what the list says they are (API-200).
                    fields.shift_remove("kind");
                    fields.shift_remove("apiVersion");
                }
                doc
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>, entry: &Entry) {
        let include = match (self.form, self.style) {
            // Assembled from stored bytes: nothing is parsed.
            (Form::Metadata, Style::Compact) => {
                return object::write_partial(out, self.kind, &object::seen(self.kind, &entry.value), entry.modified);
            }
            (Form::Plain, Style::Compact) => {
                return object::write_item(out, &object::seen(self.kind, &entry.value), entry.modified);
            }
            (Form::Table(include), _) => Some(include),
            _ => None,
        };
        let doc = self.document(entry, include);
        match self.style {
            Style::Compact | Style::Protobuf => out.extend(objects::text::to_json(&doc).unwrap_or_default()),
            Style::Pretty => indent(out, &serde_json::to_vec_pretty(&doc).unwrap_or_default(), b"    "),
            Style::Yaml => {
                let text = objects::text::to_yaml(&doc).unwrap_or_default();
                indent(out, text.trim_end().as_bytes(), b"  ");
            }
        }
    }
}

/// Appends lines, all but the first of them further to the right.
fn indent(out: &mut Vec<u8>, text: &[u8], by: &[u8]) {
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            out.push(b'\n');
            if !line.is_empty() {
                out.extend_from_slice(by);
            }
        }
        out.extend_from_slice(line);
    }
}

/// A list on its way out.
pub(crate) struct Roll {
    look: Look,
    entries: std::vec::IntoIter<Arc<Entry>>,
    state: State,
    _share: Option<Share>,
}

enum State {
    Head(Value),
    Entries { is_first: bool },
    Over,
}

impl Roll {
    pub(crate) fn new(look: Look, metadata: Value, entries: Vec<Arc<Entry>>, share: Option<Share>) -> Self {
        Self { look, entries: entries.into_iter(), state: State::Head(metadata), _share: share }
    }

    /// The next piece; none at the end.
    fn piece(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
        let mut read = 0;
        while out.len() < PIECE_BYTES && read < READ_BYTES_MAX {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Head(metadata) => {
                    self.write_head(&mut out, metadata);
                    self.state = State::Entries { is_first: true };
                }
                State::Entries { is_first } => match self.entries.next() {
                    Some(entry) => {
                        out.extend_from_slice(self.before(is_first));
                        self.look.write(&mut out, &entry);
                        read += entry.value.len();
                        self.state = State::Entries { is_first: false };
                    }
                    None => out.extend_from_slice(self.tail(is_first)),
                },
                State::Over => break,
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// Everything in one, for what is small.
    pub(crate) fn whole(mut self) -> Vec<u8> {
        let mut out = self.piece().unwrap_or_default();
        while let Some(piece) = self.piece() {
            out.extend(piece);
        }
        out
    }

    fn write_head(&self, out: &mut Vec<u8>, metadata: Value) {
        let (head, array) = self.look.head(metadata);
        match self.look.style {
            Style::Compact | Style::Protobuf => {
                out.extend(objects::text::to_json(&head).unwrap_or_default());
                out.pop();
                out.extend_from_slice(format!(",\"{array}\":[").as_bytes());
            }
            Style::Pretty => {
                out.extend(serde_json::to_vec_pretty(&head).unwrap_or_default());
                out.truncate(out.len().saturating_sub("\n}".len()));
                out.extend_from_slice(format!(",\n  \"{array}\": [").as_bytes());
            }
            Style::Yaml => {
                out.extend(objects::text::to_yaml(&head).unwrap_or_default().trim_end().bytes());
                out.extend_from_slice(format!("\n{array}:").as_bytes());
            }
        }
    }

    fn before(&self, is_first: bool) -> &'static [u8] {
        match (self.look.style, is_first) {
            (Style::Compact | Style::Protobuf, true) => b"",
            (Style::Compact | Style::Protobuf, false) => b",",
            (Style::Pretty, true) => b"\n    ",
            (Style::Pretty, false) => b",\n    ",
            (Style::Yaml, _) => b"\n- ",
        }
    }

    fn tail(&self, is_empty: bool) -> &'static [u8] {
        match (self.look.style, is_empty) {
            (Style::Compact | Style::Protobuf, _) | (Style::Pretty, true) => b"]}",
            (Style::Pretty, false) => b"\n  ]\n}",
            (Style::Yaml, true) => b" []\n",
            (Style::Yaml, false) => b"\n",
        }
    }

    /// The pieces as they go out.
    pub(crate) fn pieces(mut self, is_packed: bool) -> Box<dyn Iterator<Item = Bytes> + Send> {
        if !is_packed {
            return Box::new(std::iter::from_fn(move || self.piece().map(Bytes::from)));
        }
        let mut packer = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        Box::new(std::iter::from_fn(move || pack(&mut self, &mut packer).map(Bytes::from)))
    }
}

/// What some pieces come to when packed. That may be nothing: whoever takes it
/// goes on with the next.
fn pack(roll: &mut Roll, packer: &mut Option<GzEncoder<Vec<u8>>>) -> Option<Vec<u8>> {
    const NEVER: &str = "memory takes every write";
    let open = packer.as_mut()?;
    for _ in 0..PACKED_PIECES_MAX {
        let Some(piece) = roll.piece() else { return packer.take().map(|last| last.finish().expect(NEVER)) };
        open.write_all(&piece).expect(NEVER);
        if open.get_ref().len() >= PIECE_BYTES / 4 {
            break;
        }
    }
    Some(std::mem::take(open.get_mut()))
}

#[cfg(test)]
mod tests {
    use store::{ListRequest, Memory, Op, Store};

    use super::*;

    #[tokio::test]
    async fn what_one_user_is_being_sent_is_bounded_and_given_back() {
        let store = Memory::new(1);
        // One value under many keys: it counts as often as it is sent.
        let value = Bytes::from(vec![0; 8 << 20]);
        for index in 0..40 {
            store.write(vec![Op::create(format!("/a/{index}"), value.clone())]).await.unwrap();
        }
        let entries = store.list(ListRequest::all("/a/")).await.unwrap().entries;
        let sending = Arc::new(Sending::default());
        let (jane, bob) = (Identity::new("jane", [""; 0]), Identity::new("bob", [""; 0]));
        let first = sending.share(&jane, &entries).unwrap_or_else(|error| panic!("alone it may be large: {error}"));
        assert!(matches!(sending.share(&jane, &entries[..1]), Err(ApiError::Overloaded)));
        assert!(sending.share(&bob, &entries[..1]).is_ok(), "others do not pay for it");
        assert!(sending.share(&Identity::admin(), &entries).is_ok());
        drop(first);
        assert!(sending.share(&jane, &entries[..1]).is_ok());
        assert!(sending.users().is_empty());
    }
}
