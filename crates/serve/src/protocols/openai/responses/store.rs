//! The responses that the server keeps: the newest, up to a number and a size.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use indexmap::IndexMap;
use serde_json::Value;

use super::object::ResponseObject;
use crate::api_error::ApiError;

/// A response that is kept.
pub(super) struct StoredResponse {
    pub(super) response: ResponseObject,
    /// The items that the request gave.
    pub(super) input: Vec<Value>,
    /// The items of the whole conversation, up to the response's own.
    pub(super) conversation: Vec<Value>,
    bytes: usize,
}

/// The responses that are kept, oldest first.
pub(crate) struct ResponseStore {
    kept: Mutex<Kept>,
    max_count: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Kept {
    responses: IndexMap<String, Arc<StoredResponse>>,
    bytes: usize,
}

impl StoredResponse {
    pub(super) fn new(
        response: ResponseObject,
        input: Vec<Value>,
        mut conversation: Vec<Value>,
    ) -> StoredResponse {
        conversation.extend(response.output.iter().map(|item| serde_json::json!(item)));
        let size = |items: &[Value]| items.iter().map(|item| item.to_string().len()).sum::<usize>();
        let bytes = size(&input) + size(&conversation) + serde_json::json!(response).to_string().len();
        StoredResponse { response, input, conversation, bytes }
    }
}

impl ResponseStore {
    /// A store for so many responses of so many bytes together.
    pub(crate) fn new(max_count: usize, max_bytes: usize) -> ResponseStore {
        ResponseStore { kept: Mutex::default(), max_count, max_bytes }
    }

    /// Keeps a response. The oldest others make room for it; one that is too large for the store is not kept.
    pub(super) fn insert(&self, stored: StoredResponse) {
        if self.max_count == 0 || stored.bytes > self.max_bytes {
            return;
        }
        let mut kept = self.lock();
        kept.bytes += stored.bytes;
        kept.responses.insert(stored.response.id.clone(), Arc::new(stored));
        while kept.responses.len() > self.max_count || kept.bytes > self.max_bytes {
            let Some((_, oldest)) = kept.responses.shift_remove_index(0) else { break };
            kept.bytes -= oldest.bytes;
        }
    }

    /// The response with an id.
    ///
    /// # Errors
    /// If it is not kept. `param` is the field of the request that names it.
    pub(super) fn get(&self, id: &str, param: &str) -> Result<Arc<StoredResponse>, ApiError> {
        self.lock().responses.get(id).cloned().ok_or_else(|| not_kept(id, param))
    }

    /// An item of a response that is kept, or of the conversation before it.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let kept = self.lock();
        let mut items = kept.responses.values().rev().flat_map(|stored| &stored.conversation);
        items.find(|item| item["id"] == id).cloned()
    }

    /// Forgets a response.
    ///
    /// # Errors
    /// If it is not kept.
    pub(super) fn remove(&self, id: &str) -> Result<(), ApiError> {
        let mut kept = self.lock();
        let removed = kept.responses.shift_remove(id).ok_or_else(|| not_kept(id, "id"))?;
        kept.bytes -= removed.bytes;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_kept(id: &str, param: &str) -> ApiError {
    let message =
        format!("there is no response `{id}`: it was not stored, was deleted, or made room for newer ones");
    let error = ApiError::new(StatusCode::NOT_FOUND, "response_not_found", message);
    ApiError { param: Some(param.to_string()), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(id: &str, bytes: usize) -> StoredResponse {
        let response = ResponseObject { id: id.to_string(), ..ResponseObject::default() };
        StoredResponse { response, input: Vec::new(), conversation: Vec::new(), bytes }
    }

    #[test]
    fn the_oldest_responses_make_room_by_count_and_by_size() {
        let store = ResponseStore::new(3, 100);
        let kept = |id: &str| store.get(id, "id").is_ok();
        ["a", "b", "c", "d"].iter().for_each(|id| store.insert(stored(id, 10)));
        assert!(!kept("a") && kept("b") && kept("d"));
        store.insert(stored("large", 85));
        assert!(!kept("c") && kept("d") && kept("large"), "10 + 85 bytes fit");
        store.insert(stored("too large", 101));
        assert!(!kept("too large") && kept("large"));
        store.remove("large").unwrap();
        store.insert(stored("e", 90));
        assert!(kept("d") && kept("e"));
    }
}
