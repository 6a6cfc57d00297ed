//! Flags for what models write besides text.

use clap::ValueEnum;
use pipelines::ToolFormat;
use serve::ServerConfig;

use crate::parse;

/// How models call tools and reason.
#[derive(clap::Args)]
pub(super) struct AnswerFlags {
    /// Format in which models write tool calls [default: that of their chat templates]
    #[arg(
        long,
        value_name = "NAME",
        hide_short_help = true,
        value_parser = parse::Named { names: tool_formats, parse: tool_format }
    )]
    tool_format: Option<&'static ToolFormat>,
    /// Let models reason before they answer, unless the request decides
    #[arg(long, value_name = "MODE", default_value = "auto", hide_short_help = true)]
    reasoning: Reasoning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reasoning {
    /// As the chat template decides
    Auto,
    /// Only if a request asks for it
    Off,
}

impl AnswerFlags {
    pub(super) fn apply(&self, config: ServerConfig) -> ServerConfig {
        let reasoning = self.reasoning == Reasoning::Auto;
        ServerConfig { tool_format: self.tool_format, reasoning, ..config }
    }
}

fn tool_formats() -> Vec<&'static str> {
    ToolFormat::names().collect()
}

fn tool_format(name: &str) -> Result<&'static ToolFormat, String> {
    ToolFormat::named(name).ok_or_else(|| format!("give one of {}", tool_formats().join(", ")))
}
