//! What a graph wants done where a device cannot compute what is put on it.

use std::fmt;

use super::Graph;

/// What compiling does about ops that a graph puts on a device and only the host can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DevicePlacementPolicy {
    /// Nothing.
    Ignore,
    /// Compiling logs a warning that names them.
    #[default]
    Warn,
    /// Compiling fails at the first.
    Error,
}

impl DevicePlacementPolicy {
    const ALL: [DevicePlacementPolicy; 3] = [Self::Ignore, Self::Warn, Self::Error];

    /// The policy of a name: `ignore`, `warn` or `error`.
    pub fn from_name(name: &str) -> Option<DevicePlacementPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The name of the policy, as graph text has it.
    pub fn name(self) -> &'static str {
        match self {
            DevicePlacementPolicy::Ignore => "ignore",
            DevicePlacementPolicy::Warn => "warn",
            DevicePlacementPolicy::Error => "error",
        }
    }
}

impl fmt::Display for DevicePlacementPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Graph {
    /// What is done about ops on a device that only the host can compute. Graphs within nodes run on the host, and theirs
    /// does not count.
    pub fn device_placement(&self) -> DevicePlacementPolicy {
        self.device_placement
    }

    /// Sets [`Graph::device_placement`].
    pub fn set_device_placement(&mut self, policy: DevicePlacementPolicy) {
        self.device_placement = policy;
    }
}
