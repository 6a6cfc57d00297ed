//! Commands typed in a conversation, such as `/reset`.

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Help,
    Reset,
    System(&'a str),
    Stats,
    Save(&'a str),
    Load(&'a str),
    Retry,
    Undo,
    Think,
    Exit,
}

/// What `/help` prints after the commands.
const HINTS: &str = "\
A line that ends with a backslash continues on the next. Lines between two lines of \"\"\" are one message.
Ctrl-C stops an answer and keeps the text so far. Ctrl-D leaves.";

/// Name, argument and description of each.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "show this help"),
    ("reset", "", "start over; the system message stays"),
    ("system", "TEXT", "set the system message; without TEXT, show it; \"\" removes it"),
    ("think", "", "show or fold the model's thoughts"),
    ("stats", "", "show tokens, times and the length of the context"),
    ("save", "FILE", "save the conversation as JSON"),
    ("load", "FILE", "continue a saved conversation"),
    ("retry", "", "replace the last answer by another"),
    ("undo", "", "remove the last message and its answer"),
    ("exit", "", "leave"),
];

/// The command in a text, or `None` if it is a message. Only `/` and a word of letters is a command; paths and comments
/// are messages.
///
/// # Errors
/// If the command does not exist, or its argument is missing or unexpected.
pub(super) fn parse(text: &str) -> Option<Result<Command<'_>, String>> {
    let text = text.trim();
    let (name, rest) =
        text.strip_prefix('/')?.split_at(text[1..].find(char::is_whitespace).unwrap_or(text.len() - 1));
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic());
    is_word.then(|| command(&name.to_ascii_lowercase(), rest.trim()))
}

/// The help text.
pub(super) fn help() -> String {
    let rows =
        COMMANDS.iter().map(|(name, takes, does)| format!("{:<14} {does}\n", format!("/{name} {takes}")));
    rows.collect::<String>() + HINTS
}

fn command<'a>(name: &str, rest: &'a str) -> Result<Command<'a>, String> {
    let Some((name, takes, _)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("unknown command /{name}; /help lists all"));
    };
    match (*takes, rest) {
        ("", "") | ("TEXT", _) => {}
        ("", rest) => return Err(format!("/{name} takes no argument, got `{rest}`")),
        (takes, "") => return Err(format!("/{name} needs a {}", takes.to_lowercase())),
        _ => {}
    }
    Ok(match *name {
        "help" => Command::Help,
        "reset" => Command::Reset,
        "system" => Command::System(rest),
        "stats" => Command::Stats,
        "save" => Command::Save(rest),
        "load" => Command::Load(rest),
        "retry" => Command::Retry,
        "undo" => Command::Undo,
        "think" => Command::Think,
        "exit" => Command::Exit,
        name => unreachable!("/{name} is in COMMANDS but not here"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_distinguished_from_messages() {
        let check = |text, expected: Option<Result<Command<'_>, &str>>| {
            assert_eq!(parse(text), expected.map(|command| command.map_err(String::from)), "{text}");
        };
        for text in ["Hello", "/home/ada is what?", "/* a comment */", "// another", "/", "", "5 /exit"] {
            check(text, None);
        }
        check("/RESET ", Some(Ok(Command::Reset)));
        check("/system Be  brief. ", Some(Ok(Command::System("Be  brief."))));
        check("/system\nBe\nbrief.", Some(Ok(Command::System("Be\nbrief."))));
        check("/system", Some(Ok(Command::System(""))));
        check("/save a file.json", Some(Ok(Command::Save("a file.json"))));
        check("/load", Some(Err("/load needs a file")));
        check("/undo 2", Some(Err("/undo takes no argument, got `2`")));
        check("/quit", Some(Err("unknown command /quit; /help lists all")));
    }

    #[test]
    fn every_command_parses_and_has_help() {
        for (name, takes, _) in COMMANDS {
            assert!(parse(&format!("/{name} {takes}")).unwrap().is_ok(), "{name}");
            assert!(help().contains(&format!("/{name}")));
        }
    }
}
