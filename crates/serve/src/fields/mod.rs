//! Groups of fields that the bodies of several protocols have.

pub(crate) mod conversation;
pub(crate) mod dry_run;
pub(crate) mod opaque_reasoning;
mod output_format;
pub(crate) mod texts;
pub(crate) mod timings;
pub(crate) mod truncation;

pub(crate) use output_format::OutputFormatFields;
