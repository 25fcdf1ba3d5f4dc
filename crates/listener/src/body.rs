//! The body of an answer, handed over in small parts, so that what a reader does
//! not take stays here and is seen to stay.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::registry::UnderWay;

/// Handed over at a time.
const PART_BYTES: usize = 64 << 10;

pub(crate) struct Paced<B> {
    body: B,
    /// The rest of a part that was too large.
    rest: Bytes,
    request: UnderWay,
}

impl<B> Paced<B> {
    pub(crate) fn new(body: B, request: UnderWay) -> Self {
        Self { body, rest: Bytes::new(), request }
    }
}

impl<B: Body<Data = Bytes, Error = Infallible> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        this.request.taken();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                None => return Poll::Ready(None),
            }
        }
        let part = this.rest.split_to(PART_BYTES.min(this.rest.len()));
        // The last part, too: a reader without a window never takes it.
        this.request.handed_over();
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}
