//! get and list (API-198 to API-231).

use std::sync::Arc;
use std::time::Duration;

use ambient::Timestamp;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::SignedDuration;
use objects::{FieldError, FieldSelector, LabelSelector};
use serde_json::{Value, json};
use store::{Entry, ListRequest, Listing, ReadError, Revision};

use crate::answer::{self, Answer, Manner, Style};
use crate::api::{Api, Call};
use crate::error::ApiError;
use crate::negotiate::Form;
use crate::object::{self, Selection};
use crate::roll::{Look, PIECE_BYTES, Roll};
use crate::table::{self, Columns};

pub(crate) async fn get(api: &Api, call: &Call) -> Answer {
    at_least(api, call.query.text("resourceVersion").map(parse_version).transpose()?).await?;
    let entry = api.store.get(&call.key()).await?;
    let entry = entry.ok_or_else(|| ApiError::not_found(call.kind, call.name()))?;
    match call.form()? {
        Form::Plain => Ok(answer::json_bytes(StatusCode::OK, object::json(call.kind, &entry))),
        form => Ok(shaped(api, call, form, StatusCode::OK, &object::document_as(call.kind, &entry))),
    }
}

/// One object in the form the client asked for.
pub(crate) fn shaped(
    api: &Api,
    call: &Call,
    form: Form,
    code: StatusCode,
    doc: &Value,
) -> http::Response<answer::Body> {
    let value = match form {
        Form::Plain => return answer::json(code, doc),
        Form::Metadata => table::partial(doc),
        Form::Table(include) => {
            let metadata = json!({"resourceVersion": object::text(doc, &["metadata", "resourceVersion"])});
            let docs = std::slice::from_ref(doc);
            table::table(call.kind, docs, include, Columns::Shown, metadata, api.clock.now())
        }
    };
    answer::json(code, &value)
}

pub(crate) async fn list(api: &Api, call: &mut Call) -> Answer {
    let form = call.form()?;
    let selection = selection(call)?;
    let options = ListOptions::parse(call)?;
    let page = page(api, call, &selection, &options).await?;
    if page.unreadable > 0 {
        let text = format!("{} objects of this list can not be read: a get of one says why", page.unreadable);
        call.warnings.push(text);
    }
    let call = &*call;
    let bytes: usize = page.entries.iter().map(|entry| entry.value.len()).sum();
    let metadata = page.metadata();
    let look = |style| Look { kind: call.kind, form, style, now: api.clock.now() };
    if bytes <= PIECE_BYTES {
        let whole = Roll::new(look(Style::Compact), metadata, page.entries, None).whole();
        return Ok(answer::json_bytes(StatusCode::OK, whole));
    }
    let manner = Manner::wanted(&call.headers, &call.query);
    let share = api.sending.share(&call.caller, &page.entries)?;
    if manner.style == Style::Protobuf {
        // Lengths stand before contents: made whole, elsewhere, of what is not.
        let pieces = Roll::new(look(Style::Compact), metadata, page.entries, Some(share)).pieces(false);
        let body = api.workers.drive(answer::stream(futures::stream::iter(pieces)));
        return Ok(answer::with_type(StatusCode::OK, "application/json", body));
    }
    let is_copied = form == Form::Plain && manner.style == Style::Compact && !manner.is_packed;
    let roll = Roll::new(look(manner.style), metadata, page.entries, Some(share));
    let answer = manner.dressed(roll.pieces(manner.is_packed));
    // Decoding, rewriting and packing are large work; copying is not.
    Ok(if is_copied { answer } else { answer.map(|body| api.workers.drive(body)) })
}

/// One page of a list, in the order of the store's keys (API-201), all of one
/// moment (API-202).
pub(crate) struct Page {
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) revision: Revision,
    continue_token: Option<String>,
    remaining: Option<usize>,
    /// Left out, because their values can not be opened.
    unreadable: usize,
}

