//! Texts and how they become vectors or scores, from all that callers have.

/// Texts, and what is to be made of them.
#[derive(Debug, Clone)]
pub struct VectorRequest<X, P> {
    /// The texts.
    pub texts: Vec<X>,
    /// How vectors or scores are made of them.
    pub parameters: P,
}

impl<X, P: Default> VectorRequest<X, P> {
    /// Texts with all choices left to the handle.
    pub fn new<T: Into<X>>(texts: impl IntoIterator<Item = T>) -> VectorRequest<X, P> {
        VectorRequest { texts: texts.into_iter().map(Into::into).collect(), parameters: P::default() }
    }

    /// The same, in another way.
    #[must_use]
    pub fn with(self, parameters: P) -> VectorRequest<X, P> {
        VectorRequest { parameters, ..self }
    }
}

impl<X, P: Default> Default for VectorRequest<X, P> {
    fn default() -> VectorRequest<X, P> {
        VectorRequest { texts: Vec::new(), parameters: P::default() }
    }
}

impl<T: Into<X>, X, P: Default> From<Vec<T>> for VectorRequest<X, P> {
    fn from(texts: Vec<T>) -> VectorRequest<X, P> {
        VectorRequest::new(texts)
    }
}

impl<T: Into<X>, X, P: Default, const N: usize> From<[T; N]> for VectorRequest<X, P> {
    fn from(texts: [T; N]) -> VectorRequest<X, P> {
        VectorRequest::new(texts)
    }
}

impl<T: Clone + Into<X>, X, P: Default> From<&[T]> for VectorRequest<X, P> {
    fn from(texts: &[T]) -> VectorRequest<X, P> {
        VectorRequest::new(texts.iter().cloned())
    }
}

impl<T: Clone + Into<X>, X, P: Default> From<&Vec<T>> for VectorRequest<X, P> {
    fn from(texts: &Vec<T>) -> VectorRequest<X, P> {
        VectorRequest::from(&texts[..])
    }
}

impl<T: Clone + Into<X>, X, P: Default, const N: usize> From<&[T; N]> for VectorRequest<X, P> {
    fn from(texts: &[T; N]) -> VectorRequest<X, P> {
        VectorRequest::from(&texts[..])
    }
}
