//! What a full queue has too many of.

use std::fmt;

/// What a full queue has too many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueUnit {
    /// Requests.
    Requests,
    /// Tokens of their prompts.
    PromptTokens,
    /// Requests of one tenant.
    TenantRequests,
    /// Tokens of the prompts of one tenant.
    TenantPromptTokens,
}

impl QueueUnit {
    pub(crate) fn counts_requests(self) -> bool {
        matches!(self, QueueUnit::Requests | QueueUnit::TenantRequests)
    }

    pub(crate) fn is_of_tenant(self) -> bool {
        matches!(self, QueueUnit::TenantRequests | QueueUnit::TenantPromptTokens)
    }
}

impl fmt::Display for QueueUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueUnit::Requests => "requests",
            QueueUnit::PromptTokens => "prompt tokens",
            QueueUnit::TenantRequests => "requests of its tenant",
            QueueUnit::TenantPromptTokens => "prompt tokens of its tenant",
        })
    }
}