impl Page {
    /// API-177: the version is that of the moment.
    fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

/// What the client wants to see of which moment.
#[derive(Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) limit: Option<usize>,
    start: Option<String>,
    moment: Moment,
    /// When the first page was read, of a token that says so.
    first_read: Option<Timestamp>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Moment {
    #[default]
    Newest,
    NotOlderThan(Revision),
    Exactly(Revision),
}

impl ListOptions {
    /// API-332, API-336: as informers ask. API-199, API-203 to API-213 (API-205, API-206, API-207, API-208, API-210).
    fn parse(call: &Call) -> Result<Self, ApiError> {
        let query = &call.query;
        let version = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let limit = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        query.number("timeoutSeconds")?;
        let token = query.text("continue");
        check_combination(version, matching, token, query.flag("sendInitialEvents"))?;
        if let Some(token) = token {
            if version.is_some_and(|version| version != "0") {
                let text = "specifying resource version is not allowed when using continue";
                return Err(ApiError::BadRequest(text.to_owned()));
            }
            let (moment, start, first_read) = parse_token(token)?;
            return Ok(Self { limit, start: Some(start), moment, first_read });
        }
        let Some(version) = version else { return Ok(Self { limit, ..Self::default() }) };
        let version = parse_version(version)?;
        let moment = match matching {
            Some("Exact") => Moment::Exactly(version),
            None if limit.is_some() && version.0 > 0 => Moment::Exactly(version),
            _ => Moment::NotOlderThan(version),
        };
        // API-204: informers page with version 0 and expect everything.
        let limit = limit.filter(|_| version.0 > 0);
        Ok(Self { limit, moment, ..Self::default() })
    }
}

/// API-211.
fn check_combination(
    version: Option<&str>,
    matching: Option<&str>,
    token: Option<&str>,
    initial_events: Option<bool>,
) -> Result<(), ApiError> {
    let forbid =
        |field: &str, text: &str| Err(ApiError::invalid_options("ListOptions", FieldError::forbidden(field, text)));
    if initial_events.is_some() {
        return forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    let Some(matching) = matching else { return Ok(()) };
    if token.is_some() {
        return forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
    }
    match (matching, version) {
        (_, None) => {
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        ("Exact", Some("0")) => {
            forbid("resourceVersionMatch", "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        ("Exact" | "NotOlderThan", _) => Ok(()),
        (other, _) => Err(ApiError::invalid_options(
            "ListOptions",
            FieldError::not_supported("resourceVersionMatch", other, &["Exact", "NotOlderThan", ""]),
        )),
    }
}

pub(crate) fn parse_version(text: &str) -> Result<Revision, ApiError> {
    text.parse().map(Revision).map_err(|_| {
        ApiError::invalid_options(
            "ListOptions",
            FieldError::invalid("resourceVersion", text, "invalid resource version"),
        )
    })
}

/// API-212: version of the snapshot, when its first page was read, and the last
/// key seen, below the prefix. Without a snapshot: of the newest state.
fn token(snapshot: Option<(Revision, Timestamp)>, last: &str) -> String {
    let start = format!("{last}\u{0}");
    let token = match snapshot {
        Some((revision, read)) => {
            json!({"v": "meta.k8s.io/v1", "rv": revision.0, "start": start, "read": read.as_second()})
        }
        None => json!({"v": "meta.k8s.io/v1", "rv": -1, "start": start}),
    };
    BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
}

fn parse_token(token: &str) -> Result<(Moment, String, Option<Timestamp>), ApiError> {
    let invalid = |detail: &str| ApiError::BadRequest(format!("invalid continue token: {detail}"));
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|error| invalid(&error.to_string()))?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
    let start = token["start"].as_str().ok_or_else(|| invalid("no start"))?;
    let moment = match token["rv"].as_i64() {
        Some(-1) => Moment::Newest,
        Some(version) if version > 0 => Moment::Exactly(Revision(version.unsigned_abs())),
        _ => return Err(invalid("no version")),
    };
    let first_read = token["read"].as_i64().and_then(|seconds| Timestamp::from_second(seconds).ok());
    Ok((moment, start.trim_end_matches('\u{0}').to_owned(), first_read))
}

/// API-213: as long as upstream's store remembers. Ours might know for longer,
/// but clients are to see that snapshots end before they depend on it.
const SNAPSHOT_LIFETIME: SignedDuration = SignedDuration::from_secs(300);

/// API-213: the client may go on with the newest state instead.
fn expired(start: &str) -> ApiError {
    ApiError::Expired { message: EXPIRED_TOKEN.to_owned(), continue_token: Some(token(None, start)) }
}

async fn page(api: &Api, call: &Call, selection: &Selection, options: &ListOptions) -> Result<Page, ApiError> {
    match options.moment {
        Moment::NotOlderThan(version) => wait_for(api, version).await?,
        Moment::Newest => at_least(api, None).await?,
        Moment::Exactly(_) => {}
    }
    let now = api.clock.now().wall;
    let first_read = options.first_read.unwrap_or(now);
    let start = options.start.as_deref();
    if let (Some(start), Moment::Exactly(_)) = (start, options.moment)
        && now.duration_since(first_read) > SNAPSHOT_LIFETIME
    {
        return Err(expired(start));
    }
    let prefix = object::prefix(call.kind, call.namespace());
    let after = start.map(|start| format!("{prefix}{start}"));
    let at = match options.moment {
        Moment::Exactly(revision) => Some(revision),
        Moment::Newest | Moment::NotOlderThan(_) => None,
    };
    // Filtering comes before limiting (API-214), so only unfiltered lists
    // let the store count.
    let limit = options.limit.filter(|_| selection.is_everything());
    let request = ListRequest { prefix: &prefix, after: after.as_deref(), limit, at };
    let mut listing = match api.store.list(request).await {
        Err(ReadError::Compacted { .. }) if start.is_some() => return Err(expired(start.unwrap_or_default())),
        other => other?,
    };
    selection.retain(&mut listing.entries);
    Ok(cut(listing, selection, options.limit, (&prefix, first_read)))
}

fn cut(
    mut listing: Listing,
    selection: &Selection,
    limit: Option<usize>,
    (prefix, first_read): (&str, Timestamp),
) -> Page {
    let is_whole = match limit {
        Some(limit) => listing.entries.len() <= limit && listing.remaining == 0,
        None => true,
    };
    if let Some(limit) = limit {
        listing.entries.truncate(limit);
    }
    let last = listing.entries.last().filter(|_| !is_whole).map(|entry| entry.key[prefix.len()..].to_owned());
    Page {
        continue_token: last.map(|last| token(Some((listing.revision, first_read)), &last)),
        remaining: (!is_whole && selection.is_everything()).then_some(listing.remaining),
        entries: listing.entries,
        revision: listing.revision,
        unreadable: listing.unreadable,
    }
}

/// API-131.
const EXPIRED_TOKEN: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// API-198, API-203: what is read from now on is at least so new; without a
/// version it has every write acknowledged before, whoever made it. Zero asks
/// for nothing, so that it can be answered whatever becomes of the store.
pub(crate) async fn at_least(api: &Api, version: Option<Revision>) -> Result<(), ApiError> {
    match version {
        None => Ok(api.store.revision().await.map(drop)?),
        Some(version) => wait_for(api, version).await,
    }
}

/// API-209: a version of the future may arrive within moments.
async fn wait_for(api: &Api, version: Revision) -> Result<(), ApiError> {
    for _ in 0..FUTURE_TRIES {
        if api.store.shown() >= version {
            return Ok(());
        }
        tokio::time::sleep(FUTURE_PAUSE).await;
    }
    Err(ApiError::FutureRevision { wanted: version, current: api.store.shown() })
}

/// Together the about three seconds of API-209.
const FUTURE_TRIES: u32 = 30;
const FUTURE_PAUSE: Duration = Duration::from_millis(100);

/// The selectors of a request (API-215 to API-217), by which kubectl finds
/// what belongs to a rollout (API-085).
pub(crate) fn selection(call: &Call) -> Result<Selection, ApiError> {
    let labels = LabelSelector::parse(call.query.text("labelSelector").unwrap_or_default())
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let fields = FieldSelector::parse(call.query.text("fieldSelector").unwrap_or_default())
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let known = call.kind.ops.fields(&Value::Null);
    fields.check_supported(&known).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    Ok(Selection { kind: call.kind, labels, fields })
}

/// Everything selected, for deletecollection.
pub(crate) async fn select(api: &Api, call: &Call) -> Result<Page, ApiError> {
    let selection = selection(call)?;
    let limit = call.query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    page(api, call, &selection, &ListOptions { limit, ..ListOptions::default() }).await
}
