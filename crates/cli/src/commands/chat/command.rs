//! What one types to steer a conversation: `/reset` and its like.

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
    Exit,
}

/// What `/help` says, after the list of commands.
const HINTS: &str = "\
A line that ends with a backslash goes on in the next; a message between two lines of \"\"\" is taken as it stands.
Ctrl-C stops an answer and keeps what was said of it. Ctrl-D leaves.";

/// A row for each: its name, what it takes, and what it does.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "show this"),
    ("reset", "", "begin anew; the system message stays"),
    ("system", "TEXT", "set the system message; alone, show it; \"\" removes it"),
    ("stats", "", "show tokens, times and how full the context is"),
    ("save", "FILE", "write the conversation to a file, as JSON"),
    ("load", "FILE", "go on with the conversation of a file"),
    ("retry", "", "throw the last answer away and have another"),
    ("undo", "", "take back the last message and its answer"),
    ("exit", "", "leave"),
];

/// The command in a text, or `None` if it is a message. Only a word of letters after `/` makes a command, so that
/// paths and comments are messages.
///
/// # Errors
/// If there is no such command, or it is given too much or too little.
pub(super) fn parse(text: &str) -> Option<Result<Command<'_>, String>> {
    let text = text.trim();
    let (name, rest) =
        text.strip_prefix('/')?.split_at(text[1..].find(char::is_whitespace).unwrap_or(text.len() - 1));
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic());
    is_word.then(|| command(&name.to_ascii_lowercase(), rest.trim()))
}

/// The list of commands.
pub(super) fn help() -> String {
    let rows =
        COMMANDS.iter().map(|(name, takes, does)| format!("{:<14} {does}\n", format!("/{name} {takes}")));
    rows.collect::<String>() + HINTS
}

fn command<'a>(name: &str, rest: &'a str) -> Result<Command<'a>, String> {
    let Some((name, takes, _)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("there is no command /{name}; /help lists them"));
    };
    match (*takes, rest) {
        ("", "") | ("TEXT", _) => {}
        ("", rest) => return Err(format!("/{name} takes nothing, and is given `{rest}`")),
        (takes, "") => return Err(format!("/{name} wants a {}", takes.to_lowercase())),
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
        "exit" => Command::Exit,
        name => unreachable!("/{name} is in the table, so it is here"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
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
        check("/load", Some(Err("/load wants a file")));
        check("/undo 2", Some(Err("/undo takes nothing, and is given `2`")));
        check("/quit", Some(Err("there is no command /quit; /help lists them")));
    }

    #[test]
    fn every_command_is_known_and_explained() {
        for (name, takes, _) in COMMANDS {
            assert!(parse(&format!("/{name} {takes}")).unwrap().is_ok(), "{name}");
            assert!(help().contains(&format!("/{name}")));
        }
    }
}
