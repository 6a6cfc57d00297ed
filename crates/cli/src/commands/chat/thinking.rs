//! Splits an answer into thoughts (`<think>…</think>`) and the rest, part by part.

/// The tags around thoughts.
const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A part of an answer. The tags belong to the thought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Thought(String),
    Text(String),
}

/// Splits a stream of text.
#[derive(Debug, Default)]
pub(super) struct ThoughtSplitter {
    inside: bool,
    /// Text that may be the start of a tag.
    held: String,
}

impl ThoughtSplitter {
    /// A splitter for an answer that starts inside a thought, because the prompt opened it, or outside.
    pub(super) fn new(inside: bool) -> ThoughtSplitter {
        ThoughtSplitter { inside, held: String::new() }
    }

    /// Whether a prompt opens a thought that the answer continues.
    pub(super) fn is_opened_by(prompt: &str) -> bool {
        prompt.trim_end().ends_with(OPEN)
    }

    /// The parts that are certain after some more text.
    pub(super) fn push(&mut self, text: &str) -> Vec<Segment> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while let Some((body, rest)) = self.held.split_once(self.tag()) {
            let (body, rest) = (body.to_string(), rest.to_string());
            if self.inside {
                parts.push(Segment::Thought(body + CLOSE));
                self.held = rest;
            } else {
                if !body.is_empty() {
                    parts.push(Segment::Text(body));
                }
                parts.push(Segment::Thought(OPEN.to_string()));
                self.held = rest;
            }
            self.inside = !self.inside;
        }
        // The longest end of the text that could begin the tag waits for what follows.
        let tag = self.tag();
        let waits = (1..tag.len()).rev().find(|&len| self.held.ends_with(&tag[..len])).unwrap_or(0);
        let certain: String = self.held.drain(..self.held.len() - waits).collect();
        if !certain.is_empty() {
            parts.push(self.part(certain));
        }
        parts
    }

    /// What was held back, at the end of the answer.
    pub(super) fn end(&mut self) -> Option<Segment> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then(|| self.part(held))
    }

    fn part(&self, text: String) -> Segment {
        if self.inside { Segment::Thought(text) } else { Segment::Text(text) }
    }

    fn tag(&self) -> &'static str {
        if self.inside { CLOSE } else { OPEN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thoughts in brackets.
    fn split(inside: bool, parts: &[&str]) -> String {
        let mut splitter = ThoughtSplitter::new(inside);
        let mut all: Vec<Segment> = parts.iter().flat_map(|part| splitter.push(part)).collect();
        all.extend(splitter.end());
        let show = |part: &Segment| match part {
            Segment::Thought(text) => format!("[{text}]"),
            Segment::Text(text) => text.clone(),
        };
        all.iter().map(show).collect::<String>().replace("][", "")
    }

    #[test]
    fn thoughts_are_split_from_answers() {
        assert_eq!(split(false, &["no thoughts, 1 < 2"]), "no thoughts, 1 < 2");
        assert_eq!(split(false, &["<think>a</think>b"]), "[<think>a</think>]b");
        assert_eq!(split(true, &["a</think>\n\nb"]), "[a</think>]\n\nb");
        assert_eq!(split(false, &["x<think>a"]), "x[<think>a]");
    }

    #[test]
    fn tags_may_come_in_pieces() {
        let text = "é <think>ab</think>c<thin";
        let whole = split(false, &[text]);
        assert_eq!(whole, "é [<think>ab</think>]c<thin");
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(split(false, &letters), whole);
    }

    #[test]
    fn prompts_that_open_a_thought_are_recognised() {
        assert!(ThoughtSplitter::is_opened_by("<|im_start|>assistant\n<think>\n"));
        assert!(!ThoughtSplitter::is_opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    }
}
