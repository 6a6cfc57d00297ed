//! The requests that the server answers, and the last that it has answered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::RequestRecord;
use crate::telemetry::RequestReport;

/// How many requests are remembered after their end.
const MAX_ENDED: usize = 256;

/// The requests of a server.
#[derive(Default)]
pub(crate) struct Requests(Mutex<RequestTable>);

#[derive(Default)]
struct RequestTable {
    next: u64,
    running: BTreeMap<u64, Arc<RequestRecord>>,
    /// The oldest first.
    ended: VecDeque<RequestReport>,
}

impl Requests {
    /// Takes note of a request, and gives it a number of its own.
    pub(super) fn begin(&self, record: RequestRecord) -> (u64, Arc<RequestRecord>) {
        let record = Arc::new(record);
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.running.insert(number, Arc::clone(&record));
        (number, record)
    }

    /// Takes note that a request has ended.
    pub(super) fn end(&self, number: u64) {
        self.lock().running.remove(&number);
    }

    /// Keeps the report of a request that has ended.
    pub(super) fn remember(&self, report: RequestReport) {
        let mut table = self.lock();
        if table.ended.len() == MAX_ENDED {
            table.ended.pop_front();
        }
        table.ended.push_back(report);
    }

    /// The requests that run, the oldest first.
    pub(crate) fn running(&self) -> Vec<Arc<RequestRecord>> {
        self.lock().running.values().cloned().collect()
    }

    /// The last request with an id that has ended.
    pub(crate) fn ended(&self, id: &str) -> Option<RequestReport> {
        self.lock().ended.iter().rev().find(|report| report.id() == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, RequestTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
