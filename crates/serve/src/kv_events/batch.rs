//! A batch of events as MessagePack: arrays as msgspec writes them for vLLM, or maps.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// How a batch of events is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KvEventsFormat {
    /// An array of fields, the first of an event's being its name.
    #[default]
    Array,
    /// A map of fields.
    Map,
}

/// The memory in which the model computes, as routers call it, whatever device that is.
const MEDIUM: &str = "GPU";

/// The rank of the engine among those that share a model; there is one engine.
const DATA_PARALLEL_RANK: u32 = 0;

/// An event of a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Event {
    Stored(BlockStored),
    Removed(BlockRemoved),
    Cleared(AllBlocksCleared),
}

/// Pages that follow each other in a text can be lent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BlockStored {
    r#type: &'static str,
    pub(super) block_hashes: Vec<u64>,
    parent_block_hash: Option<u64>,
    pub(super) token_ids: Vec<u32>,
    block_size: usize,
    lora_id: Option<u32>,
    medium: &'static str,
    lora_name: Option<String>,
}

/// Pages can no longer be lent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BlockRemoved {
    r#type: &'static str,
    pub(super) block_hashes: Vec<u64>,
    medium: &'static str,
}

/// No page can be lent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AllBlocksCleared {
    r#type: &'static str,
}

impl Event {
    pub(super) fn stored(hash: u64, parent: Option<u64>, tokens: &[u32]) -> Event {
        Event::Stored(BlockStored {
            r#type: "BlockStored",
            block_hashes: vec![hash],
            parent_block_hash: parent,
            token_ids: tokens.to_vec(),
            block_size: tokens.len(),
            lora_id: None,
            medium: MEDIUM,
            lora_name: None,
        })
    }

    pub(super) fn removed(hash: u64) -> Event {
        Event::Removed(BlockRemoved { r#type: "BlockRemoved", block_hashes: vec![hash], medium: MEDIUM })
    }

    pub(super) fn cleared() -> Event {
        Event::Cleared(AllBlocksCleared { r#type: "AllBlocksCleared" })
    }
}

/// Writes batches.
pub(super) struct Encoder(KvEventsFormat);

impl Encoder {
    pub(super) fn new(format: KvEventsFormat) -> Encoder {
        Encoder(format)
    }

    /// A batch of now.
    pub(super) fn encode(&self, events: &[Event]) -> Vec<u8> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.encode_at(since.as_secs_f64(), events)
    }

    /// A batch of a time in seconds since 1970.
    fn encode_at(&self, time: f64, events: &[Event]) -> Vec<u8> {
        // A tuple is an array in both formats.
        let batch = (time, events, DATA_PARALLEL_RANK);
        let bytes = match self.0 {
            KvEventsFormat::Array => rmp_serde::to_vec(&batch),
            KvEventsFormat::Map => rmp_serde::to_vec_named(&batch),
        };
        bytes.expect("numbers and strings can be written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch in hexadecimal.
    fn check(format: KvEventsFormat, expected: &str) {
        let events =
            [Event::stored(0x1122_3344_5566_7788, Some(7), &[1, 300]), Event::removed(7), Event::cleared()];
        let bytes = Encoder::new(format).encode_at(1.5, &events);
        assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
    }

    // Both were written by msgspec: maps from the structs of vLLM 0.33.0 (`distributed/kv_events.py`), arrays from the same
    // with `array_like`, as earlier releases had them.

    #[test]
    fn arrays_are_those_of_msgspec() {
        check(
            KvEventsFormat::Array,
            "93cb3ff80000000000009398ab426c6f636b53746f72656491cf1122334455667788079201cd012c02c0a3475055c093ac426c6f\
             636b52656d6f7665649107a347505591b0416c6c426c6f636b73436c656172656400",
        );
    }

    #[test]
    fn maps_are_those_of_msgspec() {
        check(
            KvEventsFormat::Map,
            "93cb3ff80000000000009388a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf1122334455667788\
             b1706172656e745f626c6f636b5f6861736807a9746f6b656e5f6964739201cd012caa626c6f636b5f73697a6502a76c6f72615f\
             6964c0a66d656469756da3475055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68\
             61736865739107a66d656469756da347505581a474797065b0416c6c426c6f636b73436c656172656400",
        );
    }
}
