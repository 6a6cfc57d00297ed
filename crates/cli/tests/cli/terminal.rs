//! Commands on a terminal: progress, colours, typing ahead, signals.
#![cfg(unix)]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

use crate::support::{Folder, storyteller};

/// A process with a terminal on all three standard streams.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    /// Where the process keeps its history.
    _state: Folder,
}

impl Terminal {
    /// Runs `peri` with some environment variables, after `typed` was typed.
    fn run(name: &str, arguments: &[&str], variables: &[(&str, &str)], typed: &str) -> Terminal {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let mut keyboard = File::from(pty.master);
        keyboard.write_all(typed.as_bytes()).unwrap();
        let state = Folder::new(&format!("terminal-{name}"));
        let stream = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_peri"));
        command.args(arguments).stdin(stream()).stdout(stream()).stderr(stream());
        command.env("TERM", "xterm-256color").env("XDG_STATE_HOME", state.path());
        command.env_remove("NO_COLOR").env_remove("CI").env_remove("CLICOLOR").env_remove("CLICOLOR_FORCE");
        let child = command.envs(variables.iter().copied()).spawn().unwrap();
        // The screen ends when the last copy of the other end is closed.
        drop(command);
        drop(pty.slave);
        let screen = Arc::new(Mutex::new(String::new()));
        let (output, mut answers) = (keyboard.try_clone().unwrap(), keyboard.try_clone().unwrap());
        let shown = Arc::clone(&screen);
        let reader = std::thread::spawn(move || read_screen(output, &mut answers, &shown));
        Terminal { child, keyboard, screen, reader, _state: state }
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until the screen has shown a text `count` times.
    fn wait_for(&self, text: &str, count: usize) {
        let start = Instant::now();
        while self.screen().matches(text).count() < count {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "no {count} times {text:?} on\n{:?}",
                self.screen()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses Ctrl-D until the process ends: one that comes before the line editor has the terminal may be lost.
    fn leave(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "no end on\n{:?}", self.screen());
            // Fails if the process has just ended.
            let _ = self.keyboard.write_all(b"\x04");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.end()
    }

    /// Waits for the end; gives the exit code and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.reader.join().unwrap();
        let screen = self.screen.lock().unwrap().clone();
        (code, screen)
    }
}

/// Reads what is shown, and tells the process where its cursor is when it asks.
fn read_screen(mut output: File, answers: &mut File, screen: &Mutex<String>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        for _ in text.matches("\u{1b}[6n") {
            answers.write_all(b"\x1b[1;1R").unwrap();
        }
        screen.lock().unwrap().push_str(&text);
    }
}

/// A model in a file, which is loaded as models of users are.
fn model_file() -> String {
    testdata::shared("stories260k/gguf/stories260K-F32.gguf")
        .map_or_else(storyteller, |path| path.display().to_string())
}

#[test]
fn packing_shows_a_bar_for_models_in_files() {
    let model = model_file();
    let arguments = ["generate", &model, "Once", "-n", "1", "--seed", "1"];
    let (code, screen) = Terminal::run("packing", &arguments, &[], "").end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("packing ") && screen.contains("iB"), "{screen:?}");
    let (_, quiet) = Terminal::run("quiet", &[&arguments[..], &["--quiet"]].concat(), &[], "").end();
    assert!(!quiet.contains("packing") && !quiet.contains('\u{1b}'), "{quiet:?}");
}

#[test]
fn every_turn_of_a_chat_shows_that_the_model_reads() {
    let mut terminal = Terminal::run("reading", &["chat", "--seed", "1", "-n", "4"], &[], "");
    terminal.wait_for("/help lists", 1);
    for turn in 1..=3 {
        terminal.press("Once upon a time\r");
        terminal.wait_for("[prompt ", turn);
    }
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    for turn in screen.split("[prompt ").take(3) {
        assert!(turn.contains("reading"), "{screen:?}");
    }
}

