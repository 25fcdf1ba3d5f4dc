//! Logs and watches as messages of a WebSocket, for clients that can follow
//! nothing else (API-313).

use std::future::Future;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Response, header};
use http_body_util::BodyStream;
use streaming::{ReadingUpgrade, Refusal};

use crate::answer::{self, Answer, Body};
use crate::api::{Api, Call, STREAMING};
use crate::error::ApiError;

/// A client that asked for messages, and the answer to that.
pub(crate) struct Messages {
    upgrade: ReadingUpgrade,
    response: Response<()>,
    are_lines: bool,
}

/// None: the client asks for none. Pieces of any size.
pub(crate) fn of_bytes(call: &mut Call) -> Result<Option<Messages>, ApiError> {
    asked(call, ReadingUpgrade::bytes, false)
}

/// The same, a message for each line.
pub(crate) fn of_lines(call: &mut Call) -> Result<Option<Messages>, ApiError> {
    asked(call, ReadingUpgrade::texts, true)
}

type Negotiate = fn(&http::HeaderMap, hyper::upgrade::OnUpgrade) -> Result<(ReadingUpgrade, Response<()>), Refusal>;

fn asked(call: &mut Call, negotiate: Negotiate, are_lines: bool) -> Result<Option<Messages>, ApiError> {
    if !streaming::is_websocket(&call.headers) {
        return Ok(None);
    }
    let Some(on) = call.upgrade.take() else { return Ok(None) };
    let (upgrade, response) = negotiate(&call.headers, on)
        .map_err(|refused| ApiError::Node { code: refused.status(), detail: refused.to_string() })?;
    Ok(Some(Messages { upgrade, response, are_lines }))
}

impl Messages {
    /// What the answer would have said, until something has happened.
    pub(crate) fn send(
        self,
        api: &Api,
        answer: Response<Body>,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Answer {
        let Self { upgrade, response, are_lines } = self;
        let kind = answer.headers().get(header::CONTENT_TYPE);
        if are_lines && kind.is_none_or(|kind| kind != "application/json") {
            return Err(ApiError::BadRequest("only JSON can be followed as messages".to_owned()));
        }
        let pieces = BodyStream::new(answer::until(answer.into_body(), end))
            .filter_map(|frame| std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok())));
        match are_lines {
            true => api.workers.stream(upgrade.run(lines(pieces))),
            false => api.workers.stream(upgrade.run(pieces)),
        }
        let mut response = response.map(|()| answer::full(Bytes::new()));
        response.headers_mut().insert(STREAMING, HeaderValue::from_static("messages"));
        Ok(response)
    }
}

/// Without their ends; what follows the last one is not complete.
fn lines(pieces: impl Stream<Item = Bytes>) -> impl Stream<Item = Bytes> {
    let mut begun = Vec::new();
    pieces.flat_map(move |piece| {
        begun.extend_from_slice(&piece);
        let end = begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let rest = begun.split_off(end);
        let whole = Bytes::from(std::mem::replace(&mut begun, rest));
        let lines: Vec<Bytes> = whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| whole.slice_ref(line))
            .collect();
        stream::iter(lines)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn api_313_lines_are_messages_however_they_arrive() {
        let pieces = ["{a", "}\n{b}\n\n{", "c}\n", "{d"].map(Bytes::from);
        let lines: Vec<Bytes> = lines(stream::iter(pieces)).collect().await;
        assert_eq!(lines, ["{a}", "{b}", "{c}"]);
    }
}
