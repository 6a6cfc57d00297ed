//! Embeddings as they are made: an iterator for threads, a stream for tasks.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::request::Embedding;
use crate::Error;
use crate::tasks::embedding_model::EmbeddingModel;
use crate::tasks::vectors::{AsyncVectorStream, VectorStream};

/// The vectors of a request's texts, in their order, for a thread that may wait. A text that has none is an error by
/// itself, and the others go on. Dropping the stream cancels what was not computed yet.
#[derive(Debug)]
pub struct EmbeddingStream(pub(super) VectorStream<EmbeddingModel>);

/// The same for a task, on any runtime. Texts become tokens one by one, so that other tasks get their turn.
#[derive(Debug)]
pub struct AsyncEmbeddingStream(AsyncVectorStream<EmbeddingModel>);

impl AsyncEmbeddingStream {
    pub(super) fn new(stream: VectorStream<EmbeddingModel>) -> AsyncEmbeddingStream {
        AsyncEmbeddingStream(AsyncVectorStream::new(stream))
    }
}

impl Iterator for EmbeddingStream {
    type Item = Result<Embedding, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for EmbeddingStream {}

impl Stream for AsyncEmbeddingStream {
    type Item = Result<Embedding, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}