#[test]
fn lines_typed_while_the_model_loads_are_messages() {
    let mut terminal =
        Terminal::run("ahead", &["chat", "--seed", "1", "-n", "4"], &[], "Once upon a time\nThe fox\n");
    terminal.wait_for("[prompt ", 2);
    terminal.press("/stats\r");
    terminal.wait_for("conversation   4 messages", 1);
    assert_eq!(terminal.leave().0, Some(0));
}

#[test]
fn thoughts_are_dimmed_and_folded() {
    let folder = Folder::new("thoughts");
    let template = folder.file("think.jinja", "{{ bos_token }}{{ messages[-1].content }}<think>");
    let arguments = ["chat", "--template", &template, "--seed", "1", "-n", "4"];
    let mut terminal = Terminal::run("dim", &arguments, &[], "");
    terminal.wait_for("/help lists", 1);
    terminal.press("Once\r");
    terminal.wait_for("[prompt ", 1);
    assert!(terminal.screen().contains("\u{1b}[2m"), "{:?}", terminal.screen());
    terminal.press("/think\r");
    terminal.wait_for("Thoughts are folded.", 1);
    let before = terminal.screen().matches("\u{1b}[2m").count();
    terminal.press("Once\r");
    terminal.wait_for("[prompt ", 2);
    assert_eq!(terminal.screen().matches("\u{1b}[2m").count(), before, "{:?}", terminal.screen());
    terminal.leave();

    let mut plain = Terminal::run("no-color", &arguments, &[("NO_COLOR", "1")], "");
    plain.wait_for("/help lists", 1);
    plain.press("Once\r");
    plain.wait_for("[prompt ", 1);
    let (_, screen) = plain.leave();
    assert!(!has_style(&screen), "{screen:?}");
}

/// Whether a text sets colours, or bold or faint letters.
fn has_style(screen: &str) -> bool {
    screen.split("\u{1b}[").skip(1).any(|sequence| {
        let end = sequence.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(sequence.len());
        sequence[end..].starts_with('m') && !["", "0"].contains(&&sequence[..end])
    })
}

#[test]
fn typed_text_has_the_terminals_own_colours() {
    let mut terminal = Terminal::run("light", &["chat", "--seed", "1", "-n", "2"], &[], "");
    terminal.wait_for("/help lists", 1);
    terminal.press("Once\r");
    terminal.wait_for("[prompt ", 1);
    let (_, screen) = terminal.leave();
    assert!(!has_style(&screen), "white on white cannot be read: {screen:?}");
}

#[test]
fn help_is_styled_unless_no_color_is_set() {
    assert!(has_style(&Terminal::run("help", &["--help"], &[], "").end().1));
    for variables in [[("NO_COLOR", "1"), ("CI", "true")], [("TERM", "dumb"), ("CI", "true")]] {
        for arguments in [["--help"], ["--no-such-flag"]] {
            let (_, screen) = Terminal::run("plain-help", &arguments, &variables, "").end();
            assert!(!has_style(&screen), "{variables:?}: {screen:?}");
        }
    }
}

#[test]
fn dumb_terminals_get_lines() {
    let mut terminal = Terminal::run("dumb", &["chat", "--seed", "1", "-n", "4"], &[("TERM", "dumb")], "");
    terminal.wait_for("> ", 1);
    terminal.press("Once upon a time\n");
    terminal.wait_for("[prompt ", 1);
    terminal.press("/rest\n");
    terminal.wait_for("unknown command /rest", 1);
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
}

#[test]
fn sigterm_ends_a_chat_at_its_prompt() {
    let terminal = Terminal::run("sigterm", &["chat"], &[], "");
    terminal.wait_for("/help lists", 1);
    terminal.wait_for("\u{1b}[6n", 1);
    let status = Command::new("kill").args(["-TERM", &terminal.child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(terminal.end().0, Some(143));
}
