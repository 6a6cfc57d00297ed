//! The requests that the server answers, and the last that it has answered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::context::{Record, RequestReport};

/// How many requests are remembered after their end.
const MAX_ENDED: usize = 256;

/// The requests of a server.
#[derive(Default)]
pub(crate) struct Requests(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    running: BTreeMap<u64, Weak<Record>>,
    /// The oldest first.
    ended: VecDeque<RequestReport>,
}

impl Requests {
    /// Takes note of a request, whose record is made with a number of its own.
    pub(crate) fn begin(&self, record: impl FnOnce(u64) -> Record) -> Arc<Record> {
        let number = {
            let mut table = self.lock();
            table.next += 1;
            table.next
        };
        let record = Arc::new(record(number));
        self.lock().running.insert(number, Arc::downgrade(&record));
        record
    }

    /// Takes note that a request has ended.
    pub(crate) fn end(&self, number: u64, report: RequestReport) {
        let mut table = self.lock();
        table.running.remove(&number);
        if table.ended.len() == MAX_ENDED {
            table.ended.pop_front();
        }
        table.ended.push_back(report);
    }

    /// The requests that run, the oldest first.
    pub(crate) fn running(&self) -> Vec<Arc<Record>> {
        // A record that goes now locks the table itself.
        self.lock().running.values().filter_map(Weak::upgrade).collect()
    }

    /// The last request with an id that has ended.
    pub(crate) fn ended(&self, id: &str) -> Option<RequestReport> {
        self.lock().ended.iter().rev().find(|report| report.id() == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
